"""LGC's claims."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.experiments.reproduce.claim import Claim, Results
from softnic.experiments.reproduce.lgc import paper

_HERE = "#lgcs-accuracy-and-compression-made-here"

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
        "-0.15 and -0.30; -0.53 and -0.45",
        "in part",
        "two small networks on MNIST, 600 steps",
        _HERE,
    ),
    Claim(
        "Table IV",
        "bytes of the whole training",
        "794 and 184 times fewer",
        "about 6 times fewer",
        "in part",
        "a sixth of 600 steps is exact here; the paper has some 11 % of all steps in phases 1 and 2",
        _HERE,
    ),
    Claim(
        "Table V, Fig. 10",
        "steps are faster in the last phase, and learning is as without compression",
        "0.4 and 0.6 of a full step",
        lambda results: results.finding("lgc table6"),
        "in part",
        "small networks, four ranks on two cores",
        _HERE,
    ),
    Claim(
        "Fig. 13",
        "sparsification after a warm-up learns faster than from the first step, or grown exponentially",
        "by a chart",
        lambda results: results.finding("lgc fig13"),
        "in part",
        "small networks",
        _HERE,
    ),
    Claim(
        "Fig. 14",
        "autoencoders converge, and the similarity loss helps",
        "24 and 32 nodes",
        lambda results: results.finding("lgc fig14"),
        "in part",
        "four nodes, selected gradients of one training",
        _HERE,
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
