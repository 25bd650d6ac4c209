"""The same training by several exchange strategies, over real processes and NICs on emulated links.

All runs have the same model, data, seed and links. Iterations are broken down as in the papers (INCEPTIONN's Table II,
the smart NIC's Fig. 2a and 4a): forward, backward, exposed exchange, sum (of an aggregator), update. The parts are
defined in timeline.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from softnic.cluster import Cluster
from softnic.experiments import measure, numpy_models
from softnic.experiments.data import DataError, DataSet, load, synthetic
from softnic.experiments.report import Column, MeasurementError, MeasurementReport, Progress, figure, links
from softnic.experiments.strategies import StrategyName
from softnic.experiments.timeline import Breakdown, Iteration, breakdowns
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.train.run import RankRun, run_training
from softnic.experiments.trainer import TrainingPlan

STRATEGIES = (
    *("wa", "wa+bounded:10", "inc", "inc+bounded:10", "hierarchical", "nic", "nic+bounded:10"),
    *("host-overlapped", "nic-overlapped", "nic-overlapped+bounded:10"),
)
LINK = {"rate": "1gbit", "delay": "50us"}
SYNTHETIC = Path("synthetic")


@dataclass(frozen=True)
class StrategiesPlan:
    """A comparison of strategies."""

    strategies: tuple[str, ...] = STRATEGIES
    """The first one is the reference."""
    workers: int = 4
    """Ranks that train; an aggregator is one more."""
    model: str = "hdc"
    batch: int = 25
    """Samples per rank and iteration."""
    steps: int = 20
    """Measured iterations."""
    warm_up: int = 2
    """Iterations before those."""
    in_flight: int = 0
    """Layers that overlapped strategies exchange at a time; 0: all."""
    data: Path | None = None
    """Directory of IDX files, SYNTHETIC, or None: scikit-learn's digits."""
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
    """The aggregator's; without one, sums are part of the exchange."""
    update_s: float
    skew_s: float
    """Waiting for ranks that were not ready for the exchange."""
    exchange_change: float
    """Change of the exposed exchange against the first strategy: -0.5 is half of it."""
    speed_up: float
    """The first strategy's iteration to this one's."""
    daemons_cpu_s: float
    """CPU time of all NICs, per iteration."""
    ranks_cpu_s: float
    first_loss: float
    loss: float
    """Mean over the ranks, of the first and the last iteration."""
    accuracy: float
    """On the test set, at the end."""
    weights_off: float
    """Distance of the final weights from the first strategy's, relative to their length."""
    sent_bytes: float = 0.0
    """Payload that all NICs sent, per iteration, by their counters."""
    weights_bytes: float = 0.0
    """Weights from an aggregator among them, as they travel to each worker."""


@dataclass(frozen=True)
class _Measured:
    """A strategy's run."""

    ranks: list[RankRun]
    iterations: list[tuple[Iteration, ...]]
    """The measured ones, each as every rank recorded it."""
    daemons_cpu_s: float
    sent_bytes: float
    weights: Path

    @property
    def parts(self) -> list[Breakdown]:
        """Breakdown of each iteration, mean over the ranks."""
        return [Breakdown.mean(breakdowns(iteration)) for iteration in self.iterations]

    @property
    def median_iteration(self) -> list[Iteration]:
        """The iteration of median length, as every rank recorded it."""
        lengths = [part.total for part in self.parts]
        return list(self.iterations[sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]])


@dataclass(frozen=True)
class StrategyComparison:
    """Result of a comparison of strategies."""

    report: MeasurementReport[StrategyRow]
    traces: Mapping[str, list[Iteration]]
    """The median iteration of each strategy, as every rank recorded it, an aggregator last."""

    def as_json(self) -> dict[str, Any]:
        traces = {name: [rank.as_json() for rank in ranks] for name, ranks in self.traces.items()}
        return {**self.report.as_json(), "traces": traces}


def run(plan: StrategiesPlan, progress: Progress = lambda _what: None) -> StrategyComparison:
    """Run all strategies of a plan. Raises MeasurementError, ClusterError; ValueError for an unknown name."""
    names = [StrategyName.parse(name) for name in dict.fromkeys(plan.strategies)]
    numpy_models.check(plan.model)
    data = _load(plan)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="softnic-train-")))
        data.save(directory / "data")
        clusters: dict[int, Cluster] = {}
        measured: dict[str, _Measured] = {}
        for name in names:
            nodes = plan.workers + name.aggregators
            if nodes not in clusters:
                progress(f"nothing yet: {nodes} NICs start")
                cluster = Cluster(nodes=nodes, seed=plan.seed, **plan.link)  # type: ignore[arg-type]
                clusters[nodes] = stack.enter_context(cluster)
            measured[str(name)] = _measure(plan, str(name), clusters[nodes], directory, progress)
        rows = _rows(measured, plan.warm_up + plan.steps)
    settings = {
        **asdict(plan),
        "data": data.name,
        "link": dict(plan.link),
        "rates": numpy_models.rates(plan.model)._asdict(),
    }
    report = MeasurementReport("train", _title(plan, data), COLUMNS, rows, settings, _notes(plan))
    return StrategyComparison(report, {name: each.median_iteration for name, each in measured.items()})


def _load(plan: StrategiesPlan) -> DataSet:
    try:
        data = synthetic(plan.seed) if plan.data == SYNTHETIC else load(plan.data)
    except DataError as error:
        raise MeasurementError(str(error)) from error
    samples = len(data.train_labels) // plan.workers
    if not 0 < plan.batch <= samples:
        raise MeasurementError(
            f"a batch of {plan.batch}: each of {plan.workers} ranks has {samples} samples of {data.name}"
        )
    return data


def _measure(plan: StrategiesPlan, name: str, cluster: Cluster, directory: Path, progress: Progress) -> _Measured:
    weights = directory / f"{name}.npy"
    steps = plan.warm_up + plan.steps
    daemons = [nic.pid for nic in cluster.nics]
    cpu_s, sent_bytes = measure.cpu_s(daemons), NicTraffic.of(cluster).payload
    progress(f"{name}, which starts")
    try:
        ranks = run_training(
            cluster,
            name,
            TrainingPlan(steps, plan.batch, seed=plan.seed, model=plan.model),
            directory / "data",
            lambda step, _loss: progress(f"{name}, iteration {step} of {steps}"),
            *("--in-flight", str(plan.in_flight), "--weights", str(weights)),
        )
    except MeasurementError as error:
        raise MeasurementError(f"{name}: {error}") from error
    return _Measured(
        ranks,
        list(zip(*(rank.iterations for rank in ranks), strict=True))[plan.warm_up :],
        measure.cpu_s(daemons) - cpu_s,
        NicTraffic.of(cluster).payload - sent_bytes,
        weights,
    )


def _rows(measured: Mapping[str, _Measured], steps: int) -> list[StrategyRow]:
    reference = np.load(next(iter(measured.values())).weights)
    rows: list[StrategyRow] = []
    for name, run in measured.items():
        seconds = {
            part: measure.median(getattr(each, part) for each in run.parts)
            for part in ("forward", "backward", "exchange", "sum", "update", "skew")
        }
        losses = np.mean([rank.losses for rank in run.ranks if rank.losses], axis=0).tolist()
        outcome = run.ranks[0].outcome
        row = StrategyRow(
            name=name,
            iteration_s=measure.median(part.total for part in run.parts),
            **{f"{part}_s": value for part, value in seconds.items()},
            exchange_change=0.0,
            speed_up=1.0,
            daemons_cpu_s=run.daemons_cpu_s / steps,
            ranks_cpu_s=sum(rank.cpu_s for rank in run.ranks) / steps,
            first_loss=losses[0],
            loss=losses[-1],
            accuracy=outcome.accuracy,
            weights_off=float(np.linalg.norm(np.load(run.weights) - reference) / np.linalg.norm(reference)),
            sent_bytes=run.sent_bytes / steps,
            weights_bytes=outcome.weights_bytes / steps,
        )
        base = rows[0] if rows else row
        change = row.exchange_s / base.exchange_s - 1 if base.exchange_s else 0.0
        rows.append(replace(row, exchange_change=change, speed_up=base.iteration_s / row.iteration_s))
    return rows


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


COLUMNS: list[Column[StrategyRow]] = [
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


def _title(plan: StrategiesPlan, data: DataSet) -> str:
    return (
        f"{plan.model} on {data.name}, {plan.workers} ranks x {plan.batch} samples; links: {links(plan.link)}. "
        f"Medians of {plan.steps} iterations"
    )


def _notes(plan: StrategiesPlan) -> list[str]:
    overlapped = "all layers" if not plan.in_flight else f"{plan.in_flight} layer(s)"
    return [
        "Exposed exchange: time that a rank waits for an exchange that all ranks are ready for; change: against the "
        "first strategy. Skew: time that it waits for ranks that are not ready. Loss: of the last iteration. Weights "
        "off: distance of the final weights from the first strategy's, relative to their length. Sent: payload of all "
        f"NICs per iteration; weights: sent by an aggregator to each worker. Overlapped strategies have {overlapped} "
        "in flight.",
        f"{plan.workers} ranks (and an aggregator) and one NIC each share this machine's "
        f"{len(os.sched_getaffinity(0))} cores: NICs compete for CPU with the ranks, unlike hardware. The CPU time of "
        "both divided by the cores is the least that an iteration takes here, on any links.",
    ]
