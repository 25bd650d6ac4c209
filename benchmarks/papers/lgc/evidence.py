"""What the results say of LGC's claims: the figures that `claims.toml` names."""

from __future__ import annotations

from benchmarks.papers.claim import Figures, Results
from benchmarks.papers.lgc import fig14, paper
from benchmarks.papers.lgc.fig13 import EXPONENTIAL, FIXED, WARM_UP
from benchmarks.papers.lgc.training import TITLES

_LEARNED = {"server": paper.SERVER, "ring": paper.RING}
_NETWORKS = tuple(TITLES.values())
_RESNET50, _RESNET101 = "ResNet50, 1,000 classes", "ResNet101, 10 classes"


def common(results: Results) -> Figures:
    """Return percent of the entropy that two of many nodes have in common beyond chance."""
    return Figures(100 * share for share in results.values("lgc fig12", "common beyond chance"))


def accuracy(results: Results) -> dict[str, Figures]:
    """Return the points more than without compression, by network."""
    return {name: _points(results, "points", method) for name, method in _LEARNED.items()}


def accuracies(results: Results) -> dict[str, str]:
    """Return the same in words, with deviations over the seeds."""
    return {
        name: " and ".join(
            f"{mean:+.2f} ± {deviation:.2f}"
            for mean, deviation in zip(accuracy(results)[name], _points(results, "±", method), strict=True)
        )
        for name, method in _LEARNED.items()
    }


def _points(results: Results, column: str, method: str) -> Figures:
    return Figures(results.value("lgc table6", column, network=network, method=method) for network in _NETWORKS)


def fewer_bytes(results: Results) -> dict[str, Figures]:
    """Return how many times fewer bytes a whole training sends, by network."""
    column = "times fewer on the wire"
    return {name: Figures(results.values("lgc table6", column, method=method)) for name, method in _LEARNED.items()}


def last_steps(results: Results) -> dict[str, Figures]:
    """Return the time of a step of the last phase, in multiples of a full one's, by network."""
    return {
        name: Figures(results.values("lgc table6", "of a full step", "phases", method=method, phase="compressed"))
        for name, method in _LEARNED.items()
    }


def losses(results: Results) -> dict[str, dict[str, float]]:
    """Return the loss at the end by network and strategy."""
    return {
        network: {
            strategy: results.value("lgc fig13", "mean loss", "end", network=network, strategy=strategy)
            for strategy in (FIXED, EXPONENTIAL, WARM_UP)
        }
        for network in _NETWORKS
    }


def worse_than_warm_up(results: Results) -> Figures:
    """Return by how much the best of the other strategies ends with a higher loss than the warm-up, by network."""
    return Figures(min(of[FIXED], of[EXPONENTIAL]) - of[WARM_UP] for of in losses(results).values())


def errors(results: Results) -> dict[str, Figures]:
    """Return what autoencoders leave of values that they did not learn from, by network."""
    without, together = (fig14.server_name("value", each) for each in fig14.SIMILARITIES)
    autoencoders = {"ring": fig14.ring_name("value"), "without": without, "with": together}
    return {
        name: Figures(
            results.value("lgc fig14", "not learned from", network=network, autoencoder=autoencoder)
            for network in _NETWORKS
        )
        for name, autoencoder in autoencoders.items()
    }


def better_with_similarity(results: Results) -> Figures:
    """Return by how much the similarity loss lowers the error, by network."""
    found = errors(results)
    return Figures(without - error for without, error in zip(found["without"], found["with"], strict=True))


def ratios(results: Results) -> dict[str, float]:
    """Return compression ratios on ResNet50, the ring's with its indices, too."""
    methods = {**_LEARNED, "others": paper.SERVER_OTHERS}
    found = {name: _rates(results, _RESNET50, method, "ratio") for name, method in methods.items()}
    return {**found, "whole": _rates(results, _RESNET50, paper.RING, "its ratio")}


def megabytes(results: Results) -> dict[str, float]:
    """Return what a step sends on ResNet101: with indices and first layer, and the ring's code and last layer alone."""
    whole = "with indices and first layer MB"
    found = {name: _rates(results, _RESNET101, name, whole) for name in (paper.DGC, paper.SERVER)}
    code = _rates(results, _RESNET101, paper.RING, "values MB")
    return {"dgc": found[paper.DGC], "server": found[paper.SERVER], "code": code}


def _rates(results: Results, network: str, method: str, column: str) -> float:
    return results.value("lgc rates", column, network=network, method=method)


def coder(results: Results) -> Figures:
    """Return milliseconds of encoder and decoder, and the least of an encoder on the paper's GPU."""
    columns = ("encoder ms", "decoder ms", "encoder's least ms on an RTX 2080 Ti")
    return Figures(results.value("lgc rates", column, "times", network=_RESNET50) for column in columns)
