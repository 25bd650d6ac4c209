"""The smart NIC's Fig. 2b: how training overlapped by the hosts scales, by all-reduce scheme, at both batches.

By cost models under the trace of Fig. 3b, with the paper's 100 Gbit/s and what softnic.model infers of its hosts. The
default is what the paper cites for it (Thakur, Rabenseifner and Gropp, 2005, as in MPICH): recursive doubling for short
vectors, Rabenseifner's algorithm for long ones, after folding the ranks beyond a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, percent, span
from benchmarks.papers.smartnic import paper, perceptron
from softnic.measure.plot import Lines
from softnic.model import costs, smartnic
from softnic.model.costs import Costs, ExchangeTime
from softnic.model.layers import BYTES
from softnic.model.parameters import PAPER
from softnic.model.predict import costs_of, system_of

NODES = (1, 2, 4, 6, 8, 12, 16, 24, 32)
SHOWN = (6, 12, 32)
LATENCY_S = 10e-6
"""Latency of a message between hosts. Not in the paper."""
SHORT_BYTES = 2048
"""Vectors up to this size are summed by recursive doubling."""
RING, RABENSEIFNER, DEFAULT, BINOMIAL = "ring", "Rabenseifner", "default", "binomial gather/scatter"


def mpi_default(p: int, n: float, given: Costs) -> ExchangeTime:
    """Return the time of MPI's default all-reduce: of a power of two of ranks, the others fold theirs in before and get
    the sum afterwards."""
    power = 1 << (p.bit_length() - 1)
    if n <= SHORT_BYTES:
        rounds = int(math.log2(power))
        among = ExchangeTime(rounds * given.alpha, rounds * n * given.beta, rounds * n * given.gamma)
    else:
        among = costs.rabenseifner(power, n, given)
    fold = ExchangeTime(2 * given.alpha, 2 * n * given.beta, n * given.gamma) if p > power else ExchangeTime()
    return among + fold


SCHEMES: Mapping[str, Callable[[int, float, Costs], ExchangeTime]] = {
    RING: costs.ring,
    RABENSEIFNER: costs.rabenseifner,
    DEFAULT: mpi_default,
    BINOMIAL: costs.binomial_gather_scatter,
}


def throughput(scheme: str, nodes: int, batch: int = paper.FIG_2_BATCH) -> float:
    """Return the throughput of the overlapped implementation by formula, in multiples of one node's."""
    alone = smartnic.sequential(_works(scheme, 1, batch)).total_s
    return nodes * alone / smartnic.overlapped(_works(scheme, nodes, batch)).total_s


def _works(scheme: str, nodes: int, batch: int) -> list[smartnic.LayerTimes]:
    """With the sums that softnic.model infers for the paper's hosts, and a share of their cores for communication."""
    plan = perceptron.plan(batch, paper.MLP.host_rate)
    layers = smartnic.layer_times(perceptron.NETWORK, batch, system_of(plan, PAPER, nodes))
    if nodes == 1:
        return layers
    n = BYTES * perceptron.NETWORK[0].parameters
    exchange_s = SCHEMES[scheme](nodes, n, replace(costs_of(plan, PAPER), alpha=LATENCY_S)).total_s
    slower = 1 - plan.host_share
    return [replace(work, backward_s=work.backward_s / slower, exchange_s=exchange_s) for work in layers]


def make(_context: Context) -> Item:
    rows: list[Row] = []
    charts = []
    for batch in paper.FIG_4_BATCHES:
        series = {scheme: [throughput(scheme, nodes, batch) for nodes in NODES] for scheme in SCHEMES}
        rows += [
            [batch, nodes, *(found[place] for found in series.values())]
            for place, nodes in enumerate(NODES)
            if nodes in SHOWN
        ]
        ideal = frozenset({"ideal"})
        charts.append(Lines(f"Batch {batch}", "nodes", "times one node", NODES, {**series, "ideal": NODES}, ideal))
    columns = " | ".join(("batch | nodes", *(f"{scheme} [.2f]" for scheme in SCHEMES)))
    title = f"Throughput by formula, times one node's, {paper.MLP.host_rate}; paper: Fig. 2b"
    return Item(
        "scaling of the hosts' all-reduce by scheme",
        [ValueTable(title, columns, rows)],
        charts,
        [
            f"By formula, with {LATENCY_S * 1e6:g} us a message and what softnic.model infers of the paper's hosts "
            f"(neither is in the paper). The paper measured batch {paper.FIG_2_BATCH}, and gives the outcome in words "
            "and a chart.",
            "The default of the paper's MPI is not known beyond its reference; here it is MPICH's.",
        ],
        _findings(),
        {"latency_s": LATENCY_S},
    )


def _findings() -> list[str]:
    good = (RING, RABENSEIFNER, DEFAULT)
    at_12, at_32 = ({scheme: throughput(scheme, nodes) / nodes for scheme in SCHEMES} for nodes in (12, 32))
    of_12, of_32 = (span(found[scheme] for scheme in good) for found in (at_12, at_32))
    small = {scheme: throughput(scheme, 32, paper.FIG_4_BATCH) / 32 for scheme in SCHEMES}
    return [
        f"Batch {paper.FIG_2_BATCH}: ring, Rabenseifner and the default reach {of_12} of ideal on 12 nodes, binomial "
        f"gather/scatter {percent(at_12[BINOMIAL])}; on 32 nodes {of_32} and {percent(at_32[BINOMIAL])}. The paper "
        f"finds the same order, and a gap to ideal that grows beyond {paper.FIG_2_SCALES_TO} nodes, which the formulas "
        "lack.",
        f"Batch {paper.FIG_4_BATCH}, 32 nodes: {percent(small[RING])} (ring), {percent(small[DEFAULT])} (default) and "
        f"{percent(small[BINOMIAL])} (binomial) of ideal.",
        "On 6, 12 and 24 nodes the default folds the ranks beyond a power of two, which moves two vectors more; by the "
        "paper's text its MPI's default is as good as a ring.",
    ]
