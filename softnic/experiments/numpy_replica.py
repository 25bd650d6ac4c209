"""One rank's copy of a numpy model, with its optimizer and its timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from softnic.experiments.data import Floats, Labels
from softnic.experiments.numpy_models import DenseNetwork
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


@dataclass(frozen=True)
class NumpyReplica:
    """Model, optimizer and timeline of one rank."""

    model: DenseNetwork
    optimizer: MomentumSgd
    timeline: Timeline
    master: Floats | None = None
    """Full-precision weights that an aggregator updates where the workers' weights are rounded. None: the model's."""

    @property
    def parameters(self) -> Floats:
        return self.model.parameters

    @property
    def gradients(self) -> Floats:
        return self.model.gradients

    @property
    def layers(self) -> int:
        return len(self.model.layers)

    def slice_of(self, layer: int) -> slice:
        """Return the slice of a layer, or of WHOLE, in the flat vectors."""
        return self.model.slice_of(layer)

    def forward(self, inputs: Floats, labels: Labels) -> float:
        """Return the mean loss of a batch."""
        return self.model.forward(inputs, labels)

    def backward(self) -> Iterator[int]:
        """Compute the gradients of the last `forward`, and yield each layer whose gradients are complete."""
        return self.model.backward()

    def update(self, layer: int = WHOLE) -> None:
        """Take the optimizer step of one layer, or of all, with the model's gradients."""
        self.timeline.enter(Phase.UPDATE, layer)
        weights = self.model.parameters if self.master is None else self.master
        self.optimizer.step(weights, self.model.gradients, self.model.slice_of(layer))

    def updated_weights(self) -> dict[str, Floats]:
        """Return the weights that `update` changes, by name."""
        return self.model.named(self.model.parameters if self.master is None else self.master)

    def rounded_weights(self) -> dict[str, Floats] | None:
        """Return the model's weights by name if they are the workers' rounded ones, else None."""
        return None if self.master is None else self.model.named(self.model.parameters)
