"""One rank's copy of a numpy model, and its optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softnic.experiments.data import Floats, Labels
from softnic.experiments.numpy_models import DenseNetwork
from softnic.experiments.replica import Replica
from softnic.experiments.timeline import WHOLE, Phase, Timeline


class MomentumSgd:
    """Stochastic gradient descent with momentum on any part of a flat vector.

    v = m v - r g; w = w + v (Sutskever et al., 2013). Without momentum, w = w - r g and no v is kept.
    """

    def __init__(self, count: int, rate: float = 0.01, momentum: float = 0.9) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)
        self._velocity: Floats = np.zeros(count if momentum else 0, dtype=np.float32)

    def step(self, parameters: Floats, gradients: Floats, part: slice = slice(None)) -> None:
        """Update a part of `parameters` in place. Overwrites that part of `gradients`."""
        slope, weights = gradients[part], parameters[part]
        slope *= self._rate
        if not self._velocity.size:
            weights -= slope
            return
        velocity = self._velocity[part]
        velocity *= self._momentum
        velocity -= slope
        weights += velocity


class NumpyReplica(Replica):
    """A DenseNetwork with its optimizer.

    `master` are full-precision weights that an aggregator updates while the model keeps the workers' rounded ones.
    """

    def __init__(
        self, model: DenseNetwork, optimizer: MomentumSgd, timeline: Timeline, master: Floats | None = None
    ) -> None:
        super().__init__(model.parameters, model.gradients, model.layers, timeline)
        self.model = model
        self.optimizer = optimizer
        self.master = master

    def forward(self, inputs: Floats, labels: Labels) -> float:
        return self.model.forward(inputs, labels)

    def backward(self) -> Iterator[int]:
        return self.model.backward()

    @property
    def named_gradients(self) -> dict[str, Floats]:
        return self.model.named(self.gradients)

    def error(self, inputs: Floats, labels: Labels) -> float:
        return 1 - self.model.accuracy(inputs, labels)

    def named(self, flat: Floats) -> dict[str, Floats]:
        return self.model.named(flat)

    def update(self, layer: int = WHOLE) -> None:
        self.timeline.enter(Phase.UPDATE, layer)
        weights = self.parameters if self.master is None else self.master
        self.optimizer.step(weights, self.gradients, self.slice_of(layer))

    def updated_weights(self) -> dict[str, Floats]:
        return self.model.named(self.parameters if self.master is None else self.master)

    def rounded_weights(self) -> dict[str, Floats] | None:
        return None if self.master is None else self.model.named(self.parameters)
