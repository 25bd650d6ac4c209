"""LGC's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim, Results, Verdict
from softnic.experiments.reproduce.item import span
from softnic.experiments.reproduce.lgc import fig14, paper
from softnic.experiments.reproduce.lgc.fig13 import EXPONENTIAL, FIXED, WARM_UP
from softnic.experiments.reproduce.lgc.training import TITLES

_RESNET50, _RESNET101 = "ResNet50, 1,000 classes", "ResNet101, 10 classes"
_ALL = "with indices and first layer MB"


def _megabytes(results: Results, network: str, method: str, column: str = "values MB") -> float:
    return results.value("lgc rates", column, network=network, method=method)


def _ratios(results: Results) -> str:
    found = [
        _megabytes(results, _RESNET50, method, "ratio") for method in (paper.RING, paper.SERVER, paper.SERVER_OTHERS)
    ]
    whole = _megabytes(results, _RESNET50, paper.RING, "its ratio")
    return f"{found[0]:,.0f} (ring), {found[1]:,.0f} and {found[2]:,.0f} (server); a ring with its indices {whole:,.0f}"


def _against_dgc(results: Results) -> str:
    dgc, server = (_megabytes(results, _RESNET101, method, _ALL) for method in (paper.DGC, paper.SERVER))
    code = _megabytes(results, _RESNET101, paper.RING)
    return f"with indices {server:.3f} MB, DGC {dgc:.3f} MB; code and last layer alone are {code:.3f} MB"


def _coder(results: Results) -> str:
    encoder, decoder, least = (
        results.value("lgc rates", column, "times", network=_RESNET50)
        for column in ("encoder ms", "decoder ms", "encoder's least ms on an RTX 2080 Ti")
    )
    return f"{encoder:.0f} and {decoder:.0f} ms on one core; at its peak the paper's GPU needs {least:.3f} ms to encode"


def _many(results: Results) -> str:
    beyond = list(results.values("lgc fig12", "common beyond chance"))
    many = f"{100 * min(beyond):.1f} to {100 * max(beyond):.1f} % beyond chance with 64 levels, 8 to 32 nodes"
    return f"{many}. {results.finding('lgc fig3')}"


_LEARNED = (paper.SERVER, paper.RING)
_NETWORKS = tuple(TITLES.values())
_FEW_POINTS = 1.0
"""Of accuracy, that few seeds of short trainings leave open."""


def _points(results: Results, method: str) -> list[tuple[float, float]]:
    """Return mean and deviation of the points more than without compression, by network."""
    return [
        (
            results.value("lgc table6", "points", network=network, method=method),
            results.value("lgc table6", "±", network=network, method=method),
        )
        for network in _NETWORKS
    ]


def _accuracies(results: Results) -> str:
    server, ring = (
        " and ".join(f"{mean:+.2f} ± {deviation:.2f}" for mean, deviation in _points(results, method))
        for method in _LEARNED
    )
    return f"{server} points (server), {ring} (ring): {' and '.join(_NETWORKS)}"


def _as_accurate(results: Results) -> Verdict:
    worst = min(mean for method in _LEARNED for mean, _ in _points(results, method))
    return "in part" if worst > -_FEW_POINTS else "not seen"


def _whole_trainings(results: Results) -> str:
    server, ring = (
        span(results.values("lgc table6", "times fewer on the wire", method=method), ".1f") for method in _LEARNED
    )
    return f"{server} (server) and {ring} times fewer (ring)"


def _last_steps(results: Results, method: str) -> list[float]:
    return list(results.values("lgc table6", "of a full step", "phases", method=method, phase="compressed"))


def _steps(results: Results) -> str:
    ring, server = (span(_last_steps(results, method), ".2f") for method in (paper.RING, paper.SERVER))
    return f"{ring} (ring) and {server} (server) of a full step; accuracy as in Table IV"


def _faster(results: Results) -> Verdict:
    faster = [share < 1 for method in _LEARNED for share in _last_steps(results, method)]
    return "in part" if any(faster) else "not seen"


def _losses(results: Results, network: str) -> dict[str, float]:
    return {
        strategy: results.value("lgc fig13", "mean loss", "end", network=network, strategy=strategy)
        for strategy in (FIXED, EXPONENTIAL, WARM_UP)
    }


def _strategies(results: Results) -> str:
    found = [
        f"{network} {', '.join(f'{loss:.3f} ({strategy})' for strategy, loss in _losses(results, network).items())}"
        for network in _NETWORKS
    ]
    return f"loss at the end: {'; '.join(found)}"


def _warm_up_is_best(results: Results) -> Verdict:
    found = [_losses(results, network) for network in _NETWORKS]
    least = [losses[WARM_UP] == min(losses.values()) for losses in found]
    return "confirmed" if all(least) else "in part" if any(least) else "not seen"


def _errors(results: Results, autoencoder: str) -> list[float]:
    return [
        results.value("lgc fig14", "not learned from", network=network, autoencoder=autoencoder)
        for network in _NETWORKS
    ]


def _similarity(results: Results) -> tuple[list[float], list[float]]:
    """Return the errors of a server's autoencoder without and with the similarity loss, by network."""
    without, together = (_errors(results, fig14.server_name("value", each)) for each in fig14.SIMILARITIES)
    return without, together


def _converge(results: Results) -> str:
    def each(errors: Sequence[float]) -> str:
        return " and ".join(f"{error:.3f}" for error in errors)

    without, together = _similarity(results)
    ring = _errors(results, fig14.ring_name("value"))
    return (
        f"relative errors of {' and '.join(_NETWORKS)}: ring {each(ring)}; server {each(without)} without the "
        f"similarity loss, {each(together)} with it"
    )


def _similarity_helps(results: Results) -> Verdict:
    helps = [error < other for other, error in zip(*_similarity(results), strict=True)]
    return "in part" if any(helps) else "not seen"


CLAIMS: Sequence[Claim] = (
    Claim(
        "eqs. 1 to 16, Tables I to III, Algs. 1, 2",
        "autoencoders for a ring and a parameter server, three phases",
        "method",
        "`lgc-ring`, `lgc-ps`, with the deviations below",
        "confirmed",
        "Tables I and II do not fit each other, see there",
        "#what-differs-on-purpose",
    ),
    Claim(
        "section III, Fig. 4",
        "80 % of a layer's information is common to two nodes",
        "80 %",
        lambda results: results.finding("lgc fig4"),
        "refuted",
        "the estimate is the entropy itself",
        "#lgc-fig4",
    ),
    Claim(
        "Figs. 3, 12",
        "so it is through the training, and with 16 and 22 nodes",
        '"a large part"',
        _many,
        "refuted",
        "one small network; by the paper's estimate everything is common, also to shuffled gradients",
        "#lgc-fig12",
    ),
    Claim(
        "Table IV",
        "accuracy as without compression",
        "-0.10 points (server), -0.07 (ring)",
        _accuracies,
        _as_accurate,
        "two small networks on MNIST, short trainings",
        "#lgc-table6",
    ),
    Claim(
        "Table IV",
        "bytes of the whole training",
        "794 and 184 times fewer",
        _whole_trainings,
        "in part",
        "the exact first phase is most of what a short training sends; the paper has some 11 % of all steps in phases "
        "1 and 2",
        "#lgc-table6",
    ),
    Claim(
        "Table V, Fig. 10",
        "steps are faster in the last phase, and learning is as without compression",
        "0.4 (ring) and 0.6 s of a full step's 1.0",
        _steps,
        _faster,
        "small networks, four ranks on two cores",
        "#lgc-table6",
    ),
    Claim(
        "Fig. 13",
        "sparsification after a warm-up learns faster than from the first step, or grown exponentially",
        "by a chart",
        _strategies,
        _warm_up_is_best,
        "small networks, short trainings",
        "#lgc-fig13",
    ),
    Claim(
        "Fig. 14",
        "autoencoders converge, and the similarity loss helps",
        "24 and 32 nodes",
        _converge,
        _similarity_helps,
        "small networks; the order of the values decides more",
        "#lgc-fig14",
    ),
    Claim(
        "Table VI",
        "ratio on ResNet50",
        "3,193 (ring), 5,709 and 8,616 (server)",
        _ratios,
        "in part",
        "the ring's is that of code and last layer without indices; the server's is less than its code alone",
        "#lgc-rates",
    ),
    Claim(
        "Table VI",
        "almost an order of magnitude fewer bytes than DGC (ResNet101, server)",
        "0.021 MB, DGC 0.17 MB",
        _against_dgc,
        "refuted",
        "its 0.021 MB are less than the code, and less than the indices of what was selected",
        "#lgc-rates",
    ),
    Claim(
        "section VI-B",
        "encoding and decoding cost next to nothing",
        "0.007 ms and 1 ms",
        _coder,
        "refuted",
        "0.007 ms can be the launch of the kernels",
        "#lgc-rates",
    ),
    Claim(
        "section VI-B",
        "training is faster",
        "1.7 (server) and 2.56 times (ring)",
        "1.67 and 2.50 by its own Table V in the last phase, 1.46 and 2.18 over a training with 89 % of it",
        "in part",
        "arithmetic on the paper's figures; the steps' times here are `lgc table6`'s",
        "#lgc-rates",
    ),
    Claim(
        "Fig. 11",
        "PSPNet on CamVid learns as without compression",
        "46.3 % and 47.6 %",
        "out of scope: no package ships CamVid; bytes of PSPNet are in `lgc rates`",
        "out of scope",
        "",
        "#lgc-rates",
    ),
)
