"""INCEPTIONN's Fig. 15: exchange time with the number of workers, worker-aggregator against ring, uncompressed.

In virtual time, the whole stack on links of the paper's rate; and by the cost model of section VIII-D. Besides the
paper's two exchanges the ring that NICs execute, and more workers than it had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import VIRTUAL_COALESCE_S, VIRTUAL_DELAY_S, add_gamma
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.report import Item
from softnic.model import costs, programs
from softnic.model.costs import Costs
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec
from softnic.units import rate_bps

NODES = (4, 5, 6, 7, 8, 16, 32)
QUICK_NODES = (4, 5)
SAMPLE_WORDS = 1 << 19
"""Of a model, at most: 2 MB, which stand for what is larger."""
QUICK_WORDS = 1 << 14
WA, INC, NIC = "WA", "INC", "INC by NICs"


def virtual(kind: str, workers: int, words: int, rate: float, gamma: float) -> float:
    """Seconds of an exchange of so many floats, by the second of two, when windows are open."""
    nodes = workers + (kind == WA)
    vectors = np.random.default_rng(1).standard_normal((nodes, words), np.float32)

    def program(rank: SimRank) -> Program:
        own = vectors[rank.index]
        if kind == WA:
            return programs.worker_aggregator(rank, own, gamma)
        return programs.ring(rank, own, gamma) if kind == INC else programs.nic(rank, own)

    cluster = SimCluster(
        ClusterSpec(nodes=nodes, rate_bps=rate, delay_s=VIRTUAL_DELAY_S, coalesce_s=VIRTUAL_COALESCE_S)
    )
    cluster.run(program)
    return cluster.run(program)


def formula(kind: str, workers: int, nbytes: float, given: Costs) -> float:
    if kind == WA:
        return costs.worker_aggregator(workers, nbytes, given).total_s
    return costs.ring(workers, nbytes, given).total_s


def make(context: Context) -> Item:
    nodes = QUICK_NODES if context.quick else NODES
    most = QUICK_WORDS if context.quick else SAMPLE_WORDS
    rate = rate_bps(paper.LINK)
    tables, charts, findings = [], [], []
    for model in context.models:
        nbytes = paper.MODEL_MB[model] * 2**20
        words = min(most, round(nbytes / 4)) // 512 * 512
        gamma = add_gamma(model)
        seconds: dict[str, list[float]] = {kind: [] for kind in (WA, INC, NIC)}
        predicted: dict[str, list[float]] = {WA: [], INC: []}
        for workers in nodes:
            for kind, found in seconds.items():
                context.progress(f"fig15: {paper.TITLES[model]}, {kind}, {workers} workers")
                found.append(virtual(kind, workers, words, rate, gamma) * nbytes / (4 * words))
            for kind, found in predicted.items():
                found.append(formula(kind, workers, nbytes, Costs(VIRTUAL_DELAY_S, 8 / rate, gamma)))
        tables.append(_table(model, nodes, seconds, predicted))
        charts.append(_chart(model, nodes, seconds, predicted))
        findings.append(_finding(model, nodes, seconds))
    differs = [
        f"Virtual time: links of {paper.LINK} and {VIRTUAL_DELAY_S * 1e6:g} us, sums at the speed of Table II (none "
        "where NICs add), NICs and hosts that take no time otherwise. At most "
        f"{most * 4 / 1e6:.3g} MB were exchanged, and the time scaled up.",
        "WA's aggregator sends weights to one worker after the other; the formula has a tree (section VIII-D). The "
        f"paper measured {paper.FIG_15_NODES[0]} to {paper.FIG_15_NODES[-1]} nodes, and tells the outcome in words and "
        "a chart.",
    ]
    settings = {"models": list(context.models), "nodes": list(nodes), "quick": context.quick}
    return Item("inceptionn", "fig15", "exchange time with more workers", tables, charts, differs, findings, settings)


def _table(
    model: str, nodes: Sequence[int], seconds: Mapping[str, list[float]], predicted: Mapping[str, list[float]]
) -> ValueTable:
    rows: list[list[Value]] = []
    for index, workers in enumerate(nodes):
        own = [values[index] for values in seconds.values()]
        relative = [value / seconds[WA][0] for value in own]
        theirs = [values[index] / predicted[WA][0] for values in predicted.values()]
        rows.append([workers, *own, *relative, *theirs])
    columns = [
        ValueColumn("workers"),
        *(ValueColumn(f"{kind} s", ".4f") for kind in seconds),
        *(ValueColumn(kind, ".2f") for kind in seconds),
        *(ValueColumn(f"{kind} by formula", ".2f") for kind in predicted),
    ]
    title = f"{paper.TITLES[model]}: seconds, and normalised to WA of {nodes[0]} workers; paper: Fig. 15"
    return ValueTable(title, columns, rows, model)


def _chart(
    model: str, nodes: Sequence[int], seconds: Mapping[str, list[float]], predicted: Mapping[str, list[float]]
) -> Lines:
    base = seconds[WA][0]
    series: dict[str, list[float | None]] = {kind: [value / base for value in found] for kind, found in seconds.items()}
    dashed = {f"{kind} by formula" for kind in predicted}
    series |= {f"{kind} by formula": [each / predicted[WA][0] for each in found] for kind, found in predicted.items()}
    return Lines(paper.TITLES[model], "workers", "times WA of 4", nodes, series, frozenset(dashed))


def _finding(model: str, nodes: Sequence[int], seconds: Mapping[str, list[float]]) -> str:
    grows = {kind: found[-1] / found[0] for kind, found in seconds.items()}
    linear, flat = nodes[-1] / nodes[0], (1 - 1 / nodes[-1]) / (1 - 1 / nodes[0])
    return (
        f"{paper.TITLES[model]}, from {nodes[0]} to {nodes[-1]} workers: WA takes {grows[WA]:.2f} times as long "
        f"(linear would be {linear:.2f}), INC {grows[INC]:.2f} and INC by NICs {grows[NIC]:.2f} (bytes alone "
        f"{flat:.2f}). The paper: almost linear, and almost constant."
    )
