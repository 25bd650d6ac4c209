"""Fully connected layers with ReLU between them, layer by layer: what all models here are made of.

All weights and biases lie in one flat float32 vector, and so do their gradients: what a rank exchanges is one array,
or a layer's slice of it, and a step is arithmetic on whole vectors. Both lie in registered memory, so that NICs read
gradients and write sums where they are. Everything is float32 and drawn from the caller's generator, so ranks that
start from one seed start from the same bits.

A training step is `forward`, then `backward`, which stops after every layer, the last one first: its gradients may be
sent and its weights changed while the layers below it still compute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from softnic.experiments.train.data import Floats, Labels
from softnic.ipc import regions

WHOLE = -1
"""The layer that stands for all of them."""


class _Layer(NamedTuple):
    """Views of one layer's part of a flat vector."""

    weights: Floats
    """(inputs, outputs)"""
    biases: Floats
    """(outputs,), or none at all."""


class Network(ABC):
    """`parameters` and `gradients` are the flat vectors; writing to them changes the model in place.

    `sizes` are the widths from the inputs to the outputs. Weights start Gaussian with variance 2 / inputs, which keeps
    the scale of activations through layers of ReLU (He et al., 2015), biases at zero.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, *, biases: bool = True) -> None:
        shapes = self._shapes = list(pairwise(sizes))
        counts = [(inputs + biases) * outputs for inputs, outputs in shapes]
        ends = np.cumsum(counts).tolist()
        self.layers = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        """Where each layer's part of the flat vectors is, from the inputs on."""
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
        """The most likely class of each row."""

    @abstractmethod
    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        """The mean loss of a batch, and its derivative by each of the outputs."""

    def part(self, layer: int) -> slice:
        """Where in the flat vectors a layer lies, or WHOLE."""
        return slice(None) if layer == WHOLE else self.layers[layer]

    def named(self, flat: Floats) -> dict[str, Floats]:
        """The arrays that a flat vector (of parameters, say) consists of, as views: `0.weights`, `0.biases`, ..."""
        arrays = {
            f"{layer}.{what}": array
            for layer, views in enumerate(self._views(flat))
            for what, array in views._asdict().items()
        }
        return {name: array for name, array in arrays.items() if array.size}

    def forward(self, inputs: Floats, labels: Labels) -> float:
        """The mean loss of a batch; keeps what `backward` needs."""
        self._activations = self._outputs(inputs)
        loss, self._delta = self._loss(self._activations[-1], labels)
        return loss

    def backward(self) -> Iterator[int]:
        """Fills `gradients` with those of the last `forward`, layer by layer, the last one first.

        Yields the number of each layer once its gradients are complete and its weights are needed no more.
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

    def learn(self, inputs: Floats, labels: Labels) -> float:
        """`forward` and all of `backward`. Returns the loss."""
        loss = self.forward(inputs, labels)
        for _ in self.backward():
            pass
        return loss

    def accuracy(self, inputs: Floats, labels: Labels) -> float:
        """The share of rows, 0..1, that are given their label."""
        return float(np.mean(self.predict(inputs) == labels))

    def _outputs(self, inputs: Floats) -> list[Floats]:
        """The input of every layer, then the outputs."""
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
        """Of each layer."""
        views = []
        for part, (inputs, outputs) in zip(self.layers, self._shapes, strict=True):
            own = flat[part]
            views.append(_Layer(own[: inputs * outputs].reshape(inputs, outputs), own[inputs * outputs :]))
        return views
