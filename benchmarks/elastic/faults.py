"""Seeded faults, one after the other: whether a job goes on after each, and its members have the same weights."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elastic.job import ElasticJob, JobPlan, differing
from benchmarks.elastic.replica import GLOO
from softnic.measure import timing
from softnic.measure.report import MeasurementError, Progress, column

HANG_S = 90.0
"""A job that makes no step within this time counts as hanging."""
CALM_S = 1.5
"""Between two faults."""
CUT_S = 8.0
"""How long a node is cut off: longer than its peers wait for it."""


@dataclass(frozen=True)
class FaultRow:
    who: str = column("torchft over")
    what: str = column("fault")
    faults: int = column("faults")
    next_step_s: float = column("to survivors' next step, s: median")
    next_step_worst_s: float = column("longest")
    all_s: float = column("to a step of all, s: median")
    differing: int = column("steps with unlike weights")
    first_loss: float = column("first loss")
    last_loss: float = column("last loss")


@dataclass(frozen=True)
class Outcome:
    """Of one fault."""

    survivors_s: float
    all_s: float


def measure(plan: JobPlan, count: int, seed: int, progress: Progress) -> list[FaultRow]:
    """Return a row for each kind of fault. Raises MeasurementError if the job hangs or a replica ends by itself."""
    chance = random.Random(seed)
    kinds = dict(KINDS)
    if plan.backend == GLOO:  # has no NIC that could be cut off
        kinds = {name: kinds[name] for name in (KILLED, TWO, SOURCE, LIGHTHOUSE)}
    drawn = [chance.choice(list(kinds)) for _ in range(count)]
    outcomes: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as directory, ElasticJob(plan, Path(directory)) as job:
        for number in range(plan.replicas):
            job.start(number)
        job.until("the first step of all replicas", HANG_S, lambda: job.all_have_stepped(0.0))
        for number, kind in enumerate(drawn):
            job.watch(CALM_S)
            progress(f"fault {number + 1} of {count}: {kind}")
            try:
                outcomes.setdefault(kind, []).append(kinds[kind](job, chance))
            except MeasurementError as error:
                raise MeasurementError(f"fault {number + 1}, {kind}: {error}") from error
            if unlike := differing(job.lives):
                raise MeasurementError(f"fault {number + 1}, {kind}: weights differ after step {unlike[0]}")
        losses = [each["loss"] for life in job.lives for each in life.steps()]
        by_step = sorted((each["step"], each["loss"]) for life in job.lives for each in life.steps())
        if not all(map(math.isfinite, losses)):
            raise MeasurementError("a loss is not finite")
        tenth = max(1, len(by_step) // 10)
        first, last = (sum(loss for _, loss in part) / tenth for part in (by_step[:tenth], by_step[-tenth:]))
        unlike = differing(job.lives)
    return [
        FaultRow(
            who=plan.backend,
            what=kind,
            faults=len(each),
            next_step_s=timing.median([one.survivors_s for one in each]),
            next_step_worst_s=max(one.survivors_s for one in each),
            all_s=timing.median([one.all_s for one in each]),
            differing=len(unlike),
            first_loss=first,
            last_loss=last,
        )
        for kind, each in sorted(outcomes.items())
    ]


def _some(job: ElasticJob, chance: random.Random, count: int) -> list[int]:
    return chance.sample(sorted(job.running), count)


def _recover(
    job: ElasticJob, begun: float, lost: list[int], restart: Callable[[], object], below: int | None = None
) -> Outcome:
    """Wait for a step of the survivors, with fewer members than `below`, and then, after `restart`, of all."""
    job.until("a step of the survivors", HANG_S, lambda: job.all_have_stepped(begun, lost, below))
    survivors = [life.first_step_after(begun, below) for number, life in job.running.items() if number not in lost]
    restart()
    again = job.now()
    job.until("a step of all", HANG_S, lambda: job.all_have_stepped(again))
    return Outcome(max(at for at in survivors if at is not None) - begun, job.now() - begun)


def _kill(job: ElasticJob, chance: random.Random) -> Outcome:
    return _kill_some(job, _some(job, chance, 1))


def _kill_two(job: ElasticJob, chance: random.Random) -> Outcome:
    return _kill_some(job, _some(job, chance, 2))


def _kill_some(job: ElasticJob, lost: list[int]) -> Outcome:
    begun = job.now()
    for number in lost:
        job.kill(number)
    return _recover(job, begun, lost, lambda: [job.start(number) for number in lost], job.plan.replicas)


def _silence(job: ElasticJob, chance: random.Random) -> Outcome:
    """Stop a process and cut its node off; kill the process when the others have gone on."""
    lost = _some(job, chance, 1)
    begun = job.now()
    job.freeze(lost[0])

    def restart() -> None:
        job.kill(lost[0])
        job.mend(lost[0])
        job.start(lost[0])

    return _recover(job, begun, lost, restart, job.plan.replicas)


def _cut(job: ElasticJob, chance: random.Random) -> Outcome:
    """Cut a node off for a while. Its process goes on, and the lighthouse, which is not on this network, counts it in:
    no quorum that has it can make a step before it is back."""
    lost = _some(job, chance, 1)
    begun = job.now()
    job.cut(lost[0])
    job.watch(CUT_S)
    job.mend(lost[0])
    return _recover(job, begun, lost, lambda: None)


def _kill_source(job: ElasticJob, chance: random.Random) -> Outcome:
    """Kill a replica, and another one just when the new one begins to heal."""
    first, second = _some(job, chance, 2)
    job.kill(first)
    new = job.start(first)
    job.until("the start of a replica", HANG_S, lambda: new.phase("managed") is not None)
    job.watch(chance.uniform(0.0, 0.3))
    begun = job.now()
    job.kill(second)
    return _recover(job, begun, [first, second], lambda: job.start(second))


def _restart_lighthouse(job: ElasticJob, chance: random.Random) -> Outcome:
    job.kill_lighthouse()
    job.watch(chance.uniform(0.0, 2.0))
    job.start_lighthouse()
    return _recover(job, job.now(), [], lambda: None)


KILLED, SILENT, CUT, TWO, SOURCE, LIGHTHOUSE = (
    "process killed",
    "process stopped, node cut off",
    "node cut off",
    "two killed at once",
    "one killed while another heals",
    "lighthouse restarted",
)
KINDS: tuple[tuple[str, Callable[[ElasticJob, random.Random], Outcome]], ...] = (
    (KILLED, _kill),
    (SILENT, _silence),
    (CUT, _cut),
    (TWO, _kill_two),
    (SOURCE, _kill_source),
    (LIGHTHOUSE, _restart_lighthouse),
)
