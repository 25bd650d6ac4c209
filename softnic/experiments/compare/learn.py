"""One training as one rank goes through it, whatever the method.

1. Compute the gradients of a batch; note when they are ready.
2. Exchange them and take the step; note when that is done.
3. After some steps all ranks stop: what their NICs sent by then, and what happened when, is gathered; then each judges
   its part of the test set. Nothing of that is counted.

Exchange time is exposed time: from when the last worker's gradients are ready. A rank that waits for others to compute
does not wait for the network. The step, which takes little, counts as exchange, since an aggregator takes it for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from softnic.comm.communicator import Communicator
from softnic.experiments import torch_models
from softnic.experiments.compare.exchange import Exchange
from softnic.experiments.compare.plan import Job
from softnic.experiments.data import batches
from softnic.experiments.torch_replica import TorchReplica


class Used(NamedTuple):
    """What a rank and its NIC have used since they started."""

    wire_bytes: int
    """That the NIC has sent."""
    cpu_s: float
    """Of both processes."""


Meter = Callable[[], Used]


@dataclass(frozen=True)
class Look:
    """How far a training has come. Bytes and times are those of all steps until now."""

    step: int
    epoch: float
    """How often the workers together have seen the training set."""
    loss: float
    """Mean over the workers' batches since the last look, in nats."""
    score: float
    """On the test set: accuracy, 0..1; of a model that reads text, bits per character."""
    wire_bytes: int
    """That all NICs sent, with all headers."""
    train_s: float
    """On the wall's clock."""
    exchange_s: float
    """Of that, exposed exchange; mean over the workers."""
    cpu_s: float
    """Of all ranks and all NICs."""


NOTHING = Look(0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)
"""How far it has come at the beginning."""
OnLook = Callable[[Look], None]
OnStep = Callable[[int], None]
"""Is told the number of steps done."""


@dataclass
class _Part:
    """What a rank has to tell of the steps since the last look."""

    began: float
    before: Used
    after: Used
    ready: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


class Rank:
    """What a rank does in a training: it trains and judges, or, behind the workers, aggregates."""

    def __init__(
        self, job: Job, data: torch_models.TorchData, comm: Communicator, replica: TorchReplica, exchange: Exchange
    ) -> None:
        self._job = job
        self._comm = comm
        self._replica = replica
        self._exchange = exchange
        self._samples = len(data.train_labels)
        self._works = comm.rank < job.workers
        mine = slice(comm.rank, None, job.workers)
        self._train = data.train_inputs[mine], data.train_labels[mine]
        self._test = data.test_inputs[mine], data.test_labels[mine]
        if self._works:
            draws = np.random.default_rng([job.seed, comm.rank])
            self._draws = batches(len(self._train[1]), job.training.batch, draws)

    def learn(self, used: Meter, on_look: OnLook, on_step: OnStep) -> None:
        """The whole training. Looks are the same on every rank. Raises CommError."""
        last = NOTHING
        for step in self._job.training.looks_after():
            self._comm.barrier()
            before = used()
            part = _Part(time.monotonic(), before, before)
            for done in range(last.step, step):
                self._step(part)
                on_step(done + 1)
            self._comm.barrier()
            part.after = used()
            last = self._look(step, last, self._comm.allgather(part))
            on_look(last)

    def _step(self, part: _Part) -> None:
        if self._works:
            inputs, labels = self._train
            drawn = next(self._draws)
            part.losses.append(self._replica.forward_backward(inputs[drawn], labels[drawn]))
        part.ready.append(time.monotonic())
        self._exchange.finish()
        part.done.append(time.monotonic())

    def _look(self, step: int, last: Look, parts: list[_Part]) -> Look:
        workers = parts[: self._job.workers]
        judged = self._comm.allgather(self._replica.judge(*self._test) if self._works else (0.0, 0, 0))
        loss, right, answers = (sum(column) for column in zip(*judged, strict=True))
        ready = np.max([part.ready for part in workers], axis=0)
        exchanged = np.array([part.done for part in workers]) - ready
        return Look(
            step=step,
            epoch=step * self._job.workers * self._job.training.batch / self._samples,
            loss=float(np.mean([part.losses for part in workers])),
            score=loss / answers / math.log(2) if torch_models.reads_text(self._job.model) else right / answers,
            wire_bytes=last.wire_bytes + sum(part.after.wire_bytes - part.before.wire_bytes for part in parts),
            train_s=last.train_s + max(part.done[-1] for part in parts) - min(part.began for part in parts),
            exchange_s=last.exchange_s + float(exchanged.sum(axis=1).mean()),
            cpu_s=last.cpu_s + sum(part.after.cpu_s - part.before.cpu_s for part in parts),
        )
