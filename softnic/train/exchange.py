"""Training by gradient exchange, as Algorithm 1 of Li et al. (MICRO 2018) has it, seen from one rank.

1. Every rank starts from the same weights (one seed) and keeps a part of the training set to itself.
2. A step: draw a mini-batch, compute the gradients of its mean loss.
3. Sum them over all ranks, in one exchange of the flat vector, compressed or not; divide by the number of ranks.
4. Every rank takes the same optimizer step, on the same bits; so weights never need to be sent.

Compression happens in step 3 only, and there is no aggregator: with a ring every rank sends and receives as much as
every other. Gradients are divided after the sum because that is what the paper's nodes exchange; the codec's
threshold is absolute, so dividing before would lose more of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from softnic.train.data import DataSet, Floats, batches
from softnic.train.hdc import Classifier, Momentum


class Group(Protocol):
    """The ranks that train together, as one of them sees it."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, gradients: Floats) -> None:
        """Replaces a rank's array by the sum over all ranks; all of them end with the same bits."""

    def barrier(self) -> None:
        """Returns once all ranks have come here."""


@dataclass(frozen=True)
class Plan:
    """How to train. The defaults are the ones that the paper's digit classifier is shown with here."""

    steps: int
    batch: int = 25
    """Samples a rank and step."""
    rate: float = 0.01
    momentum: float = 0.9
    seed: int = 7


@dataclass(frozen=True)
class Outcome:
    """What one rank has to tell when it is through."""

    rank: int
    accuracy: float
    """On the test set, 0..1."""
    loss: float
    """Mean over the last tenth of the steps, of this rank's batches."""
    exchange_s: float
    """Time inside the exchanges, each timed from when all ranks are ready for it: waiting for a rank that still
    computes is no exchange."""
    total_s: float
    exchanged_bytes: int
    """Of this rank's gradients, summed over the steps."""
    weights: str
    """Digest of the final weights; the same on every rank."""


def train(
    data: DataSet, plan: Plan, group: Group, on_step: Callable[[int, float], None] = lambda _step, _loss: None
) -> Outcome:
    """Trains this rank's copy of the model. `on_step` is told the steps done and the batch's loss."""
    model = Classifier(data.features, np.random.default_rng(plan.seed))
    optimizer = Momentum(len(model.parameters), plan.rate, plan.momentum)
    inputs, labels = data.train_inputs[group.rank :: group.size], data.train_labels[group.rank :: group.size]
    draws = batches(len(labels), plan.batch, np.random.default_rng([plan.seed, group.rank]))
    share = np.float32(1 / group.size)
    losses: list[float] = []
    exchange_s = 0.0
    group.barrier()
    started = time.perf_counter()
    for step in range(plan.steps):
        drawn = next(draws)
        losses.append(model.backward(inputs[drawn], labels[drawn]))
        group.barrier()
        ready = time.perf_counter()
        group.sum(model.gradients)
        exchange_s += time.perf_counter() - ready
        model.gradients *= share
        optimizer.step(model.parameters, model.gradients)
        on_step(step + 1, losses[-1])
    total_s = time.perf_counter() - started
    return Outcome(
        rank=group.rank,
        accuracy=model.accuracy(data.test_inputs, data.test_labels),
        loss=float(np.mean(losses[-max(1, plan.steps // 10) :])),
        exchange_s=exchange_s,
        total_s=total_s,
        exchanged_bytes=model.gradients.nbytes * plan.steps,
        weights=hashlib.sha256(model.parameters.tobytes()).hexdigest(),
    )
