"""A2DTWP's published figures, each with the table, figure or sentence that states it.

Zhuang et al., "Reducing Data Motion to Accelerate the Training of Deep Neural Networks". Bars and curves whose height
neither text nor tables give are not here. Shares are 0..1, times are milliseconds. Models have the names of their
families in `softnic reproduce`; `hdc` is not the paper's.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import NamedTuple

TITLES = {"alexnet": "AlexNet", "hdc": "HDC", "resnet50": "ResNet-34", "vgg16": "VGG-A"}
MODELS = tuple(TITLES)
SYSTEMS = ("x86", "POWER")
BATCHES = {"alexnet": (16, 32, 64), "vgg16": (16, 32, 64), "resnet50": (32, 64, 128)}
"""Section IV-B, of all four GPUs together."""
WORKERS = 4

THRESHOLDS = {"alexnet": -5e-2, "vgg16": -2e-3, "resnet50": -2e-5}
"""Section V-A: T."""

GAINS = {
    "x86": {
        "alexnet": {16: 0.1075, 32: 0.0651, 64: 0.0059},
        "vgg16": {16: 0.0731, 32: 0.0502, 64: 0.1288},
        "resnet50": {32: 0.0311, 64: 0.0439, 128: 0.0494},
    },
    "POWER": {
        "alexnet": {16: 0.1861, 32: 0.1425, 64: 0.1001},
        "vgg16": {16: 0.2821, 32: 0.2019, 64: 0.1113},
        "resnet50": {32: 0.0212, 64: 0.0692, 128: 0.1154},
    },
}
"""Sections V-B to V-D, Fig. 4: share of the baseline's time to the target that A2DTWP saves, by batch."""
MEAN_GAINS = {"x86": 0.0618, "POWER": 0.1191}
"""Section V-E and abstract."""


class Fig3(NamedTuple):
    """Shares of the baseline's time that are saved."""

    oracle: float
    a2dtwp: float


FIG_3 = {32: Fig3(0.1082, 0.0661), 16: Fig3(0.1152, 0.1066)}
"""Section V-B: AlexNet on x86, by batch; to an error of 25 %."""

FIG_5 = {
    "alexnet": {4: 0.995, 8: 0.992, 12: 0.992, 16: 0.996, 20: 0.990},
    "vgg16": {2: 0.907, 4: 0.920, 6: 0.936, 8: 0.932},
    "resnet50": {4: 0.765, 8: 0.770, 12: 0.778, 16: 0.777},
}
"""Section V-F: elapsed time with ImageNet1000 on x86, times the baseline's, by epochs."""
FIG_5_WORSE = {2: 0.0193, 8: 0.0071}
"""Section V-F: VGG's error with A2DTWP, less the baseline's, by epochs."""


@dataclass(frozen=True)
class Profile:
    """Tables II and III: milliseconds of a batch, VGG at batch 64."""

    weights: float
    """CPU to GPU."""
    gradients: float
    """GPU to CPU."""
    convolution: float
    connected: float
    update: float
    norms: float = 0.0
    """AWP."""
    bitpack: float = 0.0
    bitunpack: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))


PROFILES = {
    "x86": (
        Profile(153.93, 68.51, 128.72, 33.51, 54.39),
        Profile(52.27, 73.55, 126.13, 34.17, 52.86, 3.88, 19.71, 4.51),
    ),
    "POWER": (
        Profile(39.12, 17.34, 69.78, 12.66, 41.29),
        Profile(12.21, 17.87, 71.21, 13.51, 42.98, 0.93, 10.51, 1.11),
    ),
}
"""Tables II (x86) and III (POWER): with 32 bits, and A2DTWP."""
OVERHEADS = {"x86": (0.0105, 0.0660), "POWER": (0.0054, 0.0682)}
"""Section V-G: shares of AWP and ADT of A2DTWP's batch."""


class LayerSize(NamedTuple):
    weights: int
    biases: int


def _convolution(before: int, channels: int, kernel: int) -> LayerSize:
    return LayerSize(before * channels * kernel * kernel, channels)


def _connected(*widths: int) -> list[LayerSize]:
    return [LayerSize(a * b, b) for a, b in pairwise(widths)]


def _chain(*layers: tuple[int, int]) -> list[LayerSize]:
    """Convolutions by (kernel, channels); the first has three input channels."""
    before = [3, *(channels for _, channels in layers)]
    return [_convolution(inputs, channels, kernel) for inputs, (kernel, channels) in zip(before, layers, strict=False)]


LAYERS = {
    "alexnet": [
        *_chain((11, 64), (5, 192), (3, 384), (3, 384), (3, 256)),
        *_connected(256 * 6 * 6, 4096, 4096, 4096, 200),
    ],
    "vgg16": [
        *_chain((3, 64), (3, 128), (3, 256), (3, 256), (3, 512), (3, 512), (3, 512), (3, 512)),
        *_connected(512 * 7 * 7, 4096, 4096, 200),
    ],
    "resnet50": [
        *_chain((7, 64), *[(3, 64)] * 6, *[(3, 128)] * 8, *[(3, 256)] * 12, *[(3, 512)] * 6),
        *_connected(512, 200),
    ],
}
"""Table I, for 200 classes. It does not give the inputs of AlexNet's first fully connected layer: 6 x 6, as in
Krizhevsky (2014). It does not count ResNet's normalisation, nor its shortcuts that change shape."""
