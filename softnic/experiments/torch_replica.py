"""One rank's copy of a model, whose parameters and gradients lie where NICs read and write them.

All parameters lie one behind the other in one float32 array, and so do their gradients: PyTorch computes on views of
both, by name the methods see others. A step is torch's own SGD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic.experiments.compare.plan import Training
from softnic.experiments.data import Floats
from softnic.ipc import regions

if TYPE_CHECKING:
    import torch
    from torch import nn

_JUDGED_AT_A_TIME = 500
"""Test samples that go through the model at once."""


class TorchReplica:
    """The model with its optimizer, whose momentum is the training's, or a method's own (`leave_momentum`)."""

    def __init__(self, model: nn.Module, training: Training) -> None:
        import torch

        self.model = model
        self._training = training
        self._step = 0
        given = dict(model.named_parameters())
        count = sum(parameter.numel() for parameter in given.values())
        self.flat_parameters: Floats = regions.zeros(count)
        self.flat_gradients: Floats = regions.zeros(count)
        self.parameters: dict[str, Floats] = {}
        """Views by name, in the parameters' shapes."""
        self.gradients: dict[str, Floats] = {}
        """Views by name, of one dimension."""
        start = 0
        for name, parameter in given.items():
            part = slice(start, start + parameter.numel())
            self.parameters[name] = self.flat_parameters[part].reshape(parameter.shape)
            self.gradients[name] = self.flat_gradients[part]
            moved = torch.from_numpy(self.parameters[name])
            moved.copy_(parameter.data)
            parameter.data = moved
            parameter.grad = torch.from_numpy(self.gradients[name]).view_as(parameter)
            start = part.stop
        self._optimizer = torch.optim.SGD(given.values(), lr=training.rate, momentum=training.momentum)

    def leave_momentum(self) -> None:
        """Takes steps without momentum from now on: a method brings its own."""
        for group in self._optimizer.param_groups:
            group["momentum"] = 0.0

    def forward_backward(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        """Computes the gradients of a batch's mean loss, which it returns. The parameters stay."""
        self.flat_gradients.fill(0)
        loss = _loss(self.model.train()(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def update(self) -> None:
        """Takes a step by the gradients that are there, at the rate that is its turn."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._training.rate_at(self._step)
        self._optimizer.step()
        self._step += 1

    def judge(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, int, int]:
        """Summed cross-entropy in nats, right answers, and answers, over these samples."""
        import torch

        loss, right, answers = 0.0, 0, 0
        self.model.eval()
        with torch.no_grad():
            for start in range(0, len(inputs), _JUDGED_AT_A_TIME):
                part = slice(start, start + _JUDGED_AT_A_TIME)
                logits = self.model(inputs[part])
                loss += float(_loss(logits, labels[part])) * labels[part].numel()
                right += int((logits.argmax(-1) == labels[part]).sum())
                answers += labels[part].numel()
        return loss, right, answers


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, -2), labels.flatten())
