"""How many samples a job trains while replicas are killed and start again, of those without faults."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.elastic.job import ElasticJob, JobPlan
from benchmarks.elastic.replica import BUILD, PLAIN
from softnic.measure import timing
from softnic.measure.report import Progress, column, share

WARM_S = 5.0
"""Of steps before those that count."""
START_S = 120.0
"""Until all replicas train."""
_NEVER = 1 << 30
"""Checksums of weights take time."""


@dataclass(frozen=True)
class ThroughputRow:
    who: str = column("torchft over")
    what: str = column("gradients")
    plain: float = column("without torchft, samples/s", ".0f")
    fault_free: float = column("with torchft", ".0f")
    machinery: float = column("of without", share)
    started: float = column("with idle starts", ".0f")
    """While processes are started that only import and build what a replica does."""
    faults: int = column("faults")
    faulted: float = column("with faults", ".0f")
    of_started: float = column("of with idle starts", share)
    next_step_s: float | None = column("death to survivors' next step, s: median")
    next_step_worst_s: float | None = column("longest")
    stuck: int = column("faults with no step within the period")
    join_s: float | None = column("start to first counted step, s")


def measure(plan: JobPlan, seconds: float, period_s: float, seed: int, progress: Progress) -> ThroughputRow:
    """Return the row of one backend. Raises MeasurementError, ClusterError."""
    plan = replace(plan, digest_every=_NEVER)
    who = f"{plan.backend} {plan.codec}".strip()
    progress(f"{who}, without torchft")
    plain = _samples_a_second(replace(plan, what=PLAIN), seconds)
    progress(f"{who}, without faults")
    fault_free = _samples_a_second(plan, seconds)
    progress(f"{who}, with idle starts")
    started = _with_starts(plan, seconds, period_s)
    progress(f"{who}, with faults")
    faulted, next_s, stuck, join_s = _with_faults(plan, seconds, period_s, seed)
    return ThroughputRow(
        who=plan.backend,
        what=plan.codec or "exact",
        plain=plain,
        fault_free=fault_free,
        machinery=fault_free / plain,
        started=started,
        faults=len(next_s) + stuck,
        faulted=faulted,
        of_started=faulted / started,
        next_step_s=timing.median(next_s) if next_s else None,
        next_step_worst_s=max(next_s, default=None),
        stuck=stuck,
        join_s=timing.median(join_s) if join_s else None,
    )


def _started(plan: JobPlan, directory: str) -> ElasticJob:
    job = ElasticJob(plan, Path(directory))
    try:
        for number in range(plan.replicas):
            job.start(number)
        job.until("the first step of all replicas", START_S, lambda: job.all_have_stepped(0.0))
        job.watch(WARM_S)
    except BaseException:
        job.close()
        raise
    return job


def _rate(job: ElasticJob, begun: float, ended: float) -> float:
    """Return the samples a second between two times, of all replicas, in steps that count."""
    steps: int = sum(begun < each["at"] <= ended and each["counted"] for life in job.lives for each in life.steps())
    return steps * job.plan.batch / (ended - begun)


def _samples_a_second(plan: JobPlan, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as directory, _started(plan, directory) as job:
        begun = job.now()
        job.watch(seconds)
        return _rate(job, begun, job.now())


def _with_starts(plan: JobPlan, seconds: float, period_s: float) -> float:
    """As above, while a process is started every period that does what a replica does before its first step."""
    with tempfile.TemporaryDirectory() as directory, _started(plan, directory) as job:
        begun, idle = job.now(), []
        try:
            while job.now() < begun + seconds:
                idle.append(job.start(0, BUILD))
                job.watch(min(period_s, begun + seconds - job.now()))
        finally:
            for life in idle:
                life.process.close()
        return _rate(job, begun, job.now())


def _with_faults(
    plan: JobPlan, seconds: float, period_s: float, seed: int
) -> tuple[float, list[float], int, list[float]]:
    """Return samples a second, for each fault the times to the survivors' next step, after how many faults some had
    none within the period, and the times from a new process's start to its first step."""
    chance = random.Random(seed)
    next_s, stuck, join_s = [], 0, []
    with tempfile.TemporaryDirectory() as directory, _started(plan, directory) as job:
        begun = job.now()
        while job.now() + 1e-3 < begun + seconds:
            until = min(job.now() + period_s, begun + seconds)
            killed = job.kill(chance.randrange(plan.replicas))
            assert killed.ended is not None
            new = job.start(killed.number)
            job.watch(until - job.now())
            survivors = [life for life in job.running.values() if life is not new]
            firsts = [life.first_step_after(killed.ended, plan.replicas) for life in survivors]
            if (joined := new.first_step_after(new.started)) is not None:
                join_s.append(joined - new.started)
            if None in firsts:
                stuck += 1
            else:
                next_s.append(max(first for first in firsts if first is not None) - killed.ended)
        return _rate(job, begun, job.now()), next_s, stuck, join_s
