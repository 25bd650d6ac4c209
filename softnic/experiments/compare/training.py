"""One training of a comparison as one rank performs it, whatever the method.

1. Train some steps; the timeline notes when gradients are ready and when the step is done.
2. All ranks stop and gather what their NICs sent and what happened when; then each evaluates its part of the test set.
   Neither is counted.

Exchange time is exposed time: from the moment when the last worker's gradients are ready, so waiting for a rank that
computes is not counted. The optimizer step, which takes little, counts as exchange, because an aggregator takes it for
all ranks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np

from softnic.experiments import torch_models
from softnic.experiments.compare.plan import TrainingJob
from softnic.experiments.data import batches_of_rank
from softnic.experiments.strategies import Strategy
from softnic.experiments.timeline import WHOLE
from softnic.experiments.torch_replica import TorchReplica
from softnic.experiments.trainer import TrainingLoop
from softnic.gradients import Method
from softnic.gradients.lgc.phases import Lgc
from softnic.measure import timing
from softnic.mpi.communicator import Communicator


class Usage(NamedTuple):
    """Resources that a rank and its NIC have used since they started."""

    wire_bytes: int
    """Bytes that the NIC has sent."""
    cpu_s: float
    """CPU time of both processes."""
    received_bytes: int = 0
    """Bytes that the NIC has received."""


@dataclass(frozen=True)
class Evaluation:
    """State of a training after some steps. Bytes and times are totals of all steps so far."""

    step: int
    epoch: float
    """Number of times that the workers together have seen the training set."""
    loss: float
    """Mean over the workers' batches since the last evaluation, in nats."""
    score: float
    """On the test set: accuracy, 0..1, or bits per character for a model of text."""
    wire_bytes: int
    """Bytes that all NICs sent, with all headers."""
    train_s: float
    """Wall-clock time."""
    exchange_s: float
    """Exposed exchange, mean over the workers."""
    cpu_s: float
    """CPU time of all ranks and all NICs."""
    host_s: float = 0.0
    """CPU time of the busiest worker and its NIC; an aggregator's is added, because the workers wait for it."""
    link_bytes: int = 0
    """Bytes that the busiest link carries one after the other: in one direction, or in both of an aggregator's."""
    compute_s: float = 0.0
    """Of one step since the last evaluation, from its begin to when its gradients are ready: the tenth percentile of
    all workers' steps, which other processes on the same cores disturb least."""

    @property
    def diverged(self) -> bool:
        """Whether the weights were NaN or infinite."""
        return not (math.isfinite(self.loss) and math.isfinite(self.score))


START = Evaluation(0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Interval:
    """What one rank contributes to an evaluation: the steps since the last one."""

    began: float
    before: Usage
    after: Usage
    ready: list[float]
    """When its gradients of each step were ready. Empty for an aggregator."""
    done: list[float]
    """When it had the next weights."""
    losses: list[float]
    computed_s: list[float] = field(default_factory=lambda: [0.0])
    """Time of each step until its gradients were ready."""

    @property
    def cpu_s(self) -> float:
        return self.after.cpu_s - self.before.cpu_s

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received by this rank's NIC."""
        return (
            self.after.wire_bytes - self.before.wire_bytes,
            self.after.received_bytes - self.before.received_bytes,
        )


@dataclass(frozen=True)
class RankSteps:
    """What one rank reports of its whole training, by step."""

    losses: list[float]
    seconds: list[float]
    given_bytes: int
    """Of its gradients in a step."""
    sent_bytes: list[int]
    """That its gradient method sent for them; empty for other methods."""
    traffic: dict[str, dict[str, int]]
    """Of LGC, by phase: the fields of PhaseTraffic."""


class RankTraining:
    """One rank of a training: a worker, which trains and evaluates, or the aggregator behind the workers."""

    def __init__(
        self,
        job: TrainingJob,
        data: torch_models.TorchData,
        comm: Communicator,
        replica: TorchReplica,
        strategy: Strategy,
        method: Method | None = None,
    ) -> None:
        self._job = job
        self._comm = comm
        self._replica = replica
        self._method = method
        self._sent = [0]
        self._samples = len(data.train_labels)
        self._works = comm.rank < job.workers
        self._test = data.test_inputs[comm.rank :: job.workers], data.test_labels[comm.rank :: job.workers]
        draws = batches_of_rank(
            data.train_inputs, data.train_labels, comm.rank, job.workers, job.training.batch, job.seed
        )
        self._trainer = TrainingLoop(replica, strategy, draws if self._works else None)

    def run(
        self,
        usage: Callable[[], Usage],
        on_evaluation: Callable[[Evaluation], None],
        on_step: Callable[[int], None],
    ) -> None:
        """Train to the end. Evaluations are the same on every rank; `on_step` receives the number of steps done.

        Raises CommError.
        """
        last = START
        for step in self._job.training.evaluated_after():
            self._comm.barrier()
            before, began = usage(), time.monotonic()
            for done in range(last.step, step):
                self._trainer.step()
                if self._method is not None:
                    self._sent.append(self._method.stats.sent_bytes)
                on_step(done + 1)
            self._comm.barrier()
            interval = self._interval(last.step, began, before, usage())
            last = self.evaluate(step, last, self._comm.allgather(interval))
            on_evaluation(last)

    def evaluate(self, step: int, last: Evaluation, intervals: list[Interval]) -> Evaluation:
        """Return the evaluation after `step`, from what all ranks gathered. All ranks call this together."""
        workers, aggregators = intervals[: self._job.workers], intervals[self._job.workers :]
        evaluated = self._comm.allgather(self._replica.evaluate(*self._test) if self._works else (0.0, 0, 0))
        loss, correct, answers = (sum(column) for column in zip(*evaluated, strict=True))
        ready = np.max([worker.ready for worker in workers], axis=0)
        busiest = max([max(each.traffic) for each in workers] + [sum(each.traffic) for each in aggregators])
        exchanged = np.array([worker.done for worker in workers]) - ready
        return Evaluation(
            step=step,
            epoch=step * self._job.workers * self._job.training.batch / self._samples,
            loss=float(np.mean([worker.losses for worker in workers])),
            score=loss / answers / math.log(2) if torch_models.reads_text(self._job.model) else correct / answers,
            wire_bytes=last.wire_bytes + sum(each.traffic[0] for each in intervals),
            train_s=last.train_s + max(rank.done[-1] for rank in intervals) - min(rank.began for rank in intervals),
            exchange_s=last.exchange_s + float(exchanged.sum(axis=1).mean()),
            cpu_s=last.cpu_s + sum(each.cpu_s for each in intervals),
            host_s=last.host_s + max(each.cpu_s for each in workers) + sum(each.cpu_s for each in aggregators),
            link_bytes=last.link_bytes + busiest,
            compute_s=timing.percentile([each for worker in workers for each in worker.computed_s], 0.1),
        )

    def steps(self) -> RankSteps:
        """Return the figures of all steps so far."""
        phases = self._method.traffic if isinstance(self._method, Lgc) else {}
        return RankSteps(
            self._trainer.losses,
            [iteration.end - iteration.begin for iteration in self._replica.timeline.iterations],
            self._replica.gradients.nbytes,
            np.diff(self._sent).tolist(),
            {phase: asdict(each) for phase, each in phases.items()},
        )

    def _interval(self, first: int, began: float, before: Usage, after: Usage) -> Interval:
        iterations = self._replica.timeline.iterations[first:]
        ready = [iteration.ready[WHOLE] for iteration in iterations if iteration.ready]
        done = [iteration.end for iteration in iterations]
        computed = [each.ready[WHOLE] - each.begin for each in iterations if each.ready]
        return Interval(began, before, after, ready, done, self._trainer.losses[first:], computed)
