"""The papers' convolutional networks in PyTorch: those of INCEPTIONN at full size, those of A2DTWP at an eighth.

Full size, for 3 x 224 x 224 and 1,000 classes unless stated otherwise (Li et al., MICRO 2018, section VII-A):

- AlexNet (Krizhevsky et al., 2012): five convolutions, the second, fourth and fifth in two groups, local response
  normalisation after the first two, three fully connected layers with dropout.
- VGG-16 (Simonyan and Zisserman, 2015): thirteen 3 x 3 convolutions in five stages, three fully connected layers.
- ResNet-50 (He et al., 2016): 3, 4, 6 and 3 bottleneck blocks, batch normalisation after every convolution.

Small, for grey digits of 28 x 28 (Zhuang et al., Table I): AlexNet with one more fully connected layer, VGG's
configuration A, ResNet-34. Layers, order and proportions are the paper's; channels are an eighth of its channels, fully
connected layers a sixteenth of its widths, kernels 3 x 3 and 5 x 5. There is no dropout: trainings are too short to
overfit.

Layers are tables here, of which `torch_models` has the parts. Weights start as in He et al. (2015), the last layer at
full size Gaussian with sigma 0.01. torch is imported where a function needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from softnic.experiments.data import CLASSES as DIGITS
from softnic.experiments.torch_models import (
    basic_block,
    connected,
    counted,
    he_initialised,
    head,
    normalised,
    residual,
    seeded,
)

if TYPE_CHECKING:
    from torch import nn

CLASSES = 1000


def build(name: str, classes: int = CLASSES, seed: int = 7) -> nn.Module:
    """Return a network of full size with its initial weights, the same ones for a seed. Seeds torch's global generator.

    Raises ImportError without torch.
    """
    import torch

    torch.manual_seed(seed)
    model = he_initialised(NETWORKS[name](classes))
    *_, weights, _biases = model.parameters()
    torch.nn.init.normal_(weights, std=0.01)
    return model


def build_small(name: str, seed: int = 7) -> nn.Module:
    """Return a small network with its initial weights, the same ones for a seed. Raises ImportError without torch."""
    return seeded(lambda: he_initialised(_SMALL[name]()), seed)


def parameter_bytes(name: str, classes: int = CLASSES) -> int:
    """Return the bytes of all weights of a full-size network, without allocating them. Raises ImportError."""
    return 4 * counted(lambda: NETWORKS[name](classes))


class _Conv(NamedTuple):
    """A convolution with ReLU, and what follows it."""

    channels: int
    kernel: int
    pool: int = 0
    """Side of the max pooling, with stride 2; 0 for none."""
    groups: int = 1
    stride: int = 1
    padding: int | None = None
    """None for half the kernel."""
    normalised: bool = False
    """By local response normalisation, before pooling."""
    ceil: bool = False
    """Whether pooling keeps a last odd row and column."""


_ALEXNET = (
    _Conv(96, 11, pool=3, stride=4, padding=2, normalised=True),
    _Conv(256, 5, pool=3, groups=2, normalised=True),
    _Conv(384, 3),
    _Conv(384, 3, groups=2),
    _Conv(256, 3, pool=3, groups=2),
)
_SMALL_ALEXNET = (_Conv(8, 5, pool=2), _Conv(24, 5, pool=2), _Conv(48, 3), _Conv(48, 3), _Conv(32, 3, pool=2))
_VGG16 = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
_SMALL_VGG = ((1, 8), (1, 16), (2, 32), (2, 64), (2, 64))
"""Convolutions and channels of each stage."""
_RESNET50 = ((3, 64), (4, 128), (6, 256), (3, 512))
_SMALL_RESNET = ((3, 8), (4, 16), (6, 32), (3, 64))
"""Blocks of each stage, and their channels; a bottleneck's output has four times as many."""
_Block = Callable[[int, int, int], "tuple[nn.Module, int]"]
"""Makes a residual block from its input channels, its own and its stride. Returns its output channels as well."""
_WIDTH, _SMALL_WIDTH = 4096, 256
"""Of fully connected layers."""


def _chain(before: int, convolutions: Iterable[_Conv]) -> list[nn.Module]:
    from torch import nn

    layers: list[nn.Module] = []
    for conv in convolutions:
        padding = conv.kernel // 2 if conv.padding is None else conv.padding
        layers.append(nn.Conv2d(before, conv.channels, conv.kernel, conv.stride, padding, groups=conv.groups))
        layers.append(nn.ReLU(inplace=True))
        if conv.normalised:
            layers.append(nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0))
        if conv.pool:
            layers.append(nn.MaxPool2d(conv.pool, stride=2, ceil_mode=conv.ceil))
        before = conv.channels
    return layers


def _vgg(stages: Sequence[tuple[int, int]]) -> list[_Conv]:
    """3 x 3 convolutions, and pooling after each stage."""
    return [
        _Conv(channels, 3, pool=2 * (at == count - 1), ceil=True) for count, channels in stages for at in range(count)
    ]


def _sequential(*layers: Sequence[nn.Module]) -> nn.Module:
    from torch import nn

    return nn.Sequential(*(layer for part in layers for layer in part))


def _resnet(inputs: int, stages: Sequence[tuple[int, int]], classes: int, block: _Block) -> nn.Module:
    from torch import nn

    before = stages[0][1]
    stem: list[nn.Module] = [*normalised(inputs, before, 7, 2), nn.ReLU(inplace=True)]
    if block is _bottleneck:
        stem.append(nn.MaxPool2d(3, 2, padding=1))
    layers: list[nn.Module] = [nn.Sequential(*stem)]
    for stage, (count, channels) in enumerate(stages):
        for number in range(count):
            made, before = block(before, channels, 2 if stage and not number else 1)
            layers.append(made)
    return nn.Sequential(*layers, *head(before, classes))


def _bottleneck(before: int, inner: int, stride: int) -> tuple[nn.Module, int]:
    """1 x 1, 3 x 3 and 1 x 1 convolutions."""
    from torch import nn

    after, relu = 4 * inner, nn.ReLU(inplace=True)
    first, second = normalised(before, inner, 1), normalised(inner, inner, 3, stride)
    return residual([*first, relu, *second, relu, *normalised(inner, after, 1)], before, after, stride), after


def _basic_block(before: int, channels: int, stride: int) -> tuple[nn.Module, int]:
    return basic_block(before, channels, stride, plain=True), channels


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "alexnet": lambda classes: _sequential(
        _chain(3, _ALEXNET), connected((256 * 6 * 6, _WIDTH, _WIDTH, classes), dropout=True)
    ),
    "resnet50": lambda classes: _resnet(3, _RESNET50, classes, _bottleneck),
    "vgg16": lambda classes: _sequential(
        _chain(3, _vgg(_VGG16)), connected((512 * 7 * 7, _WIDTH, _WIDTH, classes), dropout=True)
    ),
}
"""Builders of the full-size networks, by name, for a number of classes; weights are still to be drawn."""
_SMALL: dict[str, Callable[[], nn.Module]] = {
    "alexnet": lambda: _sequential(_chain(1, _SMALL_ALEXNET), connected((32 * 3 * 3, *[_SMALL_WIDTH] * 3, DIGITS))),
    "resnet50": lambda: _resnet(1, _SMALL_RESNET, DIGITS, _basic_block),
    "vgg16": lambda: _sequential(_chain(1, _vgg(_SMALL_VGG)), connected((64, *[_SMALL_WIDTH] * 2, DIGITS))),
}
"""The small networks, by the name of their family."""
NAMES = tuple(NETWORKS)
