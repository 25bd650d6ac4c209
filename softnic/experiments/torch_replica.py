"""One rank's copy of a PyTorch model, with its optimizer and its timeline.

All parameters lie in one float32 array in registered memory, and so do their gradients. PyTorch computes on views of
both; gradient methods get views by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from softnic.experiments.data import Floats
from softnic.experiments.replica import Replica
from softnic.experiments.timeline import WHOLE, Phase, Timeline
from softnic.ipc import regions

if TYPE_CHECKING:
    import torch
    from torch import nn

_EVALUATED_AT_A_TIME = 500
"""Test samples per forward pass."""


class TorchReplica(Replica):
    """A PyTorch model with SGD. Its gradients are exchanged all at once, as one layer.

    `rate_at` returns the learning rate of a step, from 0. The model's parameters move to this replica's array.
    """

    def __init__(
        self, model: nn.Module, rate_at: Callable[[int], float], momentum: float, weight_decay: float = 0.0
    ) -> None:
        import torch

        modules = dict(model.named_parameters())
        count = sum(parameter.numel() for parameter in modules.values())
        super().__init__(regions.zeros(count), regions.zeros(count), [slice(0, count)], Timeline())
        self.model = model
        self._rate_at = rate_at
        self._steps = 0
        self._loss: torch.Tensor | None = None
        self._shapes = {name: tuple(parameter.shape) for name, parameter in modules.items()}
        self.named_parameters = self.named(self.parameters)
        """Views by name, in the parameters' shapes."""
        self._named_gradients = {name: gradient.reshape(-1) for name, gradient in self.named(self.gradients).items()}
        for name, parameter in modules.items():
            moved = torch.from_numpy(self.named_parameters[name])
            moved.copy_(parameter.data)
            parameter.data = moved
            parameter.grad = torch.from_numpy(self._named_gradients[name]).view_as(parameter)
        self._optimizer = torch.optim.SGD(modules.values(), lr=rate_at(0), momentum=momentum, weight_decay=weight_decay)

    def named(self, flat: Floats) -> dict[str, Floats]:
        ends = np.cumsum([math.prod(shape) for shape in self._shapes.values()]).tolist()
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    @property
    def named_gradients(self) -> dict[str, Floats]:
        """One-dimensional views by name."""
        return self._named_gradients

    def disable_momentum(self) -> None:
        """Take steps without momentum from now on, for methods with a momentum of their own."""
        for group in self._optimizer.param_groups:
            group["momentum"] = 0.0

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        self.gradients.fill(0)
        self._loss = _cross_entropy(self.model.train()(inputs), labels)
        return float(self._loss.detach())

    def backward(self) -> Iterator[int]:
        if self._loss is not None:
            self._loss.backward()  # type: ignore[no-untyped-call]
            self._loss = None
        yield 0

    def accumulate(self, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """Compute the gradients of the mean loss of batches of one size, and return that loss."""
        self.gradients.fill(0)
        total = 0.0
        for inputs, labels in batches:
            loss = _cross_entropy(self.model.train()(inputs), labels) / len(batches)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def update(self, layer: int = WHOLE) -> None:
        self.timeline.enter(Phase.UPDATE, layer)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate_at(self._steps)
        self._optimizer.step()
        self._steps += 1

    def updated_weights(self) -> dict[str, Floats]:
        return self.named_parameters

    def error(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        _, correct, answers = self.evaluate(inputs, labels)
        return float(np.float32(answers - correct) / np.float32(answers))

    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, int, int]:
        """Return the summed cross-entropy in nats, the correct answers and all answers over these samples."""
        import torch

        loss, correct, answers = 0.0, 0, 0
        self.model.eval()
        with torch.no_grad():
            for start in range(0, len(inputs), _EVALUATED_AT_A_TIME):
                part = slice(start, start + _EVALUATED_AT_A_TIME)
                logits = self.model(inputs[part])
                loss += float(_cross_entropy(logits, labels[part])) * labels[part].numel()
                correct += int((logits.argmax(-1) == labels[part]).sum())
                answers += labels[part].numel()
        return loss, correct, answers


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, -2), labels.flatten())
