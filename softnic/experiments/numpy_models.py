"""Models in numpy: fully connected layers with ReLU between them, computed layer by layer.

All weights and biases lie in one flat float32 vector, and all gradients in another. Ranks exchange one array or a
layer's slice of it, and an optimizer step is arithmetic on whole vectors. Both vectors lie in registered memory, so
NICs read gradients and write sums in place. Ranks that start from one seed start from the same bits.

A training step is `forward`, then `backward`, which yields after every layer, the last layer first: the gradients of
that layer may be sent and its weights changed while the layers below are still computed.

- `hdc`: the digit classifier of Li et al. (MICRO 2018): five fully connected layers, softmax cross-entropy.
- `mlp:LAYERSxWIDTH`: the multi-layer perceptron of Ma et al. (arXiv 2204.10943, section III): L layers of M x M
  weights, no biases, squared error.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from softnic.experiments.data import CLASSES, Floats, Labels
from softnic.ipc import regions

HIDDEN = (500, 500, 500, 500)
"""Widths of HDC's hidden layers."""
LAYERS = 20
WIDTH = 2048
"""The perceptron's L and M in the paper."""
_NOISE = 0.1
"""Share of the usual initial weights that is added to the identity. Without the identity, twenty layers of ReLU without
biases map all inputs to nearly the same direction and learn nothing (Le et al., 2015, for recurrent networks)."""
_MLP = re.compile(r"mlp(?::([1-9][0-9]{0,3})x([1-9][0-9]{0,4}))?")
HELP = f"hdc, or mlp:LAYERSxWIDTH; mlp alone is mlp:{LAYERS}x{WIDTH}"


class _Layer(NamedTuple):
    """Views of one layer's part of a flat vector."""

    weights: Floats
    """(inputs, outputs)"""
    biases: Floats
    """(outputs,), or empty."""


class DenseNetwork(ABC):
    """Network of fully connected layers over two flat vectors, `parameters` and `gradients`.

    `sizes` are the widths from the inputs to the outputs. Weights start Gaussian with variance 2 / inputs, which keeps
    the scale of activations through layers of ReLU (He et al., 2015); biases start at zero. Writing to the vectors
    changes the model in place.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, *, biases: bool = True) -> None:
        shapes = self._shapes = list(pairwise(sizes))
        counts = [(inputs + biases) * outputs for inputs, outputs in shapes]
        ends = np.cumsum(counts).tolist()
        self.layers = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        """Slice of each layer in the flat vectors, from the inputs on."""
        self.parameters: Floats = regions.zeros(sum(counts))
        self.gradients: Floats = regions.zeros(sum(counts))
        self._weights = self._views(self.parameters)
        self._slopes = self._views(self.gradients)
        self._activations: list[Floats] = []
        self._delta: Floats = np.empty(0, np.float32)
        for layer in self._weights:
            scale = np.float32(np.sqrt(2 / layer.weights.shape[0]))
            layer.weights[:] = rng.standard_normal(layer.weights.shape, dtype=np.float32) * scale

    @abstractmethod
    def predict(self, inputs: Floats) -> Labels:
        """Return the most likely class of each row."""

    @abstractmethod
    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        """Return the mean loss of a batch and its derivative by each output."""

    def named(self, flat: Floats) -> dict[str, Floats]:
        """Return views of the arrays in a flat vector by name: `0.weights`, `0.biases`, ..."""
        arrays = {
            f"{layer}.{kind}": array
            for layer, views in enumerate(self._views(flat))
            for kind, array in views._asdict().items()
        }
        return {name: array for name, array in arrays.items() if array.size}

    def forward(self, inputs: Floats, labels: Labels) -> float:
        """Return the mean loss of a batch, and keep the activations for `backward`."""
        self._activations = self._outputs(inputs)
        loss, self._delta = self._loss(self._activations[-1], labels)
        return loss

    def backward(self) -> Iterator[int]:
        """Fill `gradients` with those of the last `forward`, the last layer first.

        Yields the number of each layer once its gradients are complete and its weights are no longer needed.
        """
        for layer in range(len(self.layers) - 1, -1, -1):
            below, slopes, delta = self._activations[layer], self._slopes[layer], self._delta
            np.matmul(below.T, delta, out=slopes.weights)
            if slopes.biases.size:
                np.sum(delta, axis=0, out=slopes.biases)
            if layer:
                self._delta = delta @ self._weights[layer].weights.T
                self._delta *= below > 0
            yield layer

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        """Run `forward` and all of `backward`, and return the loss."""
        loss = self.forward(inputs, labels)
        for _ in self.backward():
            pass
        return loss

    def accuracy(self, inputs: Floats, labels: Labels) -> float:
        """Return the share of rows, 0..1, that are classified correctly."""
        return float(np.mean(self.predict(inputs) == labels))

    def _outputs(self, inputs: Floats) -> list[Floats]:
        """Return the input of every layer, then the outputs."""
        activations = [inputs]
        for index, layer in enumerate(self._weights):
            sums = activations[-1] @ layer.weights
            if layer.biases.size:
                sums += layer.biases
            if index < len(self._weights) - 1:
                np.maximum(sums, 0, out=sums)
            activations.append(sums)
        return activations

    def _views(self, flat: Floats) -> list[_Layer]:
        views = []
        for part, (inputs, outputs) in zip(self.layers, self._shapes, strict=True):
            own = flat[part]
            views.append(_Layer(own[: inputs * outputs].reshape(inputs, outputs), own[inputs * outputs :]))
        return views


class Classifier(DenseNetwork):
    """HDC. Labels are class numbers, outputs are logits."""

    def __init__(self, features: int, rng: np.random.Generator, hidden: tuple[int, ...] = HIDDEN) -> None:
        super().__init__((features, *hidden, CLASSES), rng)

    def predict(self, inputs: Floats) -> Labels:
        best: Labels = np.argmax(self._outputs(inputs)[-1], axis=1)
        return best

    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        rows = np.arange(len(labels))
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
        # Derivative of softmax and cross-entropy together: probabilities minus one-hot labels.
        delta = exponentials / sums
        delta[rows, labels] -= 1
        delta /= np.float32(len(labels))
        return loss, delta


class Perceptron(DenseNetwork):
    """Multi-layer perceptron whose layers all take the same time to compute and to exchange.

    Inputs of any data set are projected to `width` numbers, and each class has a code of `width` signs, the target of
    the outputs. Projection and codes are fixed and the same on every rank.
    """

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
        """Return the class whose code is nearest to the outputs; all codes have the same length."""
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


class DefaultRates(NamedTuple):
    """Default learning rate and momentum of a model."""

    rate: float
    momentum: float


def build(name: str, features: int, rng: np.random.Generator) -> DenseNetwork:
    """Return a new model with weights drawn from `rng`. Raises ValueError for an unknown name."""
    if name == "hdc":
        return Classifier(features, rng)
    layers, width = _shape(name)
    return Perceptron(features, rng, layers, width)


def check(name: str) -> str:
    """Return the name. Raises ValueError for an unknown one."""
    if name != "hdc":
        _shape(name)
    return name


def rates(name: str) -> DefaultRates:
    """Return the default rates of a model."""
    return DefaultRates(0.01, 0.9) if name == "hdc" else DefaultRates(0.1, 0.0)


def _shape(name: str) -> tuple[int, int]:
    found = _MLP.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a model: {HELP}")
    return int(found[1] or LAYERS), int(found[2] or WIDTH)
