"""The multi-layer perceptron of Ma et al. (arXiv 2204.10943, section III): L layers of M x M weights, no biases,
squared error.

Every layer has the same size, so each takes as long as any other to compute and to exchange: that is what makes its
traces readable. What it learns is small: inputs of any data set are projected to M numbers, and each class has a code
of M signs that the outputs are to come near. Projection and codes are fixed, and the same on every rank.
"""

from __future__ import annotations

import numpy as np

from softnic.experiments.train.data import CLASSES, Floats, Labels
from softnic.experiments.train.network import Network

LAYERS = 20
WIDTH = 2048
"""The paper's L and M."""
_NOISE = 0.1
"""Of the usual initial weights; the rest is the identity, without which twenty layers of ReLU without biases give all
inputs nearly the same direction, and learn nothing (Le et al., 2015, for recurrent ones)."""


class Perceptron(Network):
    """`features` are those of the data, `width` is M."""

    def __init__(self, features: int, rng: np.random.Generator, layers: int = LAYERS, width: int = WIDTH) -> None:
        fixed = np.random.default_rng([features, width])
        self._projection = fixed.standard_normal((features, width), dtype=np.float32) / np.float32(np.sqrt(features))
        self._codes: Floats = fixed.choice(np.array([-1, 1], np.float32), (CLASSES, width))
        super().__init__([width] * (layers + 1), rng, biases=False)
        for layer in self._weights:
            weights = layer.weights
            weights *= np.float32(_NOISE)
            np.fill_diagonal(weights, weights.diagonal() + 1)

    def predict(self, inputs: Floats) -> Labels:
        """The class whose code is nearest to the outputs: all codes are of one length."""
        best: Labels = np.argmax(self._outputs(inputs)[-1] @ self._codes.T, axis=1)
        return best

    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        """Squared error, the mean over rows and outputs."""
        delta = outputs - self._codes[labels]
        loss = float(np.mean(np.square(delta)))
        delta *= np.float32(2 / delta.size)
        return loss, delta

    def _outputs(self, inputs: Floats) -> list[Floats]:
        return super()._outputs(inputs @ self._projection)
