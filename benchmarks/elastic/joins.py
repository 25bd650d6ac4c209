"""How soon a new process takes part in a job: its start, the transfer of its state, and the first step that counts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.elastic.job import ElasticJob, JobPlan
from benchmarks.elastic.replica import SOFTNIC
from softnic import units
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import Progress, column, columns

ROUNDS = 5
JOIN_MS = 3000
START_S = 120.0
CALM_S = 2.0
_FLOAT = 4


@dataclass(frozen=True)
class JoinRow:
    who: str = column("torchft over")
    by: str = column("state by")
    imported_s: float = column("imported, s")
    built_s: float = column("built, s")
    managed_s: float = column("manager started, s")
    counted_s: float = column("first counted step, s: median")
    worst_s: float = column("longest")
    beyond_s: float = column("of it after the start-up, s")
    of_rate: float | None = column("times bytes / rate")
    """Of what comes after the start-up; None without a rate."""


def measure(plans: Sequence[JobPlan], megabytes: float, progress: Progress) -> list[JoinRow]:
    """Return a row for each backend and transport. Raises MeasurementError, ClusterError."""
    cases = [(plan, by) for plan in plans for by in ([SOFTNIC, "http"] if plan.backend == SOFTNIC else ["http"])]
    rows = (
        _row(replace(plan, transport=by, padding=int(megabytes * 1e6) // _FLOAT, join_ms=JOIN_MS), megabytes, progress)
        for plan, by in cases
    )
    return as_measured(rows, columns(JoinRow), progress)


def _row(plan: JobPlan, megabytes: float, progress: Progress) -> JoinRow:
    phases: dict[str, list[float]] = {name: [] for name in ("imported", "built", "managed", "counted")}
    with tempfile.TemporaryDirectory() as directory, ElasticJob(plan, Path(directory)) as job:
        for number in range(plan.replicas):
            job.start(number)
        job.until("the first step of all replicas", START_S, lambda: job.all_have_stepped(0.0))
        for number in range(ROUNDS):
            progress(f"{plan.backend}, state by {plan.transport}: {number + 1} of {ROUNDS}")
            job.watch(CALM_S)
            job.kill(number % plan.replicas)
            new = job.start(number % plan.replicas)
            job.until("a counted step of the new process", START_S, partial(job.all_have_stepped, new.started))
            for name, times in phases.items():
                at = new.first_step_after(new.started) if name == "counted" else new.phase(name)
                assert at is not None
                times.append(at - new.started)
    middle = {name: timing.median(times) for name, times in phases.items()}
    beyond = middle["counted"] - middle["managed"]
    return JoinRow(
        who=plan.backend,
        by=plan.transport,
        imported_s=middle["imported"],
        built_s=middle["built"],
        managed_s=middle["managed"],
        counted_s=middle["counted"],
        worst_s=max(phases["counted"]),
        beyond_s=beyond,
        of_rate=beyond / (8e6 * megabytes / units.rate_bps(plan.rate)) if plan.rate else None,
    )
