"""The smart NIC's Fig. 4b: how training scales with the host's all-reduce, the NIC's, and the NIC's with BFP.

By the paper's model with the paper's parameters, and on as many nodes as the paper had also in virtual time, for
comparison with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, bars, number, percent
from benchmarks.papers.smartnic import paper, perceptron
from benchmarks.papers.smartnic.perceptron import BFP
from softnic.measure.plot import Bars, Lines
from softnic.model.parameters import PAPER

NODES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
SIMULATED = (3, 4, 5, 6)
"""Numbers of nodes of the paper's prototype."""
QUICK_SIMULATED = (2,)
BASE = "overlapped by the host"
VARIANTS = {BASE: "host", "NIC": "nic", "NIC+BFP": "nic+c"}
"""The strategies of softnic.model."""
PAYLOAD = 1448 / 1514
"""Bytes of a full frame that are payload, of all its bytes."""
CODECS = {"nic": "", "nic+c": BFP}


def make(context: Context) -> Item:
    points = scaling(context)
    gains = _gains(points)
    columns = "batch | variant | nodes | by formula [.2f] | virtual time [.2f] | formula's time off by (%) [+.1f]"
    gain_columns = "batch | nodes | variant | paper [.1f] | by formula [.2f]"
    return Item(
        "scaling with all-reduce by the host, by NICs, by NICs with BFP",
        [
            ValueTable("Throughput against that of the baseline", gain_columns, gains, "gains"),
            ValueTable("Throughput, times one node's", columns, points, "scaling"),
        ],
        [*(_chart(points, batch) for batch in paper.FIG_4_BATCHES), _gain_chart(gains)],
        [
            "The paper's formulas with its parameters. softnic.model infers those that it does not give, P_Worker and "
            f"how fast the baseline's hosts sum, from Fig. 4a, so on 6 nodes at batch {paper.FIG_4_BATCH} it is bound "
            "to come near.",
            f"Virtual time: layers and links {perceptron.SCALE} times smaller, NICs that add and encode in no time.",
        ],
        _findings(points, gains),
        {"nodes": list(NODES)},
    )


def scaling(context: Context) -> list[Row]:
    """Return batch, variant, nodes, throughput in multiples of one node's by formula and in virtual time, and the
    error of the formula's time in percent of virtual time."""
    rows: list[Row] = []
    virtual = QUICK_SIMULATED if context.quick else SIMULATED
    for batch in paper.FIG_4_BATCHES:
        for variant, strategy in VARIANTS.items():
            alone = perceptron.predicted(strategy, 1, batch)
            for nodes in NODES:
                predicted = nodes * alone / perceptron.predicted(strategy, nodes, batch)
                simulated = error = None
                if nodes in virtual and strategy in CODECS:
                    what = f"{variant}, {nodes} nodes, batch {batch}"
                    context.progress(f"fig4b: {what}, in virtual time")
                    measure = partial(perceptron.simulated, nodes, batch, CODECS[strategy])
                    taken = context.kept.once(what, {"scale": perceptron.SCALE}, measure, float)
                    simulated = nodes * alone / taken
                    error = 100 * (simulated / predicted - 1)
                rows.append([batch, variant, nodes, predicted, simulated, error])
    return rows


def _gains(points: Sequence[Row]) -> list[Row]:
    """Throughput against the baseline's: batch, nodes, variant, the paper's and ours."""
    found = {tuple(point[:3]): number(point[3]) for point in points}
    return [
        [batch, nodes, variant, theirs, found[batch, variant, nodes] / found[batch, BASE, nodes]]
        for nodes, published in ((6, paper.FIG_4_GAIN_AT_6), (32, paper.FIG_4_GAIN_AT_32))
        for batch, gains in published.items()
        for variant, theirs in gains.items()
    ]


def _chart(points: Sequence[Row], batch: int) -> Lines:
    series: dict[str, list[float | None]] = {}
    for variant, strategy in VARIANTS.items():
        own = [point for point in points if point[:2] == [batch, variant]]
        series[variant] = [number(point[3]) for point in own]
        if strategy in CODECS:
            series[f"{variant}, virtual time"] = [None if point[4] is None else number(point[4]) for point in own]
    series["ideal"] = list(NODES)
    return Lines(f"Throughput, batch {batch}", "nodes", "times one node", NODES, series, frozenset({"ideal"}))


def _gain_chart(gains: Sequence[Row]) -> Bars:
    groups = [f"{nodes} nodes, {batch}: {variant}" for batch, nodes, variant, *_ in gains]
    return bars("Throughput beside the paper's", "times the baseline", groups, gains, {"paper": 3, "by formula": 4})


def _errors_with_headers(points: Sequence[Row]) -> list[float]:
    """Errors of the formula of NICs without BFP, if alpha counts the headers of frames."""
    framed = replace(PAPER, alpha=PAYLOAD)
    errors = []
    for batch, variant, nodes, *_, simulated, _error in points:
        if variant == "NIC" and simulated is not None:
            count, size = int(number(nodes)), int(number(batch))
            taken = count * perceptron.predicted("nic", 1, size) / number(simulated)
            errors.append(abs(perceptron.predicted("nic", count, size, framed) / taken - 1))
    return errors


def _findings(points: Sequence[Row], gains: Sequence[Row]) -> list[str]:
    at_32 = {row[2]: row for row in gains if row[:2] == [paper.FIG_4_BATCH, 32]}
    errors = [abs(number(point[5])) / 100 for point in points if point[5] is not None]
    return [
        f"The formulas are off by {percent(max(errors))} at most from virtual time; the paper found "
        f"{percent(paper.FIG_4_MODEL_ERROR, 0)} between them and its prototype.",
        f"With the share of a frame that is payload, {PAYLOAD:.3f}, for the paper's alpha of 1, the formulas of NICs "
        f"without BFP are off by {percent(max(_errors_with_headers(points)))} at most: the headers are what is missing "
        "where links decide.",
        f"On 32 nodes the formulas give NICs {at_32['NIC'][4]:.2f} times the baseline's throughput, and with BFP "
        f"{at_32['NIC+BFP'][4]:.2f}; the paper's {at_32['NIC'][3]} and {at_32['NIC+BFP'][3]} need a baseline that "
        "loses more with every node than bandwidth, sums and latency take from it.",
        "BFP16 has 17 bytes for a block of 16 floats, a ratio of 3.76; the paper says 3.8.",
    ]
