"""Several workers of one process: the loop of the papers' trainings.

All workers hold the same weights, so one replica serves them. Each is a `TrainingLoop` that keeps the gradients of its
batches. When all have theirs, the exchange is computed without a network (`inceptionn.emulate`), and one step moves the
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.inceptionn.emulate import EmulatedExchange, exact_sum
from softnic.experiments.data import DataSet, Floats, batches_of_rank
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.replica import Replica
from softnic.experiments.strategies import Strategy
from softnic.experiments.torch_models import TorchData
from softnic.experiments.trainer import TrainingLoop

Batches = Iterator[tuple[Any, Any]]
"""Inputs and labels, without end."""
Step = Callable[[int, Floats], object]
"""Moves the weights with the mean of the workers' gradients, which it may overwrite; its number counts from 0."""


def drawn(data: DataSet | TorchData, workers: int, batch: int, seed: int) -> list[Batches]:
    """Return each worker's batches."""
    inputs, labels = data.train_inputs, data.train_labels
    return [batches_of_rank(inputs, labels, worker, workers, batch, seed) for worker in range(workers)]


class Server:
    """SGD with momentum and weight decay on weights of its own, of which the workers have what it publishes.

    v = m v - r f (g + d w); w = w + v, with m, r and d the `momentum`, `rate` and `decay`, and f the factor of the rate
    at a step, from 0.
    """

    def __init__(
        self,
        replica: Replica,
        rate: float,
        momentum: float,
        decay: float,
        factor_at: Callable[[int], float] = lambda _step: 1.0,
    ) -> None:
        self._replica = replica
        self.weights = replica.parameters.copy()
        self._optimizer = MomentumSgd(self.weights.size, rate, momentum)
        self._decay = np.float32(decay)
        self._factor_at = factor_at

    def step(self, number: int, gradients: Floats) -> None:
        """Take a step and publish the weights."""
        self.update(number, gradients)
        self.publish()

    def update(self, number: int, gradients: Floats) -> None:
        """Take a step."""
        gradients += self._decay * self.weights
        gradients *= np.float32(self._factor_at(number))
        self._optimizer.step(self.weights, gradients)

    def publish(self) -> None:
        """Give the workers the weights."""
        self._replica.parameters[:] = self.weights


class Workers:
    """Workers that train together, each on batches of its own."""

    def __init__(
        self, replica: Replica, batches: Sequence[Batches], step: Step, exchange: EmulatedExchange = exact_sum
    ) -> None:
        self._replica = replica
        self._kept = [_Kept(replica) for _ in batches]
        self._loops = [TrainingLoop(replica, kept, own) for kept, own in zip(self._kept, batches, strict=True)]
        self._step = step
        self._exchange = exchange

    @property
    def gradients(self) -> list[Floats]:
        """Every worker's of the last step, before their exchange, in arrays that the next step overwrites."""
        return [each.gradients for each in self._kept]

    @property
    def loss(self) -> float:
        """Mean over the workers' last batches."""
        return float(np.mean([loop.losses[-1] for loop in self._loops]))

    def steps(self, count: int) -> Iterator[int]:
        """Train, and yield the number of steps taken after each."""
        mean = np.empty_like(self._replica.gradients)
        for number in range(count):
            for loop in self._loops:
                loop.step()
            self._replica.timeline.iterations.clear()
            self._exchange(self.gradients, mean)
            mean /= np.float32(len(self._loops))
            self._step(number, mean)
            yield number + 1


class _Kept(Strategy):
    """Keeps a worker's gradients."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.gradients = np.empty_like(replica.gradients)

    def finish(self) -> None:
        self.gradients[:] = self._replica.gradients
