"""Networks of the shapes of A2DTWP's Table I, small enough for a few cores, and the digit classifier beside them.

Layers, their order and their proportions are the paper's: AlexNet with its additional fully connected layer, VGG's
configuration A, ResNet-34. Channels and widths are an eighth of the paper's (of fully connected layers a sixteenth),
kernels are 3 x 3 and 5 x 5, for images are 28 x 28 grey ones of digits. There is no dropout: trainings are too short to
overfit. Weights start as He et al. (2015) have it; the paper's sigma of 0.1 is for its own widths.

A `Learner` is what training needs of any of them: named arrays that it computes with, and those of their gradients.
torch is imported only where one of the three networks is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from softnic.experiments.data import CLASSES, DataSet, Floats, Labels
from softnic.experiments.numpy_models import Classifier
from softnic.gradients.awp import leading

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE = 28
"""Pixels of an image's side; smaller ones are enlarged."""
_ALEXNET = ((8, 5, True), (24, 5, True), (48, 3, False), (48, 3, False), (32, 3, True))
"""Channels and kernel of each convolution, and whether pooling follows."""
_VGG = ((1, 8), (1, 16), (2, 32), (2, 64), (2, 64))
"""Convolutions and channels of each stage."""
_RESNET = ((3, 8), (4, 16), (6, 32), (3, 64))
"""Blocks of two convolutions, and channels, of each stage."""
_WIDTH = 256
"""Of fully connected layers."""


class Learner(Protocol):
    """A network as training sees it."""

    @property
    def weights(self) -> Mapping[str, Floats]:
        """By parameter: what it computes with. To be written to."""

    @property
    def gradients(self) -> Mapping[str, Floats]:
        """By parameter: those of the last `learn`."""

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        """The mean loss of a batch; fills `gradients`."""

    def error(self, inputs: Floats, labels: Labels) -> float:
        """The share of rows, 0..1, that are not given their label."""


def block_of(model: str) -> Callable[[str], str]:
    """What AWP gives one precision: a building block of the residual network (section IV-B), elsewhere a layer."""
    return leading(1) if model == "resnet50" else str


def build(model: str, data: DataSet, seed: int) -> Learner:
    """Raises ImportError without torch, but for `hdc`."""
    if model == "hdc":
        return _Digits(data.features, seed)
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _NETWORKS[model]()
        _initialise(network)
    return _Torch(network)


class _Digits:
    """HDC, in numpy."""

    def __init__(self, features: int, seed: int) -> None:
        self._model = Classifier(features, np.random.default_rng(seed))
        self.weights = self._model.named(self._model.parameters)
        self.gradients = self._model.named(self._model.gradients)

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        return self._model.forward_backward(inputs, labels)

    def error(self, inputs: Floats, labels: Labels) -> float:
        return 1 - self._model.accuracy(inputs, labels)


class _Torch:
    """A network of PyTorch's: its parameters are arrays that share memory with it."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        named = dict(network.named_parameters())
        for parameter in named.values():
            parameter.grad = parameter.detach().clone().zero_()
        self.weights: dict[str, Floats] = {name: each.detach().numpy() for name, each in named.items()}
        self.gradients: dict[str, Floats] = {
            name: each.grad.numpy() for name, each in named.items() if each.grad is not None
        }

    def forward_backward(self, inputs: Floats, labels: Labels) -> float:
        import torch

        self._network.train()
        for gradient in self.gradients.values():
            gradient[...] = 0
        loss = torch.nn.functional.cross_entropy(self._network(_images(inputs)), torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def error(self, inputs: Floats, labels: Labels) -> float:
        import torch

        self._network.eval()
        with torch.no_grad():
            found = self._network(_images(inputs)).argmax(1)
        return float((found != torch.from_numpy(labels)).float().mean())


def _images(rows: Floats) -> torch.Tensor:
    """(n, side * side) as (n, 1, SIDE, SIDE)."""
    import torch

    side = math.isqrt(rows.shape[1])
    grey = torch.from_numpy(np.ascontiguousarray(rows)).reshape(-1, 1, side, side)
    if side == SIDE:
        return grey
    return torch.nn.functional.interpolate(grey, size=(SIDE, SIDE), mode="bilinear", align_corners=False)


def _initialise(network: nn.Module) -> None:
    from torch import nn

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _alexnet() -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = []
    before = 1
    for channels, kernel, pooled in _ALEXNET:
        layers += [nn.Conv2d(before, channels, kernel, padding=kernel // 2), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pooled else []
        before = channels
    return nn.Sequential(*layers, nn.Flatten(), *_connected(before * 3 * 3, 3))


def _vgg() -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = []
    before = 1
    for count, channels in _VGG:
        for _ in range(count):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
            before = channels
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers, nn.Flatten(), *_connected(before, 2))


def _connected(features: int, hidden: int) -> Sequence[nn.Module]:
    from torch import nn

    layers: list[nn.Module] = []
    for inputs in (features, *[_WIDTH] * (hidden - 1)):
        layers += [nn.Linear(inputs, _WIDTH), nn.ReLU()]
    return [*layers, nn.Linear(_WIDTH, CLASSES)]


def _resnet() -> nn.Module:
    from torch import nn

    before = _RESNET[0][1]
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(1, before, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(before), nn.ReLU())
    ]
    for stage, (count, channels) in enumerate(_RESNET):
        for block in range(count):
            blocks.append(_block(before, channels, stride=2 if stage and not block else 1))
            before = channels
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))
    return nn.Sequential(*blocks, *head)


def _block(before: int, channels: int, stride: int) -> nn.Module:
    """Two 3 x 3 convolutions, and past them what came in, made to fit where its shape differs."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(
                nn.Conv2d(before, channels, 3, stride, 1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
            fits = before == channels and stride == 1
            self.past = nn.Identity() if fits else nn.Conv2d(before, channels, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.inside(x) + self.past(x))

    return Block()


_NETWORKS: dict[str, Callable[[], Any]] = {"alexnet": _alexnet, "vgg16": _vgg, "resnet50": _resnet}
"""By the names that `softnic reproduce` has for these families."""
