"""Runs a comparison: a cluster of NICs, a rank on each, and one training after the other.

The ranks serve all trainings. Where one fails, the comparison continues without that training, with new ranks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from softnic.cluster.cluster import Cluster
from softnic.experiments import methods
from softnic.experiments.compare.plan import ComparisonPlan, TrainingJob
from softnic.experiments.compare.results import TrainingResult, TrainingResults
from softnic.experiments.compare.training import Evaluation, RankSteps
from softnic.experiments.runner import Event, RankPool
from softnic.measure.report import MeasurementError, Progress

RANK = "softnic.experiments.compare.rank"
_LIMIT_S = 300.0
"""Longest silence of the ranks, which load PyTorch and data meanwhile."""


@dataclass(frozen=True)
class FailedTraining:
    """A training that failed."""

    model: str
    method: str
    why: str
    """One line."""
    seed: int = 7


@dataclass
class Comparison:
    """Results of all trainings, in the plan's order."""

    plan: ComparisonPlan
    results: list[TrainingResult] = field(default_factory=list)
    failures: list[FailedTraining] = field(default_factory=list)


def run(
    plan: ComparisonPlan,
    kept: TrainingResults,
    progress: Progress = lambda _what: None,
    on_result: Callable[[TrainingResult], None] = lambda _result: None,
) -> Comparison:
    """Run the trainings of a plan that have no kept result.

    Raises MeasurementError, ClusterError; ValueError for an unknown method; OSError where results cannot be kept.
    """
    comparison = Comparison(plan)
    jobs = plan.jobs()
    nodes = plan.workers + max(methods.aggregators(job.method) for job in jobs)
    with TrainingNodes(nodes, plan.seeds[0], plan.link) as ranks:
        for number, job in enumerate(jobs, 1):
            result = kept.find(job)
            if result is None:
                title = f"{job.model} by {job.method}, seed {job.seed} ({number} of {len(jobs)})"
                try:
                    result, _ = ranks.train(job, lambda what, title=title: progress(f"{title}: {what}"))  # type: ignore[misc]
                except MeasurementError as error:
                    comparison.failures.append(FailedTraining(job.model, job.method, str(error), job.seed))
                    continue
                result = kept.keep(job, result)
            comparison.results.append(result)
            on_result(result)
    return comparison


class TrainingNodes(ExitStack):
    """NICs and the rank processes on them, which start when there is something to train."""

    def __init__(self, nodes: int, seed: int, link: Mapping[str, str]) -> None:
        super().__init__()
        self._nodes = nodes
        self._seed = seed
        self._link = link
        self._trainings = 0
        self._cluster: Cluster | None = None
        self._processes: RankPool | None = None

    def train(
        self, job: TrainingJob, progress: Progress, *, linear: bool = False
    ) -> tuple[TrainingResult, list[RankSteps]]:
        """Run one training, at a learning rate that falls linearly if `linear`. Returns the steps by rank, too.

        Raises MeasurementError if a rank fails; the next training gets new ranks.
        """
        if self._processes is None:
            progress("starting")
            self._processes = self._start()
        self._trainings += 1
        ranks = job.workers + methods.aggregators(job.method)
        request = {"ranks": ranks, "name": str(self._trainings), "job": job.as_json(), "linear": linear}
        evaluations: list[Evaluation] = []

        def on_event(event: Event) -> None:
            if "evaluation" in event:
                evaluations.append(Evaluation(**event["evaluation"]))
            else:
                progress(f"step {event['step']} of {job.training.steps}")

        began = time.monotonic()
        self._processes.send(json.dumps(request), ranks)
        try:
            done = self._processes.collect("done", on_event, ranks=ranks, limit_s=_LIMIT_S)
        except MeasurementError:
            self._processes.close()
            self._processes = None
            raise
        result = TrainingResult(job.model, job.method, tuple(evaluations), time.monotonic() - began, job.seed)
        return result, [RankSteps(**event["done"]) for event in done]

    def _start(self) -> RankPool:
        if self._cluster is None:
            cluster = Cluster(nodes=self._nodes, seed=self._seed, **self._link)  # type: ignore[arg-type]
            self._cluster = self.enter_context(cluster)
        store = self._cluster.directory / f"store{self._trainings}"
        return self.enter_context(RankPool(self._cluster, RANK, "--store", str(store)))
