"""INCEPTIONN's Fig. 15: exchange time with the number of workers, worker-aggregator against ring, uncompressed.

In virtual time, the whole stack on links of the paper's rate; and by the cost model of section VIII-D. Besides the
paper's two exchanges the ring that NICs execute, and more workers than the paper had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import paper
from benchmarks.papers.item import Item, ValueTable
from benchmarks.papers.virtual import DELAY_S, add_gamma, second_run
from softnic.measure.plot import Lines
from softnic.model import costs, programs
from softnic.model.costs import Costs
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.units import rate_bps

NODES = (4, 5, 6, 7, 8, 16, 32)
QUICK_NODES = (4, 5)
SAMPLE_WORDS = 1 << 19
"""Largest exchange, 2 MB; times of larger models are scaled up from it."""
QUICK_WORDS = 1 << 14
WA, INC, NIC = "WA", "INC", "INC by NICs"
FORMULAS = {WA: costs.worker_aggregator, INC: costs.ring}

ByKind = Mapping[str, Sequence[float]]
"""Seconds by the kind of exchange, then by the number of workers."""


def virtual(kind: str, workers: int, words: int, rate: float, gamma: float) -> float:
    """Seconds of an exchange of `words` floats in virtual time."""
    nodes = workers + (kind == WA)
    vectors = np.random.default_rng(1).standard_normal((nodes, words), np.float32)

    def program(rank: SimRank) -> Program:
        own = vectors[rank.index]
        if kind == WA:
            return programs.worker_aggregator(rank, own, gamma)
        return programs.ring(rank, own, gamma) if kind == INC else programs.nic(rank, own)

    return second_run(nodes, rate, program)


def make(context: Context) -> Item:
    nodes = QUICK_NODES if context.quick else NODES
    most = QUICK_WORDS if context.quick else SAMPLE_WORDS
    rate = rate_bps(paper.LINK)
    tables, findings = [], []
    charts: list[Lines] = []
    for model in context.models:
        nbytes, gamma = paper.MODEL_MB[model] * 2**20, add_gamma(model)
        words = min(most, round(nbytes / 4)) // 512 * 512
        seconds: dict[str, list[float]] = {kind: [] for kind in (WA, INC, NIC)}
        predicted: dict[str, list[float]] = {kind: [] for kind in FORMULAS}
        for workers in nodes:
            for kind, found in seconds.items():
                what = f"{paper.TITLES[model]}, {kind}, {workers} workers"
                context.progress(f"fig15: {what}")
                measure = partial(virtual, kind, workers, words, rate, gamma)
                taken = context.kept.once(what, {"words": words, "rate": rate, "gamma": gamma}, measure, float)
                found.append(taken * nbytes / (4 * words))
            for kind, found in predicted.items():
                found.append(FORMULAS[kind](workers, nbytes, Costs(DELAY_S, 8 / rate, gamma)).total_s)
        relative = {kind: [value / seconds[WA][0] for value in found] for kind, found in seconds.items()}
        formula = {f"{kind} by formula": [each / predicted[WA][0] for each in of] for kind, of in predicted.items()}
        tables.append(_table(model, nodes, seconds, relative | formula))
        if not charts:  # The models' curves coincide within the width of a line.
            series = relative | formula
            charts.append(Lines(paper.TITLES[model], "workers", "times WA of 4", nodes, series, frozenset(formula)))
        findings.append(_finding(model, nodes, seconds))
    differs = [
        f"Virtual time: links of {paper.LINK} and {DELAY_S * 1e6:g} us, sums at the speed of Table II (none "
        "where NICs add), NICs and hosts that take no time otherwise. At most "
        f"{most * 4 / 1e6:.3g} MB were exchanged, and the time scaled up.",
        "WA's aggregator sends weights to one worker after the other; the formula has a tree (section VIII-D). The "
        f"paper measured {paper.FIG_15_NODES[0]} to {paper.FIG_15_NODES[-1]} nodes, and gives the outcome in words and "
        "a chart.",
    ]
    settings = {"models": list(context.models), "nodes": list(nodes)}
    return Item("exchange time with more workers", tables, charts, differs, findings, settings)


def _table(model: str, nodes: Sequence[int], seconds: ByKind, relative: ByKind) -> ValueTable:
    columns = ["workers", *(f"{kind} s [.4f]" for kind in seconds), *(f"{kind} [.2f]" for kind in relative)]
    rows = list(zip(nodes, *seconds.values(), *relative.values(), strict=True))
    title = f"{paper.TITLES[model]}: seconds, and normalised to WA of {nodes[0]} workers; paper: Fig. 15"
    return ValueTable(title, " | ".join(columns), rows, model)


def _finding(model: str, nodes: Sequence[int], seconds: ByKind) -> str:
    grows = {kind: found[-1] / found[0] for kind, found in seconds.items()}
    linear, flat = nodes[-1] / nodes[0], (1 - 1 / nodes[-1]) / (1 - 1 / nodes[0])
    return (
        f"{paper.TITLES[model]}, from {nodes[0]} to {nodes[-1]} workers: WA takes {grows[WA]:.2f} times as long "
        f"(linear would be {linear:.2f}), INC {grows[INC]:.2f} and INC by NICs {grows[NIC]:.2f} (bytes alone "
        f"{flat:.2f}). The paper: almost linear, and almost constant."
    )
