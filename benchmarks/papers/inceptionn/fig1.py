"""INCEPTIONN's Fig. 1: exchange time of hierarchies of aggregators (a), rings under an aggregator (b), rings (c).

In virtual time, as in fig15. The paper draws these and gives no figures; beside each time is what the bytes on the
busiest link take one after the other, which the levels of a hierarchy do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import hierarchy, paper
from benchmarks.papers.item import Item, Row, ValueTable, change
from benchmarks.papers.virtual import DELAY_S, add_gamma, second_run
from softnic.experiments.data import Floats
from softnic.measure.plot import Lines
from softnic.model import programs
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.units import rate_bps

WORKERS = (8, 16, 32)
QUICK_WORKERS = (4,)
GROUP, QUICK_GROUP = 4, 2
WORDS, QUICK_WORDS = 1 << 18, 1 << 13
SIGMA = 0.0008
"""Standard deviation of the gradients; with it `inceptionn:10` has about the ratio that the paper's have."""
CODEC = paper.FIG_12_CODEC
MODEL = "alexnet"
"""The model whose sums take as long as Table II has it."""

Organisation = Callable[[SimRank, Floats, int, int, float, str], Program]


def _flat(rank: SimRank, vector: Floats, _workers: int, _group: int, gamma: float, codec: str) -> Program:
    return programs.worker_aggregator(rank, vector, gamma, codec)


def _rings(rank: SimRank, vector: Floats, _workers: int, group: int, _gamma: float, codec: str) -> Program:
    return programs.nic(rank, vector, codec, f"hierarchical:{group}")


def _one_ring(rank: SimRank, vector: Floats, _workers: int, _group: int, _gamma: float, codec: str) -> Program:
    return programs.nic(rank, vector, codec)


FLAT, TREE, MIXED, RINGS, RING = (
    "one aggregator",
    "(a) aggregators",
    "(b) rings under an aggregator",
    "(c) rings",
    "one ring",
)
ORGANISATIONS: Mapping[str, tuple[Organisation, Callable[[int, int], int]]] = {
    FLAT: (_flat, lambda _workers, _group: 1),
    TREE: (hierarchy.aggregators, lambda workers, group: workers // group + 1),
    MIXED: (hierarchy.rings_under_aggregator, lambda _workers, _group: 1),
    RINGS: (_rings, lambda _workers, _group: 0),
    RING: (_one_ring, lambda _workers, _group: 0),
}
"""The program of each, and its number of nodes besides the workers."""


def vectors_by_bytes(name: str, workers: int, group: int) -> float:
    """Return the vectors that cross the busiest links one after the other, out and back."""
    groups = workers // group
    ring = 2 * (group - 1) / group
    return {
        FLAT: 2.0 * workers,
        TREE: 2.0 * (group + groups),
        MIXED: ring + 2 * groups,
        RINGS: 2 * (workers - 1) / workers,
        RING: 2 * (workers - 1) / workers,
    }[name]


def seconds(name: str, workers: int, group: int, words: int, codec: str) -> float:
    """Return the seconds of an exchange of `words` floats in virtual time."""
    program, more = ORGANISATIONS[name]
    nodes = workers + more(workers, group)
    drawn = np.random.default_rng(1).standard_normal((nodes, words), np.float32) * np.float32(SIGMA)
    vectors, gamma = drawn.copy(), add_gamma(MODEL)

    def restore() -> None:
        vectors[:] = drawn

    return second_run(
        nodes,
        rate_bps(paper.LINK),
        lambda rank: program(rank, vectors[rank.index], workers, group, gamma, codec),
        restore,
    )


def make(context: Context) -> Item:
    sizes, group, words = (QUICK_WORKERS, QUICK_GROUP, QUICK_WORDS) if context.quick else (WORKERS, GROUP, WORDS)
    rows: list[Row] = []
    for workers in sizes:
        by_link = 32 * words / rate_bps(paper.LINK)
        base = 0.0
        for name in ORGANISATIONS:
            exact, compressed = (_measured(context, name, workers, group, words, codec) for codec in ("", CODEC))
            base = base or exact
            bytes_alone = vectors_by_bytes(name, workers, group) * by_link
            rows.append([workers, name, 1e3 * exact, exact / base, exact / bytes_alone, 1e3 * compressed])
    columns = (
        "workers | organisation | ms [.3f] | times one aggregator [.3f] | times bytes alone [.2f] | "
        f"ms with {CODEC} [.3f]"
    )
    across = {name: [float(row[2] or 0) for row in rows if row[1] == name] for name in ORGANISATIONS}
    return Item(
        "exchange time of hierarchies",
        [ValueTable(f"Exchange of {words * 4 / 1e6:.1f} MB, groups of {group}; paper: Fig. 1", columns, rows)],
        [Lines("Exchange, exact", "workers", "ms", sizes, across)],
        [
            f"Virtual time: links of {paper.LINK} and {DELAY_S * 1e6:g} us, sums at the speed of Table II, normally "
            f"distributed gradients (sigma {SIGMA}). The paper draws the organisations, and measures one group.",
            "NICs execute (c) and the single ring, and add in no time; hosts the others.",
            "With a codec, (a) and one aggregator compress gradients on their way up; (b), (c) and one ring all legs.",
        ],
        _findings(rows, sizes),
        {"workers": list(sizes), "group": group, "words": words},
    )


def _measured(context: Context, name: str, workers: int, group: int, words: int, codec: str) -> float:
    what = f"{name}, {workers} workers" + (f", {codec}" if codec else "")
    context.progress(f"fig1: {what}")
    settings = {"group": group, "words": words, "gamma": add_gamma(MODEL), "rate": paper.LINK}
    if codec:
        settings["sigma"] = SIGMA
    return context.kept.once(what, settings, partial(seconds, name, workers, group, words, codec), float)


def _findings(rows: Sequence[Row], sizes: Sequence[int]) -> list[str]:
    found = {(row[0], row[1]): (float(row[2] or 0), float(row[5] or 0)) for row in rows}
    most = sizes[-1]

    def times(above: str, below: str, which: int = 0) -> str:
        return f"{found[most, above][which] / found[most, below][which]:.1f}"

    hierarchical, flat = (found[most, name][0] for name in (RINGS, RING))
    return [
        f"The paper argues that rings at the leaves help, and rings on all levels more. With {most} workers one "
        f"aggregator takes {times(FLAT, TREE)} times as long as (a), (a) {times(TREE, MIXED)} times as long as (b), "
        f"and (b) {times(MIXED, RINGS)} times as long as (c).",
        f"With {CODEC}, (a) takes {times(TREE, MIXED, 1)} times as long as (b), and (b) {times(MIXED, RINGS, 1)} times "
        "as long as (c).",
        f"(c) takes {change([1 - hierarchical / flat])} time than one ring of all {most} workers: it moves the same "
        "bytes in fewer steps.",
    ]
