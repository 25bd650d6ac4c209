"""Shapes of the parameters of LGC's networks at full size, which decide how many bytes a step takes.

ResNets as He et al. (2016) have them, with bottlenecks and normalisation; PSPNet as Zhao et al. (2017): ResNet50, its
four pooled levels of 512 channels, a 3 x 3 convolution to 512 and one to the classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

Shapes = dict[str, tuple[int, ...]]
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
_EXPANSION = 4


@dataclass(frozen=True)
class NetworkShapes:
    """A network of Table VI."""

    title: str
    shapes: Shapes
    nodes: int
    """Nodes of the paper's training."""
    published: str
    """Its name in paper.SIZES."""

    @property
    def words(self) -> int:
        return sum(map(prod, self.shapes.values()))


def _normalised(name: str, norm: str, inputs: int, channels: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (channels, inputs, kernel, kernel)
    yield f"{norm}.weight", (channels,)
    yield f"{norm}.bias", (channels,)


def _backbone(depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _normalised("conv1", "bn1", 3, 64, 7)
    before = 64
    for stage, count in enumerate(_BLOCKS[depth]):
        inner = 64 << stage
        for block in range(count):
            at = f"layer{stage + 1}.{block}"
            yield from _normalised(f"{at}.conv1", f"{at}.bn1", before, inner, 1)
            yield from _normalised(f"{at}.conv2", f"{at}.bn2", inner, inner, 3)
            yield from _normalised(f"{at}.conv3", f"{at}.bn3", inner, _EXPANSION * inner, 1)
            if not block:
                yield from _normalised(f"{at}.downsample.0", f"{at}.downsample.1", before, _EXPANSION * inner, 1)
            before = _EXPANSION * inner


def resnet(depth: int, classes: int) -> Shapes:
    """Return the shapes of ResNet-50 or ResNet-101."""
    return {**dict(_backbone(depth)), "fc.weight": (classes, 2048), "fc.bias": (classes,)}


def pspnet(classes: int) -> Shapes:
    """Return the shapes of PSPNet on ResNet-50, without the auxiliary loss's branch."""
    shapes = dict(_backbone(50))
    for level in (1, 2, 3, 6):
        shapes |= _normalised(f"pool{level}.conv", f"pool{level}.bn", 2048, 512, 1)
    shapes |= _normalised("head.conv", "head.bn", 4096, 512, 3)
    return {**shapes, "last.weight": (classes, 512, 1, 1), "last.bias": (classes,)}


NETWORKS = (
    NetworkShapes("ResNet50, 1,000 classes", resnet(50, 1000), 2, "ResNet50"),
    NetworkShapes("ResNet101, 10 classes", resnet(101, 10), 4, "ResNet101"),
    NetworkShapes("PSPNet, 32 classes", pspnet(32), 2, "PSPNet"),
)
"""Table VI's 102.2 MB are ResNet50 with ImageNet's 1,000 classes, its 170 MB ResNet101 with Cifar10's."""
