"""Networks of the shapes that Li et al. (MICRO 2018, section VII-A) train, in PyTorch, and one training step of them.

- AlexNet (Krizhevsky et al., 2012): five convolutions, the second, fourth and fifth in two groups, local response
  normalisation after the first two, three fully connected layers with dropout.
- VGG-16 (Simonyan and Zisserman, 2015): thirteen 3 x 3 convolutions in five stages, three fully connected layers.
- ResNet-50 (He et al., 2016): bottleneck blocks, 3, 4, 6 and 3 of them, batch normalisation after every convolution.

All take 3 x 224 x 224 and give as many logits as there are classes (1,000 as in the paper, unless said otherwise).
Weights start as He et al. (2015) have it, the last layer Gaussian with sigma 0.01. torch is imported where a function
needs it; nothing else of softnic does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from softnic.experiments.data import Floats, Labels

if TYPE_CHECKING:
    import torch
    from torch import nn

    Batch = tuple[torch.Tensor, torch.Tensor]
    """Images and their labels."""

CLASSES = 1000
SIDE = 224
"""Pixels of an image's side."""

_VGG16 = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
"""Convolutions and channels of each stage."""
_RESNET50 = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Bottleneck blocks and inner channels of each stage."""
_EXPANSION = 4
"""Channels that leave a bottleneck, to its inner ones."""


def build(name: str, classes: int = CLASSES, seed: int = 7) -> nn.Module:
    """The network with its first weights, always the same ones for a seed. Raises ImportError without torch."""
    import torch

    torch.manual_seed(seed)
    model = NETWORKS[name](classes)
    _initialise(model)
    return model


def parameter_bytes(name: str, classes: int = CLASSES) -> int:
    """Bytes of all weights, without ever holding them."""
    import torch

    with torch.device("meta"):
        model = NETWORKS[name](classes)
    return sum(parameter.numel() * 4 for parameter in model.parameters())


@dataclass(frozen=True)
class StepTimes:
    """Seconds that the parts of one training step took on this machine."""

    forward_s: float
    backward_s: float
    update_s: float
    loss: float


class Trainer:
    """Stochastic gradient descent with momentum on one network, as a worker of the paper computes it."""

    def __init__(self, model: nn.Module, rate: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        import torch

        self.model = model.train()
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, weight_decay=weight_decay)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> StepTimes:
        """Forward, backward, update."""
        started = time.perf_counter()
        loss = self._loss(self.model(images), labels)
        forward = time.perf_counter()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        backward = time.perf_counter()
        self._optimizer.step()
        ended = time.perf_counter()
        return StepTimes(forward - started, backward - forward, ended - backward, float(loss.detach()))

    def accumulated(self, given: Sequence[Batch]) -> tuple[float, Floats]:
        """The mean loss of batches of one size and its gradients, of all parameters one behind the other. The weights
        stay."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for images, labels in given:
            loss = self._loss(self.model(images), labels) / len(given)
            loss.backward()
            total += float(loss.detach())
        parts = [parameter.grad.numpy().ravel() for parameter in self.model.parameters() if parameter.grad is not None]
        flat: Floats = np.concatenate(parts)
        return total, flat


def enlarged(images: Floats, labels: Labels, side: int = SIDE) -> Batch:
    """Rows of square grey images as a batch of `side` x `side` with three channels, mean 0 and variance 1 a batch."""
    import torch

    size = round(images.shape[1] ** 0.5)
    grey = torch.from_numpy(np.ascontiguousarray(images)).reshape(-1, 1, size, size)
    large = torch.nn.functional.interpolate(grey, size=(side, side), mode="bilinear", align_corners=False)
    large = (large - large.mean()) / large.std().clamp_min(1e-6)
    return large.expand(-1, 3, -1, -1).contiguous(), torch.from_numpy(np.ascontiguousarray(labels))


def _initialise(model: nn.Module) -> None:
    from torch import nn

    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    nn.init.normal_(layers[-1].weight, std=0.01)


def _alexnet(classes: int) -> nn.Module:
    from torch import nn

    def convolution(*shape: int, **how: int) -> list[nn.Module]:
        return [nn.Conv2d(*shape, **how), nn.ReLU(inplace=True)]  # type: ignore[arg-type]

    def normalised() -> list[nn.Module]:
        return [nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0), nn.MaxPool2d(3, stride=2)]

    return nn.Sequential(
        *convolution(3, 96, 11, stride=4, padding=2),
        *normalised(),
        *convolution(96, 256, 5, padding=2, groups=2),
        *normalised(),
        *convolution(256, 384, 3, padding=1),
        *convolution(384, 384, 3, padding=1, groups=2),
        *convolution(384, 256, 3, padding=1, groups=2),
        nn.MaxPool2d(3, stride=2),
        nn.Flatten(),
        *_head(256 * 6 * 6, classes),
    )


def _vgg16(classes: int) -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = []
    before = 3
    for count, channels in _VGG16:
        for _ in range(count):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
            before = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), *_head(512 * 7 * 7, classes))


def _head(features: int, classes: int) -> Iterable[nn.Module]:
    """Three fully connected layers with dropout before the first two."""
    from torch import nn

    for inputs in (features, 4096):
        yield from (nn.Dropout(), nn.Linear(inputs, 4096), nn.ReLU(inplace=True))
    yield nn.Linear(4096, classes)


def _resnet50(classes: int) -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = [*_normalised(3, 64, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    before = 64
    for stage, (count, inner) in enumerate(_RESNET50):
        for block in range(count):
            layers.append(_bottleneck(before, inner, stride=2 if stage and not block else 1))
            before = inner * _EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _normalised(before: int, channels: int, kernel: int, stride: int = 1) -> Sequence[nn.Module]:
    from torch import nn

    convolution = nn.Conv2d(before, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return (convolution, nn.BatchNorm2d(channels))


def _bottleneck(before: int, inner: int, stride: int) -> nn.Module:
    """1 x 1, 3 x 3, 1 x 1, and past them what came in, made to fit where its shape differs."""
    from torch import nn

    after = inner * _EXPANSION
    inside = nn.Sequential(
        *_normalised(before, inner, 1),
        nn.ReLU(inplace=True),
        *_normalised(inner, inner, 3, stride=stride),
        nn.ReLU(inplace=True),
        *_normalised(inner, after, 1),
    )
    past: nn.Module = nn.Identity()
    if before != after or stride != 1:
        past = nn.Sequential(*_normalised(before, after, 1, stride=stride))

    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.past = inside, past

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.inside(x) + self.past(x))

    return Bottleneck()


NETWORKS: dict[str, Callable[[int], nn.Module]] = {"alexnet": _alexnet, "resnet50": _resnet50, "vgg16": _vgg16}
"""By name: what builds one with so many classes, with weights still to be drawn."""
NAMES = tuple(NETWORKS)
