"""HDC, the digit classifier of Li et al. (MICRO 2018): fully connected layers with ReLU, softmax cross-entropy.

All weights and biases lie in one flat float32 vector, and so do their gradients: what a rank exchanges is one array,
and a step is arithmetic on whole vectors. Everything is float32 and drawn from the caller's generator, so ranks that
start from one seed start from the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softnic.train.data import CLASSES, Floats, Labels

HIDDEN = (500, 500, 500, 500)
"""Widths of the hidden layers: with the output's, five fully connected layers."""


class _Layer(NamedTuple):
    """Views of one layer's part of a flat vector."""

    weights: Floats
    """(inputs, outputs)"""
    biases: Floats
    """(outputs,)"""


class Classifier:
    """`parameters` and `gradients` are the flat vectors; writing to them changes the model in place.

    Weights start Gaussian with variance 2 / inputs, which keeps the scale of activations through layers of ReLU (He
    et al., 2015), biases at zero.
    """

    def __init__(self, features: int, rng: np.random.Generator, hidden: tuple[int, ...] = HIDDEN) -> None:
        self._sizes = (features, *hidden, CLASSES)
        count = sum((inputs + 1) * outputs for inputs, outputs in self._shapes())
        self.parameters: Floats = np.zeros(count, dtype=np.float32)
        self.gradients: Floats = np.zeros(count, dtype=np.float32)
        self._layers = self._views(self.parameters)
        self._gradient_layers = self._views(self.gradients)
        for layer in self._layers:
            scale = np.float32(np.sqrt(2 / layer.weights.shape[0]))
            layer.weights[:] = rng.standard_normal(layer.weights.shape, dtype=np.float32) * scale

    def backward(self, inputs: Floats, labels: Labels) -> float:
        """Fills `gradients` with those of the mean loss of a batch. Returns the loss."""
        activations = self._forward(inputs)
        logits = activations[-1]
        rows = np.arange(len(labels))
        shifted = logits - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
        # d loss / d logits of softmax and cross-entropy together: probabilities less the one-hot labels.
        delta = exponentials / sums
        delta[rows, labels] -= 1
        delta /= np.float32(len(labels))
        for index in range(len(self._layers) - 1, -1, -1):
            below, gradient = activations[index], self._gradient_layers[index]
            np.matmul(below.T, delta, out=gradient.weights)
            np.sum(delta, axis=0, out=gradient.biases)
            if index:
                delta = (delta @ self._layers[index].weights.T) * (below > 0)
        return loss

    def predict(self, inputs: Floats) -> Labels:
        """The most likely class of each row."""
        best: Labels = np.argmax(self._forward(inputs)[-1], axis=1)
        return best

    def accuracy(self, inputs: Floats, labels: Labels) -> float:
        """The share of rows, 0..1, that are given their label."""
        return float(np.mean(self.predict(inputs) == labels))

    def _forward(self, inputs: Floats) -> list[Floats]:
        """The input of every layer, then the logits."""
        activations = [inputs]
        for index, layer in enumerate(self._layers):
            sums = activations[-1] @ layer.weights + layer.biases
            activations.append(np.maximum(sums, 0) if index < len(self._layers) - 1 else sums)
        return activations

    def _shapes(self) -> list[tuple[int, int]]:
        return list(zip(self._sizes, self._sizes[1:], strict=False))

    def _views(self, flat: Floats) -> list[_Layer]:
        layers, at = [], 0
        for inputs, outputs in self._shapes():
            biases = at + inputs * outputs
            layers.append(_Layer(flat[at:biases].reshape(inputs, outputs), flat[biases : biases + outputs]))
            at = biases + outputs
        return layers


class Momentum:
    """Stochastic gradient descent with momentum (Sutskever et al., 2013): v = m v - r g; w = w + v."""

    def __init__(self, count: int, rate: float = 0.01, momentum: float = 0.9) -> None:
        self.rate = np.float32(rate)
        self.momentum = np.float32(momentum)
        self._velocity: Floats = np.zeros(count, dtype=np.float32)
        self._scaled: Floats = np.empty(count, dtype=np.float32)

    def step(self, parameters: Floats, gradients: Floats) -> None:
        """Moves `parameters` by one step, in place."""
        self._velocity *= self.momentum
        np.multiply(gradients, self.rate, out=self._scaled)
        self._velocity -= self._scaled
        parameters += self._velocity
