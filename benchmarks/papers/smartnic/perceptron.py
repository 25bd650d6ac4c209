"""The smart NIC's workload, twenty square layers: measured over real NICs, by the paper's model and in virtual time.

Real NICs train a smaller one, sized for this machine's cores. Virtual time has all layers as wide as the paper's except
for what crosses links: layers and links are `SCALE` times smaller there, so that times stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.item import ValueTable
from benchmarks.papers.over_nics import LINK, RATE
from benchmarks.papers.smartnic import paper
from benchmarks.papers.virtual import second_run
from softnic.experiments.train import strategies_compared as training
from softnic.measure.plot import Bars
from softnic.model import programs, smartnic
from softnic.model.layers import Network, mlp
from softnic.model.parameters import PAPER, Machine
from softnic.model.predict import TrainingSetup, predict, system_of
from softnic.sim.processes import Program
from softnic.sim.rank import SimRank
from softnic.units import rate_bps

NETWORK: Network = mlp(paper.MLP.layers, paper.MLP.width)
BFP = "bfp:7"
SCALE = 64
"""A layer of 256 x 256 on a link of 40/64 Gbit/s takes as long as one of 2048 x 2048 on 40 Gbit/s."""
TITLES = {
    "inc": "naive",
    "host-overlapped": "overlapped by the host",
    "nic-overlapped": "NIC",
    f"nic-overlapped+{BFP}": "NIC+BFP",
}
"""The paper's names of strategies of softnic.experiments.train."""
_PARTS = ("forward", "backward", "exposed exchange", "update", "skew")


@dataclass(frozen=True)
class MeasuredStrategies:
    """A training over NICs by several strategies."""

    plan: training.StrategiesPlan
    rows: Sequence[training.StrategyRow]
    """One for each strategy. What compares a strategy with the first one is not filled in."""


def measured(context: Context, batch: int, strategies: Sequence[str]) -> MeasuredStrategies:
    """Train by several strategies over NICs, at a quarter of the paper's width and batch.

    Each strategy is a unit of the item's file. Raises MeasurementError, ClusterError.
    """
    width = 32 if context.quick else 512
    plan = training.StrategiesPlan(
        strategies=tuple(strategies),
        workers=2 if context.quick else paper.MLP.nodes,
        model=f"mlp:{paper.MLP.layers}x{width}",
        batch=16 if context.quick else batch // 4,
        steps=1 if context.quick else 6,
        warm_up=1,
        in_flight=1,
        data=training.SYNTHETIC,
        seed=context.settings.seed,
        link=LINK,
    )
    rows = []
    for strategy in strategies:
        own = replace(plan, strategies=(strategy,))
        fixed = {name: value for name, value in asdict(own).items() if name not in ("data", "strategies")}

        def measure(own: training.StrategiesPlan = own) -> training.StrategyRow:
            [row] = training.run(own, lambda what: context.progress(f"perceptron: {what}")).report.rows
            return row

        rows.append(context.kept.once(f"{TITLES[strategy]}, measured", fixed, measure, training.StrategyRow))
    return MeasuredStrategies(plan, rows)


def settings(plan: training.StrategiesPlan) -> dict[str, int]:
    """Return the settings of an item that is measured by this plan."""
    return {"workers": plan.workers, "width": int(plan.model.partition("x")[2]), "batch": plan.batch}


def _parts_ms(row: training.StrategyRow) -> list[float]:
    parts = (row.forward_s, row.backward_s, row.exchange_s, row.update_s, row.skew_s)
    return [1000 * seconds for seconds in parts]


def breakdown(rows: Sequence[training.StrategyRow]) -> ValueTable:
    columns = " | ".join(("exchange", *(f"{part} ms [.1f]" for part in (*_PARTS, "total"))))
    shown = [[TITLES[row.name], *_parts_ms(row), sum(_parts_ms(row))] for row in rows]
    return ValueTable("An iteration, measured over NICs; medians", columns, shown, "measured")


def chart(rows: Sequence[training.StrategyRow]) -> Bars:
    series = dict(zip(_PARTS, zip(*map(_parts_ms, rows), strict=True), strict=True))
    return Bars("An iteration, measured", "ms", [TITLES[row.name] for row in rows], series, stacked=True)


def differs(plan: training.StrategiesPlan) -> str:
    width = settings(plan)["width"]
    return (
        f"Measured: {plan.workers} workers, layers {width} wide, batches of {plan.batch}, links of {RATE}, numpy; "
        "workers and NICs share this machine's cores, so NICs take CPU time from the workers. The paper: "
        f"{paper.MLP.nodes} nodes of 28 cores each, layers {paper.MLP.width} wide, FPGAs at 40 Gbit/s."
    )


def plan(batch: int, rate: str) -> TrainingSetup:
    return TrainingSetup(network=NETWORK, batch=batch, rate_bps=rate_bps(rate), codec=BFP)


def predicted(strategy: str, nodes: int, batch: int, machine: Machine = PAPER) -> float:
    """Return the seconds of an iteration by softnic.model with the paper's parameters, or others, and its rates.

    `strategy` is `host`, at 100 Gbit/s, or `nic` or `nic+c`, at 40.
    """
    rate = paper.MLP.host_rate if strategy == "host" else paper.MLP.nic_rate
    [row] = predict(replace(plan(batch, rate), nodes=(nodes,), strategies=(strategy,)), machine)
    return row.iteration.total_s


def simulated(nodes: int, batch: int, codec: str) -> float:
    """Return the seconds of the NICs' iteration in virtual time."""
    layer_times = smartnic.layer_times(NETWORK, batch, system_of(plan(batch, paper.MLP.nic_rate), PAPER, nodes, codec))
    words = NETWORK[0].parameters // SCALE
    rng = np.random.default_rng(nodes)
    vectors = rng.standard_normal((nodes, len(layer_times), words), np.float32) * np.float32(0.01)

    def program(rank: SimRank) -> Program:
        return programs.overlapped(rank, layer_times, list(vectors[rank.index]), codec)

    return second_run(nodes, rate_bps(paper.MLP.nic_rate) / SCALE, program)
