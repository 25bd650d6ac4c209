"""Runs a comparison: a cluster of NICs, a rank on each, and one training after the other through all of them.

The ranks stay from training to training. Where one fails, the comparison goes on without that training, with new ranks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from softnic.cluster import Cluster
from softnic.experiments import methods
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.compare.learn import Look
from softnic.experiments.compare.plan import Job, Plan
from softnic.experiments.compare.results import Result, Results
from softnic.experiments.report import MeasurementError, Progress

RANK = "softnic.experiments.compare.rank"
ONE_CORE = {"OMP_NUM_THREADS": "1", "SOFTNIC_THREADS": "1"}
"""What ranks find in their environment where it says nothing else: they share the cores with others and with NICs."""
_LIMIT_S = 300.0
"""How long a rank may have nothing to tell; the first one loads PyTorch and data meanwhile."""
_FAILING_S = 30.0
"""How long ranks may take to notice that one of them failed."""


@dataclass
class Comparison:
    """What all trainings came to, in the plan's order."""

    plan: Plan
    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Failure:
    model: str
    method: str
    why: str
    """One line."""


def run(
    plan: Plan,
    kept: Results,
    progress: Progress = lambda _what: None,
    on_result: Callable[[Result], None] = lambda _result: None,
) -> Comparison:
    """Raises MeasurementError, ClusterError; ValueError for an unknown method; OSError where results cannot be kept."""
    comparison = Comparison(plan)
    jobs = plan.jobs()
    nodes = plan.workers + max(methods.aggregators(job.method) for job in jobs)
    with _Ranks(plan, nodes) as ranks:
        for number, job in enumerate(jobs, 1):
            result = kept.find(job)
            if result is None:
                told = partial(_tell, progress, f"{job.model} by {job.method} ({number} of {len(jobs)})")
                try:
                    result = ranks.train(job, told)
                except MeasurementError as error:
                    comparison.failures.append(Failure(job.model, job.method, str(error)))
                    continue
                kept.keep(job, result)
            comparison.results.append(result)
            on_result(result)
    return comparison


class _Ranks:
    """NICs, and the processes on them, which start when there is something to train."""

    def __init__(self, plan: Plan, nodes: int) -> None:
        self._plan = plan
        self._nodes = nodes
        self._trainings = 0
        self._nics = ExitStack()
        self._processes = ExitStack()
        self._cluster: Cluster | None = None
        self._programs: list[ChildProcess] = []

    def __enter__(self) -> _Ranks:
        return self

    def __exit__(self, *_error: object) -> None:
        self._processes.close()
        self._nics.close()

    def train(self, job: Job, progress: Progress) -> Result:
        """Raises MeasurementError where a rank fails; all of them are new next time."""
        if not self._programs:
            progress("starting")
            self._start()
        self._trainings += 1
        programs = self._programs[: job.workers + methods.aggregators(job.method)]
        line = json.dumps({"ranks": len(programs), "meeting": str(self._trainings), "job": job.as_json()})
        began = time.monotonic()
        for program in programs:
            program.send_line(line)
        try:
            looks, *_ = [_follow(program, job, progress) for program in programs]
        except MeasurementError as error:
            raise MeasurementError(self._end(programs) or str(error)) from None
        return Result(job.model, job.method, tuple(looks), time.monotonic() - began)

    def _start(self) -> None:
        if self._cluster is None:
            cluster = Cluster(nodes=self._nodes, seed=self._plan.seed, **self._plan.link)  # type: ignore[arg-type]
            self._cluster = self._nics.enter_context(cluster)
        start = partial(self._cluster.spawn, env={**ONE_CORE, **os.environ})
        store = str(self._cluster.directory / f"store{self._trainings}")
        for node in range(self._nodes):
            program = ChildProcess(start, node, RANK, "--store", store)
            self._programs.append(self._processes.enter_context(program))

    def _end(self, programs: list[ChildProcess]) -> str:
        """Ends all ranks. Returns why they failed: what one says of itself before what it says of others."""
        told: list[dict[str, Any]] = []
        for program in programs:
            with suppress(MeasurementError):
                while "failed" not in (heard := program.receive(_FAILING_S)) and "through" not in heard:
                    pass
                told.append(heard)
        self._processes.close()
        self._programs.clear()
        reasons = sorted((each for each in told if "failed" in each), key=lambda each: bool(each["others"]))
        return reasons[0]["failed"] if reasons else ""


def _tell(progress: Progress, training: str, what: str) -> None:
    progress(f"{training}: {what}")


def _follow(program: ChildProcess, job: Job, progress: Progress) -> list[Look]:
    """What a rank tells until it is through with a training. Raises MeasurementError."""
    looks: list[Look] = []
    while "through" not in (told := program.receive(_LIMIT_S)):
        if "failed" in told:
            raise MeasurementError(told["failed"])
        if "look" in told:
            looks.append(Look(**told["look"]))
        if "step" in told:
            progress(f"step {told['step']} of {job.training.steps}")
    return looks
