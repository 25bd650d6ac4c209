"""Training by gradient exchange, as Algorithm 1 of Li et al. (MICRO 2018) has it, seen from one rank.

1. Every rank starts from the same weights (one seed) and keeps a part of the training set to itself.
2. A step: draw a mini-batch, compute the gradients of its mean loss.
3. Sum them over all ranks, by whichever strategy, compressed or not; divide by the number of ranks.
4. Every rank takes the same optimizer step, on the same bits; so weights never need to be sent (but by an aggregator,
   which takes the step for all).

Gradients are divided after the sum, as a part of the step, because that is what the paper's nodes exchange; the
codec's threshold is absolute, so dividing before would lose more of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from softnic.experiments import numpy_models
from softnic.experiments.data import DataSet, batches
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.strategies import Aggregator, Strategy
from softnic.experiments.timeline import Iteration, Phase, Timeline, breakdowns


class Group(Protocol):
    """The ranks that train together, as one of them sees it."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int:
        """Those that have gradients: an aggregator is not counted."""

    def strategy(self, replica: NumpyReplica) -> Strategy: ...

    def barrier(self) -> None:
        """Returns once all ranks have come here."""

    def gather(self, thing: list[Iteration]) -> list[list[Iteration]]:
        """What every rank gave, by rank."""


class Aggregated(Group, Protocol):
    """A group with one more rank."""

    def aggregator(self, replica: NumpyReplica) -> Aggregator: ...


@dataclass(frozen=True)
class TrainingPlan:
    """How to train. The defaults are the ones that the paper's digit classifier is shown with here."""

    steps: int
    batch: int = 25
    """Samples a rank and step."""
    rate: float = 0.01
    momentum: float = 0.9
    seed: int = 7
    model: str = "hdc"
    """As models.py names them."""


@dataclass(frozen=True)
class Outcome:
    """What one rank has to tell when it is through."""

    rank: int
    accuracy: float
    """On the test set, 0..1."""
    loss: float
    """Mean over the last tenth of the steps, of this rank's batches; 0 of an aggregator, which has none."""
    exchange_s: float
    """Exposed: see timeline.py. Waiting for a rank that still computes is no exchange. 0 of an aggregator."""
    total_s: float
    exchanged_bytes: int
    """Of this rank's gradients, summed over the steps, as they are without a codec."""
    weights: str
    """Digest of the final weights; the same on every rank."""
    weights_bytes: int = 0
    """Of weights, as they travelled from an aggregator to each worker; 0 where there is none."""


@dataclass(frozen=True)
class Trained:
    """All that is known of a rank when it is through."""

    outcome: Outcome
    replica: NumpyReplica
    losses: list[float] = field(repr=False)
    """Of this rank's batches, a step each. Empty for an aggregator, which has none."""
    cpu_s: float
    """Of this process, all threads, for all steps."""


def train(
    data: DataSet, plan: TrainingPlan, group: Group, on_step: Callable[[int, float], None] = lambda _step, _loss: None
) -> Trained:
    """Trains this rank's copy of the model. `on_step` is told the steps done and the batch's loss."""
    replica = _replica(data, plan, group)
    model, timeline = replica.model, replica.timeline
    strategy = group.strategy(replica)
    inputs, labels = data.train_inputs[group.rank :: group.size], data.train_labels[group.rank :: group.size]
    draws = batches(len(labels), plan.batch, np.random.default_rng([plan.seed, group.rank]))
    losses: list[float] = []
    group.barrier()
    cpu_s = time.process_time()
    for step in range(plan.steps):
        timeline.start()
        timeline.enter(Phase.FORWARD)
        drawn = next(draws)
        losses.append(model.forward(inputs[drawn], labels[drawn]))
        timeline.enter(Phase.BACKWARD, len(model.layers) - 1)
        for layer in model.backward():
            strategy.ready(layer)
            if layer:
                timeline.enter(Phase.BACKWARD, layer - 1)
        strategy.finish()
        timeline.stop()
        on_step(step + 1, losses[-1])
    cpu_s = time.process_time() - cpu_s
    return Trained(_outcome(data, plan, group, replica, losses), replica, losses, cpu_s)


def aggregate(data: DataSet, plan: TrainingPlan, group: Aggregated) -> Trained:
    """What the aggregator does meanwhile."""
    replica = _replica(data, plan, group)
    aggregator = group.aggregator(replica)
    group.barrier()
    cpu_s = time.process_time()
    for _ in range(plan.steps):
        replica.timeline.start()
        aggregator.serve()
        replica.timeline.stop()
    cpu_s = time.process_time() - cpu_s
    return Trained(_outcome(data, plan, group, replica, []), replica, [], cpu_s)


def _replica(data: DataSet, plan: TrainingPlan, group: Group) -> NumpyReplica:
    model = numpy_models.build(plan.model, data.features, np.random.default_rng(plan.seed))
    return NumpyReplica(model, MomentumSgd(len(model.parameters), plan.rate / group.size, plan.momentum), Timeline())


def _outcome(data: DataSet, plan: TrainingPlan, group: Group, replica: NumpyReplica, losses: list[float]) -> Outcome:
    model, iterations = replica.model, replica.timeline.iterations
    last = losses[-max(1, plan.steps // 10) :]
    own = [each[group.rank] for each in map(breakdowns, zip(*group.gather(iterations), strict=True)) if losses]
    return Outcome(
        rank=group.rank,
        accuracy=model.accuracy(data.test_inputs, data.test_labels),
        loss=float(np.mean(last)) if last else 0.0,
        exchange_s=sum(each.exchange for each in own),
        total_s=iterations[-1].end - iterations[0].begin,
        exchanged_bytes=model.gradients.nbytes * plan.steps,
        weights=hashlib.sha256(model.parameters.tobytes()).hexdigest(),
    )
