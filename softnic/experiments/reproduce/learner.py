"""Training steps of one network, in numpy (HDC) or PyTorch.

A `Learner` has named arrays of weights and gradients, for trainings that exchange or round them. `FullSizeTraining`
accumulates gradients of large batches where memory is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from softnic.experiments.data import DataSet, Floats, Labels
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.reproduce import networks
from softnic.experiments.torch_replica import TorchReplica
from softnic.gradients.awp import leading

if TYPE_CHECKING:
    import torch
    from torch import nn

    Batch = tuple[torch.Tensor, torch.Tensor]
    """Images and their labels."""


class Learner(Protocol):
    """A network as a training sees it."""

    @property
    def weights(self) -> Mapping[str, Floats]:
        """The parameters that it computes with; writable."""

    @property
    def gradients(self) -> Mapping[str, Floats]:
        """The gradients of the last `forward_backward`, by parameter."""

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        """Compute `gradients` for a batch and return its mean loss."""

    def error(self, inputs: Floats, labels: Labels) -> float:
        """Return the share of rows, 0..1, that are classified wrongly."""


def learner(model: str, data: DataSet, seed: int) -> Learner:
    """Return the digit classifier (`hdc`), or a small network of PyTorch's. Raises ImportError without torch."""
    return _NumpyLearner(data.features, seed) if model == "hdc" else _TorchLearner(networks.build_small(model, seed))


def block_of(model: str) -> Callable[[str], str]:
    """Return the unit that AWP gives one precision (section IV-B): a residual block of ResNet, elsewhere a layer."""
    return leading(1) if model == "resnet50" else str


class _NumpyLearner:
    def __init__(self, features: int, seed: int) -> None:
        self._model = Classifier(features, np.random.default_rng(seed))
        self.weights = self._model.named(self._model.parameters)
        self.gradients = self._model.named(self._model.gradients)

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        return self._model.forward_backward(inputs, labels)

    def error(self, inputs: Floats, labels: Labels) -> float:
        return 1 - self._model.accuracy(inputs, labels)


class _TorchLearner:
    def __init__(self, network: nn.Module) -> None:
        self._replica = TorchReplica(network, lambda _step: 0.0, 0.0)
        self.weights = self._replica.named_parameters
        gradients = self._replica.named_gradients
        self.gradients = {name: gradients[name].reshape(array.shape) for name, array in self.weights.items()}

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        import torch

        loss = self._replica.forward(_images(inputs, networks.SMALL_SIDE), torch.from_numpy(labels))
        list(self._replica.backward())
        return loss

    def error(self, inputs: Floats, labels: Labels) -> float:
        import torch

        images = _images(inputs, networks.SMALL_SIDE)
        _, correct, answers = self._replica.evaluate(images, torch.from_numpy(labels))
        return float(np.float32(answers - correct) / np.float32(answers))


class FullSizeTraining:
    """Stochastic gradient descent with momentum and weight decay on one network of full size."""

    def __init__(self, model: nn.Module, rate: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        import torch

        self._model = model.train()
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, weight_decay=weight_decay)

    def accumulate(self, batches: Sequence[Batch]) -> float:
        """Compute the gradients of the mean loss of batches of one size, which is returned."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for images, labels in batches:
            loss = self._loss(self._model(images), labels) / len(batches)
            loss.backward()
            total += float(loss.detach())
        return total

    def gradients(self) -> Floats:
        """Return the gradients as one vector."""
        parts = [each.grad.numpy().ravel() for each in self._model.parameters() if each.grad is not None]
        flat: Floats = np.concatenate(parts)
        return flat

    def update(self) -> None:
        """Take a step with the gradients."""
        self._optimizer.step()


def enlarged(rows: Floats, labels: Labels, side: int) -> Batch:
    """Return square grey images as a batch of 3 x `side` x `side`, with mean 0 and variance 1 over the batch."""
    import torch

    large = _images(rows, side)
    large = (large - large.mean()) / large.std().clamp_min(1e-6)
    return large.expand(-1, 3, -1, -1).contiguous(), torch.from_numpy(np.ascontiguousarray(labels))


def _images(rows: Floats, side: int) -> torch.Tensor:
    """Return square grey images, a row each, as (n, 1, side, side)."""
    import torch

    size = math.isqrt(rows.shape[1])
    grey = torch.from_numpy(np.ascontiguousarray(rows)).reshape(-1, 1, size, size)
    if size == side:
        return grey
    return torch.nn.functional.interpolate(grey, size=(side, side), mode="bilinear", align_corners=False)
