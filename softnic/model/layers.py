"""Networks as lists of layers: the size of a layer's gradient, and the cost of computing it.

A layer's FLOP are those of one example: two for each multiply-add of the forward pass, and twice that for the backward
pass, which computes the gradients of weights and of inputs. The first layer of a network needs no gradient of its
inputs. (Ma et al. count it like the others, and so does `mlp`.) Biases, activations, normalisation and pooling count
with their parameters but not with their FLOP, which are below one percent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, whose gradient is exchanged in one piece."""

    name: str
    parameters: int
    forward_flop: float
    """For one example."""
    backward_flop: float
    """For one example."""


Network = tuple[Layer, ...]
"""From the input to the output."""

BYTES = 4
"""Bytes of a parameter and of its gradient: float32."""


def mlp(layers: int, width: int) -> Network:
    """Return `layers` equal square layers as in Ma et al.: 2 M^2 FLOP forward, 4 M^2 backward, no biases."""
    square = width * width
    return tuple(Layer(f"fc{index}", square, 2 * square, 4 * square) for index in range(1, layers + 1))


def dense(widths: Sequence[int]) -> Network:
    """Return fully connected layers with biases between layers of these widths."""
    return _network([_Shape(f"fc{i}", n_in, n_out, 1) for i, (n_in, n_out) in enumerate(pairwise(widths), 1)])


def parameters_of(network: Network) -> int:
    """Return the number of parameters."""
    return sum(layer.parameters for layer in network)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A layer that multiplies `inputs` values by weights for each of `outputs` channels at each of `positions`."""

    name: str
    inputs: int
    """Values that one output depends on: kernel height x width x channels, divided by groups."""
    outputs: int
    positions: int
    extra: int = 1
    """Further parameters of an output channel: 1 for a bias, 2 for batch normalisation instead of one."""


def _network(shapes: Sequence[_Shape]) -> Network:
    layers = []
    for index, shape in enumerate(shapes):
        forward = 2.0 * shape.inputs * shape.outputs * shape.positions
        parameters = (shape.inputs + shape.extra) * shape.outputs
        layers.append(Layer(shape.name, parameters, forward, forward if index == 0 else 2 * forward))
    return tuple(layers)


def _hdc() -> Network:
    """INCEPTIONN's digit classifier on MNIST: five fully connected layers, 500 wide."""
    return dense((784, 500, 500, 500, 500, 10))


def _alexnet() -> Network:
    """Krizhevsky et al. (2012), with its two groups: 61 million parameters."""
    return _network(
        [
            _Shape("conv1", 11 * 11 * 3, 96, 55 * 55),
            _Shape("conv2", 5 * 5 * 48, 256, 27 * 27),
            _Shape("conv3", 3 * 3 * 256, 384, 13 * 13),
            _Shape("conv4", 3 * 3 * 192, 384, 13 * 13),
            _Shape("conv5", 3 * 3 * 192, 256, 13 * 13),
            _Shape("fc6", 6 * 6 * 256, 4096, 1),
            _Shape("fc7", 4096, 4096, 1),
            _Shape("fc8", 4096, 1000, 1),
        ]
    )


def _vgg16() -> Network:
    """Simonyan and Zisserman (2014), configuration D: 138 million parameters."""
    shapes = []
    channels, side = 3, 224
    for block, (width, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for index in range(1, convolutions + 1):
            shapes.append(_Shape(f"conv{block}_{index}", 9 * channels, width, side * side))
            channels = width
        side //= 2
    shapes += [
        _Shape("fc6", side * side * channels, 4096, 1),
        _Shape("fc7", 4096, 4096, 1),
        _Shape("fc8", 4096, 1000, 1),
    ]
    return _network(shapes)


def _resnet50() -> Network:
    """He et al. (2015) with the stride in the 3x3 convolutions, as in torchvision: 25.6 million parameters."""
    shapes = [_Shape("conv1", 7 * 7 * 3, 64, 112 * 112, extra=2)]
    channels, side = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(1, blocks + 1):
            before, name = side, f"conv{stage}_{block}"
            if block == 1 and stage > 2:
                side //= 2
            shapes += [
                _Shape(f"{name}a", channels, width, before * before, extra=2),
                _Shape(f"{name}b", 9 * width, width, side * side, extra=2),
                _Shape(f"{name}c", width, 4 * width, side * side, extra=2),
            ]
            if block == 1:
                shapes.append(_Shape(f"{name}s", channels, 4 * width, side * side, extra=2))
            channels = 4 * width
    shapes.append(_Shape("fc", channels, 1000, 1))
    return _network(shapes)


NETWORKS: dict[str, Callable[[], Network]] = {
    "mlp20": lambda: mlp(20, 2048),
    "hdc": _hdc,
    "alexnet": _alexnet,
    "resnet50": _resnet50,
    "vgg16": _vgg16,
}
"""Networks by name. mlp20 is that of Ma et al.; the others are those of INCEPTIONN."""


def network(name: str) -> Network:
    """Return a network by its name. Raises ValueError for an unknown one."""
    if name not in NETWORKS:
        raise ValueError(f"{name!r} is no network: {', '.join(NETWORKS)} are")
    return NETWORKS[name]()


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A layer in a file."""

    parameters: int
    name: str = ""
    forward_flop: float | None = None
    backward_flop: float | None = None


def load(path: Path) -> Network:
    """Read a network from a JSON file.

    The file is a list of {"parameters": .., "name": .., "forward_flop": .., "backward_flop": ..}, input first. Defaults
    are those of fully connected layers: 2 FLOP forward for each parameter, and twice the forward FLOP backward.

    Raises
    ------
    ValueError
        The file is not such a list.
    OSError
        It cannot be read.
    """
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[_Row])
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a list of layers: {error}") from None
    layers = []
    for index, row in enumerate(rows, 1):
        forward = 2.0 * row.parameters if row.forward_flop is None else row.forward_flop
        backward = 2.0 * forward if row.backward_flop is None else row.backward_flop
        if min(row.parameters, forward, backward) < 0:
            raise ValueError(f"{path}: layer {index} has a negative figure")
        layers.append(Layer(row.name or f"layer{index}", row.parameters, forward, backward))
    if not layers:
        raise ValueError(f"{path} has no layers")
    return tuple(layers)
