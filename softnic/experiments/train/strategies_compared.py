"""The same training through several exchange strategies, over real processes and NICs on emulated links.

Every run has the same model, data, seed and links; ranks tell what they did when, and an iteration is broken down as
the papers do it (INCEPTIONN's Table II, the smart NIC's Fig. 2a and 4a): forward, backward, exposed exchange, sum (of
an aggregator), update. See softnic/experiments/timeline.py for what counts as which.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from softnic.cluster import Cluster
from softnic.experiments import measure, numpy_models
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.data import DataError, DataSet, load, synthetic
from softnic.experiments.report import Column, MeasurementError, Progress, Report, figure, links
from softnic.experiments.timeline import Breakdown, Iteration, breakdowns
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.training_ranks import StrategyName

RANK = "softnic.experiments.train"
STRATEGIES = (
    *("wa", "wa+bounded:10", "inc", "inc+bounded:10", "hierarchical", "nic", "nic+bounded:10"),
    *("host-overlapped", "nic-overlapped", "nic-overlapped+bounded:10"),
)
LINK = {"rate": "1gbit", "delay": "50us"}
SYNTHETIC = Path("synthetic")
ONE_CORE = {"OMP_NUM_THREADS": "1", "SOFTNIC_THREADS": "1"}
"""What ranks find in their environment where it says nothing else: they share the cores with others and with NICs."""
_LIMIT_S = 600.0
"""How long an iteration may take."""


@dataclass(frozen=True)
class Plan:
    strategies: tuple[str, ...] = STRATEGIES
    """The others are compared with the first one."""
    workers: int = 4
    """Ranks that train; an aggregator comes on top of them."""
    model: str = "hdc"
    batch: int = 25
    """Samples a rank and iteration."""
    steps: int = 20
    """Iterations that are measured."""
    warm_up: int = 2
    """Iterations before those."""
    in_flight: int = 0
    """Layers that overlapped strategies exchange at a time; 0: all."""
    data: Path | None = None
    """A directory of IDX files, SYNTHETIC, or None: scikit-learn's digits."""
    seed: int = 7
    link: Mapping[str, str] = field(default_factory=lambda: dict(LINK))


@dataclass(frozen=True)
class StrategyRow:
    """One strategy's iteration. Seconds are means over the ranks, and of these medians over iterations."""

    name: str
    iteration_s: float
    forward_s: float
    backward_s: float
    exchange_s: float
    """Exposed."""
    sum_s: float
    """Of the aggregator; where there is none, sums are part of the exchange."""
    update_s: float
    skew_s: float
    """Waiting for ranks that were not ready for the exchange."""
    exchange_change: float
    """Of the exposed exchange, against the first strategy's: -0.5 is half of it."""
    speed_up: float
    """The first strategy's iteration in this one's."""
    daemons_cpu_s: float
    """Of all NICs, an iteration."""
    ranks_cpu_s: float
    first_loss: float
    loss: float
    """Mean over the ranks, of the first and the last iteration."""
    accuracy: float
    """On the test set, at the end."""
    weights_off: float
    """The distance of the final weights from the first strategy's, relative to their length."""
    sent_bytes: float = 0.0
    """Payload that all NICs together sent, an iteration, by their counters."""
    weights_bytes: float = 0.0
    """Of them, weights from an aggregator, as they travel to each worker."""


@dataclass(frozen=True)
class Measured:
    """What a run told, all ranks in order."""

    iterations: list[list[Iteration]]
    """Of those that count, each as every rank saw it."""
    losses: list[float]
    """Mean over the workers, every iteration."""
    accuracy: float
    daemons_cpu_s: float
    ranks_cpu_s: float
    weights: Path
    sent_bytes: float
    weights_bytes: float

    @property
    def parts(self) -> list[Breakdown]:
        """Means over the ranks, an iteration each."""
        return [Breakdown.mean(breakdowns(iteration)) for iteration in self.iterations]

    @property
    def usual(self) -> list[Iteration]:
        """The iteration of median length, as every rank saw it."""
        lengths = [part.total for part in self.parts]
        return self.iterations[sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]]


@dataclass(frozen=True)
class StrategyComparison:
    report: Report[StrategyRow]
    traces: Mapping[str, list[Iteration]]
    """The usual iteration of each strategy, as every rank saw it, an aggregator last."""

    def as_json(self) -> dict[str, Any]:
        traces = {name: [rank.as_json() for rank in ranks] for name, ranks in self.traces.items()}
        return {**self.report.as_json(), "traces": traces}


def run(plan: Plan, progress: Progress = lambda _what: None) -> StrategyComparison:
    """Raises MeasurementError, ClusterError, ValueError for a strategy or model that is none."""
    choices = [StrategyName.parse(name) for name in dict.fromkeys(plan.strategies)]
    numpy_models.check(plan.model)
    data = _load(plan)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="softnic-train-")))
        data.save(directory / "data")
        clusters: dict[int, Cluster] = {}
        measured: dict[str, Measured] = {}
        for choice in choices:
            nodes = plan.workers + choice.aggregators
            if nodes not in clusters:
                progress(f"nothing yet: {nodes} NICs start")
                cluster = Cluster(nodes=nodes, seed=plan.seed, **plan.link)  # type: ignore[arg-type]
                clusters[nodes] = stack.enter_context(cluster)
            measured[str(choice)] = _measure(plan, choice, clusters[nodes], directory, progress)
        rows = _rows(measured)
    report = Report("train", _title(plan, data), _columns(), rows, _settings(plan, data), _notes(plan))
    return StrategyComparison(report, {name: each.usual for name, each in measured.items()})


def _load(plan: Plan) -> DataSet:
    try:
        data = synthetic(plan.seed) if plan.data == SYNTHETIC else load(plan.data)
    except DataError as error:
        raise MeasurementError(str(error)) from error
    least = len(data.train_labels) // plan.workers
    if not 0 < plan.batch <= least:
        raise MeasurementError(
            f"a batch of {plan.batch}: each of {plan.workers} ranks has {least} samples of {data.name}"
        )
    return data


def _measure(plan: Plan, choice: StrategyName, cluster: Cluster, directory: Path, progress: Progress) -> Measured:
    weights = directory / f"{choice}.npy"
    steps = plan.warm_up + plan.steps
    options = [
        *(f"--strategy={choice}", "--in-flight", str(plan.in_flight), "--model", plan.model),
        *("--steps", str(steps), "--batch", str(plan.batch), "--seed", str(plan.seed)),
        *("--data", str(directory / "data"), "--weights", str(weights), "--events", "--trace"),
    ]
    start = partial(cluster.spawn, env={**ONE_CORE, **os.environ})
    daemons = [nic.pid for nic in cluster.nics]
    daemons_cpu_s, sent_bytes = measure.cpu_s(daemons), _sent_bytes(cluster)
    with ExitStack() as stack:
        ranks = [stack.enter_context(ChildProcess(start, rank, RANK, *options)) for rank in range(cluster.nodes)]
        progress(f"{choice}, which starts")
        while "step" in (told := ranks[0].receive(_LIMIT_S)):
            progress(f"{choice}, iteration {told['step']} of {steps}")
        traces = [told, *(rank.receive(_LIMIT_S) for rank in ranks[1:])]
        outcomes = [rank.receive(_LIMIT_S) for rank in ranks]
    if len({outcome["weights"] for outcome in outcomes}) != 1:
        raise MeasurementError(f"{choice}: the ranks ended with different weights; this is a bug")
    seen = [[Iteration.from_json(each) for each in trace["iterations"]] for trace in traces]
    losses = [trace["losses"] for trace in traces if trace["losses"]]
    return Measured(
        iterations=[list(ranks) for ranks in zip(*seen, strict=True)][plan.warm_up :],
        losses=np.mean(losses, axis=0).tolist(),
        accuracy=outcomes[0]["accuracy"],
        daemons_cpu_s=(measure.cpu_s(daemons) - daemons_cpu_s) / steps,
        ranks_cpu_s=sum(trace["cpu_s"] for trace in traces) / steps,
        weights=weights,
        sent_bytes=(_sent_bytes(cluster) - sent_bytes) / steps,
        weights_bytes=outcomes[0]["weights_bytes"] / steps,
    )


def _sent_bytes(cluster: Cluster) -> int:
    return NicTraffic.of(cluster).payload


def _rows(measured: Mapping[str, Measured]) -> list[StrategyRow]:
    first = next(iter(measured.values()))
    reference = np.load(first.weights)
    rows: list[StrategyRow] = []
    for name, each in measured.items():
        parts = each.parts
        row = StrategyRow(
            name=name,
            iteration_s=measure.median(part.total for part in parts),
            forward_s=measure.median(part.forward for part in parts),
            backward_s=measure.median(part.backward for part in parts),
            exchange_s=measure.median(part.exchange for part in parts),
            sum_s=measure.median(part.sum for part in parts),
            update_s=measure.median(part.update for part in parts),
            skew_s=measure.median(part.skew for part in parts),
            exchange_change=0.0,
            speed_up=1.0,
            daemons_cpu_s=each.daemons_cpu_s,
            ranks_cpu_s=each.ranks_cpu_s,
            first_loss=each.losses[0],
            loss=each.losses[-1],
            accuracy=each.accuracy,
            weights_off=float(np.linalg.norm(np.load(each.weights) - reference) / np.linalg.norm(reference)),
            sent_bytes=each.sent_bytes,
            weights_bytes=each.weights_bytes,
        )
        base = rows[0] if rows else row
        rows.append(
            replace(
                row,
                exchange_change=row.exchange_s / base.exchange_s - 1 if base.exchange_s else 0.0,
                speed_up=base.iteration_s / row.iteration_s,
            )
        )
    return rows


def _columns() -> list[Column[StrategyRow]]:
    return [
        Column("strategy", lambda row: row.name, left=True),
        Column("iteration ms", lambda row: _ms(row.iteration_s)),
        Column("forward", lambda row: _ms(row.forward_s)),
        Column("backward", lambda row: _ms(row.backward_s)),
        Column("exposed exchange", lambda row: _ms(row.exchange_s)),
        Column("change", lambda row: f"{row.exchange_change:+.0%}".replace("%", " %") if row.exchange_change else ""),
        Column("sum", lambda row: _ms(row.sum_s) if row.sum_s else ""),
        Column("update", lambda row: _ms(row.update_s)),
        Column("skew", lambda row: _ms(row.skew_s)),
        Column("speed-up", lambda row: figure(row.speed_up)),
        Column("sent MB", lambda row: f"{row.sent_bytes / 1e6:.2f}"),
        Column("weights MB", lambda row: f"{row.weights_bytes / 1e6:.2f}" if row.weights_bytes else ""),
        Column("CPU ms, NICs", lambda row: _ms(row.daemons_cpu_s)),
        Column("ranks", lambda row: _ms(row.ranks_cpu_s)),
        Column("loss", lambda row: figure(row.loss, ".4f")),
        Column("accuracy", lambda row: f"{row.accuracy:.1%}".replace("%", " %")),
        Column("weights off", lambda row: figure(row.weights_off, ".1g")),
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def _title(plan: Plan, data: DataSet) -> str:
    return (
        f"{plan.model} on {data.name}, {plan.workers} ranks x {plan.batch} samples; links: {links(plan.link)}. "
        f"Medians of {plan.steps} iterations"
    )


def _settings(plan: Plan, data: DataSet) -> dict[str, Any]:
    return {
        **asdict(plan),
        "data": data.name,
        "link": dict(plan.link),
        "rates": numpy_models.rates(plan.model)._asdict(),
    }


def _notes(plan: Plan) -> list[str]:
    overlapped = "all layers" if not plan.in_flight else f"{plan.in_flight} layer(s)"
    return [
        "Exposed exchange: what a rank waits for an exchange that all ranks are ready for; change: against the first "
        "strategy's. Skew: what it waits for ranks that are not ready. Loss: of the last iteration. Weights off: their "
        "distance at the end from the first strategy's, relative to their length. Sent: the payload of all NICs, an "
        "iteration; weights: what an aggregator sends to each worker. Overlapped strategies have "
        f"{overlapped} in flight.",
        f"{plan.workers} ranks (and an aggregator) and a NIC each share this machine's {len(os.sched_getaffinity(0))} "
        "cores: NICs that work take time from ranks that compute, which real ones would not. CPU of both over the "
        "cores is the least that an iteration takes here, on any links.",
    ]
