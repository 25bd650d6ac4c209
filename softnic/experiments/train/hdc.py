"""HDC, the digit classifier of Li et al. (MICRO 2018): five fully connected layers, softmax cross-entropy."""

from __future__ import annotations

import numpy as np

from softnic.experiments.train.data import CLASSES, Floats, Labels
from softnic.experiments.train.network import Network

HIDDEN = (500, 500, 500, 500)
"""Widths of the hidden layers: with the output's, five fully connected layers."""


class Classifier(Network):
    """Labels are the classes themselves; outputs are logits."""

    def __init__(self, features: int, rng: np.random.Generator, hidden: tuple[int, ...] = HIDDEN) -> None:
        super().__init__((features, *hidden, CLASSES), rng)

    def predict(self, inputs: Floats) -> Labels:
        """The most likely class of each row."""
        best: Labels = np.argmax(self._outputs(inputs)[-1], axis=1)
        return best

    def _loss(self, outputs: Floats, labels: Labels) -> tuple[float, Floats]:
        rows = np.arange(len(labels))
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
        # d loss / d logits of softmax and cross-entropy together: probabilities less the one-hot labels.
        delta = exponentials / sums
        delta[rows, labels] -= 1
        delta /= np.float32(len(labels))
        return loss, delta
