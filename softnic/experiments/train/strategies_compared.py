"""The same training by several exchange strategies, over real processes and NICs on emulated links.

All runs have the same model, data, seed and links. Iterations are broken down as in the papers (INCEPTIONN's Table II,
the smart NIC's Fig. 2a and 4a): forward, backward, exposed exchange, sum (of an aggregator), update. The parts are
defined in timeline.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from softnic.cluster.cluster import Cluster
from softnic.experiments import numpy_models
from softnic.experiments.data import DataError, DataSet, load, synthetic
from softnic.experiments.strategies import StrategyName
from softnic.experiments.timeline import Breakdown, Iteration, breakdowns
from softnic.experiments.traffic import NicTraffic
from softnic.experiments.train.run import run_training
from softnic.experiments.trainer import RankRun, TrainingPlan
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import (
    MeasurementError,
    MeasurementReport,
    Progress,
    column,
    columns,
    links,
    milliseconds,
)
from softnic.units import medians_of

PARTS = tuple(each.name for each in fields(Breakdown))
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


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.2f}"


def _unless_zero(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: text(value) if value else ""


@dataclass(frozen=True, kw_only=True)
class StrategyRow:
    """One strategy's iteration. Seconds are means over the ranks, and of these medians over iterations."""

    name: str = column("strategy")
    iteration_s: float = column("iteration ms", milliseconds)
    forward_s: float = column("forward", milliseconds)
    backward_s: float = column("backward", milliseconds)
    exchange_s: float = column("exposed exchange", milliseconds)
    exchange_change: float = column("change", _unless_zero(lambda value: f"{100 * value:+.0f} %"))
    """Change of the exposed exchange against the first strategy: -0.5 is half of it."""
    sum_s: float = column("sum", _unless_zero(milliseconds))
    """The aggregator's; without one, sums are part of the exchange."""
    update_s: float = column("update", milliseconds)
    skew_s: float = column("skew", milliseconds)
    """Waiting for ranks that were not ready for the exchange."""
    speed_up: float = column("speed-up")
    """The first strategy's iteration to this one's."""
    sent_bytes: float = column("sent MB", _megabytes)
    """Payload that all NICs sent, per iteration, by their counters."""
    weights_bytes: float = column("weights MB", _unless_zero(_megabytes))
    """Weights from an aggregator among them, as they travel to each worker."""
    daemons_cpu_s: float = column("CPU ms, NICs", milliseconds)
    """CPU time of all NICs, per iteration."""
    ranks_cpu_s: float = column("ranks", milliseconds)
    first_loss: float
    loss: float = column("loss", ".4f")
    """Mean over the ranks, of the first and the last iteration."""
    accuracy: float = column("accuracy", lambda value: f"{100 * value:.1f} %")
    """On the test set, at the end."""
    weights_off: float = column("weights off", ".1g")
    """Distance of the final weights from the first strategy's, relative to their length."""


@dataclass(frozen=True)
class StrategyComparison:
    """Result of a comparison of strategies."""

    plan: StrategiesPlan
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
    rows: list[StrategyRow] = []
    traces: dict[str, list[Iteration]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="softnic-train-")))
        data.save(directory / "data")
        clusters: dict[int, Cluster] = {}
        for name in names:
            nodes = plan.workers + name.aggregators
            if nodes not in clusters:
                progress(f"nothing yet: {nodes} NICs start")
                cluster = Cluster(nodes=nodes, seed=plan.seed, **plan.link)  # type: ignore[arg-type]
                clusters[nodes] = stack.enter_context(cluster)
            row, traces[str(name)] = _measure(plan, str(name), clusters[nodes], directory, progress)
            first = rows[0] if rows else row
            change = row.exchange_s / first.exchange_s - 1 if first.exchange_s else 0.0
            off = _distance(directory / f"{name}.npy", directory / f"{first.name}.npy")
            speed_up = first.iteration_s / row.iteration_s
            row = replace(row, exchange_change=change, speed_up=speed_up, weights_off=off)
            rows += as_measured([row], columns(StrategyRow), progress)
    rates = numpy_models.rates(plan.model)._asdict()
    settings = {**asdict(plan), "data": data.name, "link": dict(plan.link), "rates": rates}
    report = MeasurementReport("train", _title(plan, data), columns(StrategyRow), rows, settings, _notes(plan))
    return StrategyComparison(plan, report, traces)


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


def _measure(
    plan: StrategiesPlan, name: str, cluster: Cluster, directory: Path, progress: Progress
) -> tuple[StrategyRow, list[Iteration]]:
    """Run one strategy. Return its row, not yet compared with the first one, and its median iteration."""
    steps = plan.warm_up + plan.steps
    daemons = [nic.pid for nic in cluster.nics]
    cpu_s, sent_bytes = timing.cpu_s(daemons), NicTraffic.of(cluster).payload
    progress(f"{name}, which starts")
    try:
        ranks = run_training(
            cluster,
            name,
            TrainingPlan(steps, plan.batch, seed=plan.seed, model=plan.model),
            directory / "data",
            lambda step, _loss: progress(f"{name}, iteration {step} of {steps}"),
            *("--in-flight", str(plan.in_flight), "--weights", str(directory / f"{name}.npy")),
        )
    except MeasurementError as error:
        raise MeasurementError(f"{name}: {error}") from error
    cpu_s, sent_bytes = timing.cpu_s(daemons) - cpu_s, NicTraffic.of(cluster).payload - sent_bytes
    iterations = list(zip(*(rank.iterations for rank in ranks), strict=True))[plan.warm_up :]
    parts = [Breakdown.mean(breakdowns(iteration)) for iteration in iterations]
    by_length = sorted(range(len(parts)), key=lambda index: parts[index].total)
    return _row(name, ranks, parts, cpu_s / steps, sent_bytes / steps), list(iterations[by_length[len(parts) // 2]])


def _row(
    name: str, ranks: Sequence[RankRun], parts: Sequence[Breakdown], daemons_cpu_s: float, sent_bytes: float
) -> StrategyRow:
    steps, outcome = len(ranks[0].iterations), ranks[0].outcome
    losses = np.mean([rank.losses for rank in ranks if rank.losses], axis=0).tolist()
    return StrategyRow(
        name=name,
        iteration_s=timing.median(part.total for part in parts),
        **{f"{name}_s": timing.median(getattr(part, name) for part in parts) for name in PARTS},
        exchange_change=0.0,
        speed_up=1.0,
        daemons_cpu_s=daemons_cpu_s,
        ranks_cpu_s=sum(rank.cpu_s for rank in ranks) / steps,
        first_loss=losses[0],
        loss=losses[-1],
        accuracy=outcome.accuracy,
        weights_off=0.0,
        sent_bytes=sent_bytes,
        weights_bytes=outcome.weights_bytes / steps,
    )


def _distance(weights: Path, reference: Path) -> float:
    """Return the distance of two vectors, relative to the length of the second."""
    return float(np.linalg.norm(np.load(weights) - np.load(reference)) / np.linalg.norm(np.load(reference)))


def _title(plan: StrategiesPlan, data: DataSet) -> str:
    return (
        f"{plan.model} on {data.name}, {plan.workers} ranks x {plan.batch} samples; links: {links(plan.link)}. "
        f"{medians_of(plan.steps, 'iteration').capitalize()}"
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
