"""Steps over emulated links, measured beside their computed time (summary.py).

A step over a slow link takes as long here as in a cluster. Over a fast one, where all ranks and NICs of this machine
share its cores, it takes at least their CPU time divided by the number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from softnic.experiments import methods
from softnic.experiments.compare.plan import ComparisonPlan, TrainingJob
from softnic.experiments.compare.run import TrainingNodes
from softnic.measure.kept import ResultFile
from softnic.measure.report import MeasurementReport, Progress, column, columns, milliseconds
from softnic.measure.timing import median
from softnic.units import rate_bps

DELAY = "50us"
CHECKED = "compare-check.json"
"""File of results in a directory of trainings."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The time of a model's step by a method over links of a rate."""

    model: str = column("model")
    method: str = column("method")
    rate: str = column("link")
    measured_s: float = column("measured ms", milliseconds)
    """Median of the slowest rank's steps."""
    computed_s: float = column("computed ms", milliseconds)
    """CPU time of the busiest host and bytes on the busiest link."""
    cores_s: float = column("CPU / cores, ms", milliseconds)
    """CPU time of all ranks and NICs, divided by the cores of this machine."""
    ratio: float = column("measured / larger")
    """Measured time to the larger of the two others, the least that the step takes here."""


def check(
    plan: ComparisonPlan,
    rates: Sequence[str],
    steps: int,
    progress: Progress,
    kept: ResultFile | None = None,
) -> list[StepTime]:
    """Measure `steps` steps of every model and method of a plan over links of each rate.

    Results are kept in a file, and taken from it. Raises MeasurementError, ClusterError, OSError.
    """
    file = kept or ResultFile(None)
    jobs = [_shortened(job, steps) for job in plan.jobs() if job.seed == plan.seeds[0]]
    nodes = plan.workers + max(methods.aggregators(job.method) for job in jobs)
    found = []
    for rate in rates:
        with TrainingNodes(nodes, plan.seeds[0], {"rate": rate, "delay": DELAY}) as ranks:
            for job in jobs:
                title = f"{job.model} by {job.method} over {rate}"
                settings = {"job": asdict(job.portable()), "rate": rate, "delay": DELAY}

                def measure(
                    ranks: TrainingNodes = ranks, job: TrainingJob = job, rate: str = rate, title: str = title
                ) -> StepTime:
                    return _measure(ranks, job, rate, lambda what: progress(f"{title}: {what}"))

                found.append(file.once(title, settings, measure, StepTime))
    return found


def _shortened(job: TrainingJob, steps: int) -> TrainingJob:
    """Return a training of twice the steps: in the first half connections open their windows."""
    return replace(job, training=replace(job.training, steps=2 * steps, looks=2))


def _measure(ranks: TrainingNodes, job: TrainingJob, rate: str, progress: Progress) -> StepTime:
    result, by_rank = ranks.train(job, progress)
    before, after = result.evaluations
    steps = after.step - before.step
    slowest = [max(seconds) for seconds in zip(*(rank.seconds[before.step :] for rank in by_rank), strict=True)]
    measured_s = median(slowest)
    bits = 8 * (after.link_bytes - before.link_bytes)
    computed_s = (after.host_s - before.host_s + bits / rate_bps(rate)) / steps
    cores_s = (after.cpu_s - before.cpu_s) / steps / len(os.sched_getaffinity(0))
    return StepTime(
        model=job.model,
        method=job.method,
        rate=rate,
        measured_s=measured_s,
        computed_s=computed_s,
        cores_s=cores_s,
        ratio=measured_s / max(computed_s, cores_s),
    )


def report(found: Sequence[StepTime], plan: ComparisonPlan, steps: int) -> MeasurementReport[StepTime]:
    """Return the table of the check."""
    settings: Mapping[str, Any] = {"steps": steps, "workers": plan.workers, "delay": DELAY, **_data(plan)}
    return MeasurementReport(
        "compare-check",
        f"Steps over emulated links, delay {DELAY}: {plan.workers} ranks, {steps} steps",
        columns(StepTime),
        found,
        settings,
        [
            "Computed: CPU time of the busiest host, and the bytes that its link carries at the rate. CPU / cores: of "
            "all ranks and NICs, by the cores of this machine that they share: the least time that a step takes here."
        ],
    )


def _data(plan: ComparisonPlan) -> dict[str, Any]:
    return {"trainings": {name: asdict(each) for name, each in plan.trainings.items()}}
