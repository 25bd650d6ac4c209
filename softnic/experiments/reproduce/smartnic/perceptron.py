"""The smart NIC's workload, twenty square layers: measured over real NICs, by the paper's model and in virtual time.

Real NICs train a smaller one: what these cores can do. Virtual time has all layers as wide as the paper's but for what
crosses links: layers and links are `SCALE` times smaller there, so that times stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import VIRTUAL_COALESCE_S, VIRTUAL_DELAY_S
from softnic.experiments.reproduce.smartnic import paper
from softnic.experiments.train import strategies_compared
from softnic.model import programs, smartnic
from softnic.model.layers import Network, mlp
from softnic.model.parameters import PAPER
from softnic.model.predict import Plan, predict, system_of
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec
from softnic.units import rate_bps

NETWORK: Network = mlp(paper.MLP.layers, paper.MLP.width)
BFP = "bfp:7"
SCALE = 64
"""A layer of 256 x 256 on a link of 40/64 Gbit/s takes as long as one of 2048 x 2048 on 40 Gbit/s."""
RATE = "1gbit"
TITLES = {
    "inc": "naive",
    "host-overlapped": "overlapped by the host",
    "nic-overlapped": "NIC",
    f"nic-overlapped+{BFP}": "NIC+BFP",
}
"""Strategies of softnic.experiments.train, in the papers' words."""


@dataclass(frozen=True)
class Size:
    """Of what is trained over real NICs."""

    workers: int = paper.MLP.nodes
    width: int = 512
    batch: int = 112
    steps: int = 6


def sizes(context: Context, batch: int) -> Size:
    """A quarter of the paper's width and of its batch."""
    return Size(2, 32, 16, 1) if context.quick else Size(batch=batch // 4)


def measured(context: Context, size: Size, strategies: Sequence[str]) -> list[strategies_compared.StrategyRow]:
    """Raises MeasurementError, ClusterError."""
    plan = strategies_compared.Plan(
        strategies=tuple(strategies),
        workers=size.workers,
        model=f"mlp:{paper.MLP.layers}x{size.width}",
        batch=size.batch,
        steps=size.steps,
        warm_up=1,
        in_flight=1,
        data=strategies_compared.SYNTHETIC,
        seed=context.settings.seed,
        link={"rate": RATE, "delay": "20us"},
    )
    return list(strategies_compared.run(plan, lambda what: context.progress(f"perceptron: {what}")).report.rows)


def breakdown(rows: Sequence[strategies_compared.StrategyRow]) -> ValueTable:
    columns = [
        ValueColumn("exchange"),
        *(ValueColumn(f"{part} ms", ".1f") for part in _PARTS),
        ValueColumn("total ms", ".1f"),
    ]
    shown: list[list[Value]] = [
        [TITLES[row.name], *(1000 * value for value in _parts(row)), 1000 * sum(_parts(row))] for row in rows
    ]
    return ValueTable("An iteration, measured over NICs; medians", columns, shown, "measured")


def chart(rows: Sequence[strategies_compared.StrategyRow]) -> Bars:
    parts = zip(*(_parts(row) for row in rows), strict=True)
    series = {name: [1000 * value for value in values] for name, values in zip(_PARTS, parts, strict=True)}
    return Bars("An iteration, measured", "ms", [TITLES[row.name] for row in rows], series, stacked=True)


_PARTS = ("forward", "backward", "exposed exchange", "update", "skew")


def _parts(row: strategies_compared.StrategyRow) -> tuple[float, ...]:
    return (row.forward_s, row.backward_s, row.exchange_s, row.update_s, row.skew_s)


def differs(size: Size) -> str:
    return (
        f"Measured: {size.workers} workers, layers {size.width} wide, batches of {size.batch}, links of {RATE}, numpy; "
        "workers and NICs share this machine's cores: what NICs do takes time from what workers compute. The paper: "
        f"{paper.MLP.nodes} nodes of 28 cores each, layers {paper.MLP.width} wide, FPGAs at 40 Gbit/s."
    )


def plan(batch: int, rate: str) -> Plan:
    return Plan(network=NETWORK, batch=batch, rate_bps=rate_bps(rate), codec=BFP)


def predicted(strategy: str, nodes: int, batch: int) -> float:
    """Seconds of an iteration by softnic.model, with the paper's parameters: `host` at 100 Gbit/s, `nic` and `nic+c` at
    40, as it had them."""
    rate = paper.MLP.host_rate if strategy == "host" else paper.MLP.nic_rate
    [row] = predict(replace(plan(batch, rate), nodes=(nodes,), strategies=(strategy,)), PAPER)
    return row.iteration.total_s


def simulated(nodes: int, batch: int, codec: str) -> float:
    """The NICs' iteration in virtual time: real bytes through the whole stack, NICs that add and encode in no time."""
    works = smartnic.works(NETWORK, batch, system_of(plan(batch, paper.MLP.nic_rate), PAPER, nodes, codec))
    words = NETWORK[0].parameters // SCALE
    rng = np.random.default_rng(nodes)
    vectors = rng.standard_normal((nodes, len(works), words), np.float32) * np.float32(0.01)

    def program(rank: SimRank) -> Program:
        return programs.overlapped(rank, works, list(vectors[rank.index]), codec)

    rate = rate_bps(paper.MLP.nic_rate) / SCALE
    cluster = SimCluster(
        ClusterSpec(nodes=nodes, rate_bps=rate, delay_s=VIRTUAL_DELAY_S, coalesce_s=VIRTUAL_COALESCE_S)
    )
    cluster.run(program)  # opens windows
    return cluster.run(program)
