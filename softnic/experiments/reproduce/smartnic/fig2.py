"""The smart NIC's Fig. 2: (a) an iteration with and without overlap of the all-reduce, (b) how the latter scales.

(a) is measured over real NICs. (b), which the paper measured, is by cost models of three all-reduce schemes under the
trace of Fig. 3b, with the paper's 100 Gbit/s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable, change, percent
from softnic.experiments.reproduce.smartnic import paper, perceptron
from softnic.experiments.train.strategies_compared import StrategyRow
from softnic.model import costs, smartnic
from softnic.model.costs import Costs, ExchangeTime
from softnic.model.layers import BYTES
from softnic.model.parameters import PAPER
from softnic.model.predict import costs_of, system_of

NODES = (1, 2, 4, 6, 8, 12, 16, 24, 32)
SCHEMES: dict[str, Callable[[int, float, Costs], ExchangeTime]] = {
    "ring": costs.ring,
    "Rabenseifner": costs.rabenseifner,
    "binomial gather/scatter": costs.binomial_gather_scatter,
}
LATENCY_S = 10e-6
"""Latency of a message between hosts. Not in the paper."""


def throughput(scheme: str, nodes: int) -> float:
    """Return the throughput of the overlapped implementation by formula, in multiples of one node's."""
    alone = smartnic.sequential(_works(scheme, 1)).total_s
    return nodes * alone / smartnic.overlapped(_works(scheme, nodes)).total_s


def _works(scheme: str, nodes: int) -> list[smartnic.LayerTimes]:
    """With the sums that softnic.model infers for the paper's hosts, and a share of their cores for communication."""
    plan = perceptron.plan(paper.FIG_2_BATCH, paper.MLP.host_rate)
    layers = smartnic.layer_times(perceptron.NETWORK, plan.batch, system_of(plan, PAPER, nodes))
    if nodes == 1:
        return layers
    n = BYTES * perceptron.NETWORK[0].parameters
    exchange_s = SCHEMES[scheme](nodes, n, replace(costs_of(plan, PAPER), alpha=LATENCY_S)).total_s
    slower = 1 - plan.host_share
    return [replace(work, backward_s=work.backward_s / slower, exchange_s=exchange_s) for work in layers]


def make(context: Context) -> Item:
    measured = perceptron.measured(context, paper.FIG_2_BATCH, ("inc", "host-overlapped"))
    naive, overlapped = rows = measured.report.rows
    series = {scheme: [throughput(scheme, nodes) for nodes in NODES] for scheme in SCHEMES} | {"ideal": list(NODES)}
    scaling = ValueTable(
        f"Throughput by formula, batch {paper.FIG_2_BATCH}, {paper.MLP.host_rate}",
        " | ".join(("nodes", *(f"{scheme} [.2f]" for scheme in SCHEMES), "ideal")),
        list(zip(NODES, *series.values(), strict=True)),
        "scaling",
    )
    return Item(
        "the host's all-reduce, naive and overlapped",
        [_comparison(naive, overlapped), perceptron.breakdown(rows), scaling],
        [
            perceptron.chart(rows),
            Lines("Overlapped, by formula", "nodes", "times one node", NODES, series, frozenset({"ideal"})),
        ],
        [
            perceptron.differs(measured.plan),
            f"Scaling is by formula, with {LATENCY_S * 1e6:g} us a message and what softnic.model infers of the "
            "paper's hosts (neither is in the paper). The paper measured it, and gives the outcome in words and by "
            "a chart.",
        ],
        _findings(naive, overlapped),
        perceptron.settings(measured.plan),
    )


def _comparison(naive: StrategyRow, overlapped: StrategyRow) -> ValueTable:
    exposed, share = "exposed all-reduce, naive / overlapped", "exposed all-reduce, share of the naive iteration (%)"
    longer = 100 * (overlapped.backward_s / naive.backward_s - 1)
    rows: list[Row] = [
        [share, 100 * paper.FIG_2_EXPOSED_SHARE, 100 * naive.exchange_s / naive.iteration_s],
        [exposed, paper.FIG_2_EXPOSED_FACTOR, naive.exchange_s / overlapped.exchange_s],
        ["iteration, naive / overlapped", paper.FIG_2_SPEED_UP, naive.iteration_s / overlapped.iteration_s],
        ["backward pass longer by (%)", 100 * paper.FIG_2_SLOWER_BACKWARD, longer],
    ]
    return ValueTable("Fig. 2a", "what | paper [.2f] | here [.2f]", rows)


def _findings(naive: StrategyRow, overlapped: StrategyRow) -> list[str]:
    last = NODES[-1]
    return [
        f"Naive, an iteration takes {naive.iteration_s / overlapped.iteration_s:.2f} times as long as overlapped; the "
        f"paper has {paper.FIG_2_SPEED_UP}. Overlapped, a backward pass takes "
        f"{change([1 - overlapped.backward_s / naive.backward_s], 0)} time here, where NICs and workers share the "
        f"cores, and {percent(paper.FIG_2_SLOWER_BACKWARD, 0)} more in the paper.",
        f"By formula, on {last} nodes ring and Rabenseifner have {throughput('ring', last):.1f} and "
        f"{throughput('Rabenseifner', last):.1f} times the throughput of one node, binomial gather/scatter "
        f"{throughput('binomial gather/scatter', last):.1f}. The paper finds the same order; its gap to ideal grows "
        f"with the nodes (good up to {paper.FIG_2_SCALES_TO}), which bandwidth, latency and sums do not explain.",
    ]
