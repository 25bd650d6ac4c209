"""Stochastic gradient descent with momentum, on any part of a flat vector at a time."""

from __future__ import annotations

import numpy as np

from softnic.experiments.train.data import Floats


class Momentum:
    """v = m v - r g; w = w + v (Sutskever et al., 2013). Without momentum, w = w - r g, there is no v to keep."""

    def __init__(self, count: int, rate: float = 0.01, momentum: float = 0.9) -> None:
        self._rate = np.float32(rate)
        self._momentum = np.float32(momentum)
        self._velocity: Floats = np.zeros(count if momentum else 0, dtype=np.float32)

    def step(self, parameters: Floats, gradients: Floats, part: slice = slice(None)) -> None:
        """Moves a part of `parameters` by one step, in place, and uses up that part of `gradients`."""
        slope, weights = gradients[part], parameters[part]
        slope *= self._rate
        if not self._velocity.size:
            weights -= slope
            return
        velocity = self._velocity[part]
        velocity *= self._momentum
        velocity -= slope
        weights += velocity
