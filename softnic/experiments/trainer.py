"""The training loop of one rank, for any model and strategy, as in Algorithm 1 of Li et al. (MICRO 2018).

1. Every rank starts from the same weights (one seed) and owns a part of the training set.
2. A step: draw a mini-batch and compute the gradients of its mean loss.
3. Exchange them by the strategy, compressed or not.
4. Every rank takes the same optimizer step on the same bits, or receives the weights of an aggregator that took it.

`train` runs it for models in numpy. Gradients are summed there and divided as a part of the step, because the paper's
nodes exchange undivided gradients; a codec's threshold is absolute, so dividing first would lose more of them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from softnic.experiments import numpy_models
from softnic.experiments.data import DataSet, batches_of_rank
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.replica import Replica
from softnic.experiments.strategies import Strategy
from softnic.experiments.timeline import Iteration, Phase, Timeline, breakdowns


class TrainingLoop:
    """One rank of a training. `batches` are inputs and labels; None: the rank is an aggregator, without gradients."""

    def __init__(self, replica: Replica, strategy: Strategy, batches: Iterator[tuple[Any, Any]] | None) -> None:
        self._replica = replica
        self._strategy = strategy
        self._batches = batches
        self.losses: list[float] = []
        """Mean loss of each batch."""

    def step(self) -> None:
        """Train one step. The replica's timeline gets one more iteration."""
        timeline = self._replica.timeline
        timeline.start()
        if self._batches is not None:
            timeline.enter(Phase.FORWARD)
            self.losses.append(self._replica.forward(*next(self._batches)))
            timeline.enter(Phase.BACKWARD, len(self._replica.layers) - 1)
            for layer in self._replica.backward():
                self._strategy.ready(layer)
                if layer:
                    timeline.enter(Phase.BACKWARD, layer - 1)
        self._strategy.finish()
        timeline.stop()


class TrainingGroup(Protocol):
    """The ranks that train together, as one of them sees them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int:
        """Number of ranks with gradients. An aggregator is the rank of this number."""

    def strategy(self, replica: NumpyReplica) -> Strategy: ...

    def barrier(self) -> None:
        """Return once all ranks have called this."""

    def gather(self, thing: list[Iteration]) -> list[list[Iteration]]:
        """Return what every rank passed, by rank."""


@dataclass(frozen=True)
class TrainingPlan:
    """Training of a model in numpy. The defaults are those of `softnic demo`."""

    steps: int
    batch: int = 25
    """Samples per rank and step."""
    rate: float = 0.01
    momentum: float = 0.9
    seed: int = 7
    model: str = "hdc"
    """As in numpy_models."""


@dataclass(frozen=True)
class RankOutcome:
    """Result of one rank."""

    rank: int
    accuracy: float
    """On the test set, 0..1."""
    loss: float
    """Mean over the last tenth of the steps of this rank's batches; 0 for an aggregator, which has none."""
    exchange_s: float
    """Exposed exchange (timeline.py). 0 for an aggregator."""
    total_s: float
    exchanged_bytes: int
    """This rank's gradients over all steps, uncompressed."""
    weights: str
    """Digest of the final weights; the same on every rank."""
    weights_bytes: int = 0
    """Weights as they travelled from an aggregator to each worker; 0 without an aggregator."""


@dataclass(frozen=True)
class RankRun:
    """What one rank did."""

    outcome: RankOutcome
    iterations: list[Iteration] = field(repr=False)
    losses: list[float] = field(repr=False)
    """Of its batches, one per step; empty for an aggregator."""
    cpu_s: float
    """CPU time of its process for all steps."""


def train(
    data: DataSet,
    plan: TrainingPlan,
    group: TrainingGroup,
    on_step: Callable[[int, float], None] = lambda _step, _loss: None,
) -> tuple[RankRun, NumpyReplica]:
    """Train this rank's copy of a model in numpy, or aggregate.

    `on_step` receives the number of steps done and the last batch's loss. Returns the trained replica, too.
    """
    model = numpy_models.build(plan.model, data.features, np.random.default_rng(plan.seed))
    optimizer = MomentumSgd(len(model.parameters), plan.rate / group.size, plan.momentum)
    replica = NumpyReplica(model, optimizer, Timeline())
    rank, size = group.rank, group.size
    draws = batches_of_rank(data.train_inputs, data.train_labels, rank, size, plan.batch, plan.seed)
    trainer = TrainingLoop(replica, group.strategy(replica), draws if rank < size else None)
    group.barrier()
    cpu_s = time.process_time()
    for step in range(plan.steps):
        trainer.step()
        if trainer.losses:
            on_step(step + 1, trainer.losses[-1])
    cpu_s = time.process_time() - cpu_s
    outcome = _outcome(data, plan, group, replica, trainer.losses)
    return RankRun(outcome, replica.timeline.iterations, trainer.losses, cpu_s), replica


def _outcome(
    data: DataSet, plan: TrainingPlan, group: TrainingGroup, replica: NumpyReplica, losses: list[float]
) -> RankOutcome:
    model, iterations = replica.model, replica.timeline.iterations
    last = losses[-max(1, plan.steps // 10) :]
    own = [each[group.rank] for each in map(breakdowns, zip(*group.gather(iterations), strict=True)) if losses]
    return RankOutcome(
        rank=group.rank,
        accuracy=model.accuracy(data.test_inputs, data.test_labels),
        loss=float(np.mean(last)) if last else 0.0,
        exchange_s=sum(each.exchange for each in own),
        total_s=iterations[-1].end - iterations[0].begin,
        exchanged_bytes=model.gradients.nbytes * plan.steps,
        weights=hashlib.sha256(model.parameters.tobytes()).hexdigest(),
    )
