"""Four small networks in PyTorch, by name, and the data that each learns from.

- hdc: the digit classifier of Li et al. (MICRO 2018): five fully connected layers, 500 wide. Initial weights as in
  numpy_models: Gaussian with variance 2 / inputs (He et al., 2015), biases at zero.
- convnet: five 3 x 3 convolutions with batch normalisation and ReLU, as ConvNet5 of LGC (Abrahamyan et al.,
  section VI-E), with channels for small images; then global average pooling and a linear layer.
- resnet: a residual network (He et al., 2016) of three basic blocks, eight layers in all: 32, 64 and 128 channels.
- transformer: a causal transformer (Vaswani et al., 2017; with normalisation before each part) over characters: two
  layers, four heads, 128 wide, a context of 64 characters.

The first three take images: grey ones of 28 x 28, MNIST's or scikit-learn's digits enlarged to that size, which need no
download; convnet and resnet also colour patches of photographs (softnic.experiments.photos). The transformer reads
English text: a file, or the language reference that comes with Python (pydoc_data.topics, which differs between
releases).

torch is imported where a function needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from softnic.experiments import photos
from softnic.experiments.data import CLASSES, DataError, DataSet, Floats, load
from softnic.experiments.numpy_models import HIDDEN

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE = 28
"""Pixels per side of a grey image."""
VOCABULARY = 128
"""Characters are ASCII; others become question marks."""
CONTEXT = 64
"""Characters that the transformer sees at a time."""
_WIDTH = 128
_HEADS = 4
_LAYERS = 2
_CONVNET = ((16, 2), (32, 2), (64, 1), (128, 2), (256, 1))
"""Channels and stride of each convolution."""
_RESNET = ((32, 1), (64, 2), (128, 2))
"""Channels of each block, and the stride of its first convolution."""
_SHORTEST_TEXT = 20 * CONTEXT


@dataclass(frozen=True)
class TorchData:
    """Training and test set.

    Images: float32 (n, channels, side, side), labels int64 (n,) of `classes` classes. Text: int64 (n, CONTEXT), and as
    labels the same shape, the next character of each.
    """

    name: str
    train_inputs: torch.Tensor
    train_labels: torch.Tensor
    test_inputs: torch.Tensor
    test_labels: torch.Tensor
    channels: int = 1
    """Of images: 1 is grey."""
    classes: int = CLASSES


def build(name: str, seed: int = 7, channels: int = 1, classes: int = CLASSES) -> nn.Module:
    """Return a network whose initial weights are the same bits for a seed.

    `channels` of images and their `classes` are those of TorchData; the transformer has neither. Raises ValueError for
    an unknown name, ImportError without torch.
    """
    if name not in _NETWORKS:
        raise ValueError(f"{name!r} is not a model: {', '.join(NAMES)}")
    return seeded(lambda: _NETWORKS[name](channels, classes), seed)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the network that `make` makes with this seed. torch's generator is left as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def parameters(name: str, channels: int = 1, classes: int = CLASSES) -> int:
    """Return the number of parameters of a model. Raises as `build` does."""
    return counted(lambda: build(name, channels=channels, classes=classes))


def counted(make: Callable[[], nn.Module]) -> int:
    """Return the number of parameters of the network that `make` makes, without memory for them."""
    import torch

    with torch.device("meta"):
        return sum(each.numel() for each in make().parameters())


def data(name: str, path: Path | None = None) -> TorchData:
    """Return the data set of a model: `images(path)` or `text(path)`.

    Raises DataError, OSError; ImportError without torch or, for digits, scikit-learn.
    """
    return text(path) if reads_text(name) else images(path)


def reads_text(name: str) -> bool:
    """Return whether a model learns from text. It is evaluated by bits per character, the others by accuracy."""
    return name == "transformer"


def images(path: Path | None) -> TorchData:
    """Return images of digits, enlarged to SIDE x SIDE where they are smaller. `path` is as in `data.load`."""
    return pictures(load(path))


def pictures(given: DataSet) -> TorchData:
    """Return the images of a data set, SIDE x SIDE. Raises DataError if they are not square."""
    if math.isqrt(given.features) ** 2 != given.features:
        raise DataError(f"{given.name}: rows of {given.features} numbers are not square images")
    return _as_tensors(given, squares)


def photographs() -> TorchData:
    """Return colour patches of photographs. Raises DataError; ImportError without torch or what `photos.load` needs."""
    import torch

    given = photos.load()

    def patches(rows: Floats) -> torch.Tensor:
        return torch.from_numpy(rows).reshape(-1, photos.CHANNELS, photos.SIDE, photos.SIDE)

    return replace(_as_tensors(given, patches), channels=photos.CHANNELS, classes=photos.CLASSES)


def _as_tensors(given: DataSet, images: Callable[[Floats], torch.Tensor]) -> TorchData:
    """Return a data set in tensors; `images` makes those of its rows."""
    import torch

    return TorchData(
        given.name,
        images(given.train_inputs),
        torch.as_tensor(given.train_labels),
        images(given.test_inputs),
        torch.as_tensor(given.test_labels),
    )


def squares(rows: Floats, side: int = SIDE) -> torch.Tensor:
    """Return square grey images, one per row, as (n, 1, side, side)."""
    import torch

    size = math.isqrt(rows.shape[1])
    grey = torch.as_tensor(np.ascontiguousarray(rows)).reshape(-1, 1, size, size)
    if size == side:
        return grey
    return torch.nn.functional.interpolate(grey, size=(side, side), mode="bilinear", align_corners=False)


def text(path: Path | None, test_share: float = 0.1) -> TorchData:
    """Return consecutive windows of CONTEXT characters; the last `test_share` of the text is the test set."""
    import torch

    name, characters = read(path)
    codes = torch.frombuffer(bytearray(characters), dtype=torch.uint8).long()

    def windows(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = (len(part) - 1) // CONTEXT
        return part[: count * CONTEXT].reshape(count, CONTEXT), part[1 : count * CONTEXT + 1].reshape(count, CONTEXT)

    kept = int(len(codes) * (1 - test_share))
    return TorchData(name, *windows(codes[:kept]), *windows(codes[kept:]))


def read(path: Path | None) -> tuple[str, bytes]:
    """Return the name and the characters of a text; None: Python's language reference. Raises DataError, OSError."""
    if path is None:
        from pydoc_data.topics import topics

        name, words = "Python's language reference", "\n".join(topics[key] for key in sorted(topics))
    else:
        name, words = path.name, path.read_text(encoding="utf-8", errors="replace")
    if len(words) < _SHORTEST_TEXT:
        raise DataError(f"{name}: {len(words)} characters are too few; {_SHORTEST_TEXT} are needed")
    return name, words.encode("ascii", "replace")


def _hdc(channels: int, classes: int) -> nn.Module:
    from torch import nn

    return he_initialised(nn.Sequential(*connected((channels * SIDE * SIDE, *HIDDEN, classes))))


def connected(widths: Sequence[int], *, dropout: bool = False) -> list[nn.Module]:
    """Return fully connected layers with ReLU between them, from the inputs to the outputs.

    With `dropout`, half of the inputs of each layer but the last is dropped.
    """
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [nn.Dropout()] * dropout
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return [*layers, nn.Linear(widths[-2], widths[-1])]


def he_initialised(network: nn.Module) -> nn.Module:
    """Draw the weights of all convolutions and linear layers as He et al. (2015) do, and return the network."""
    from torch import nn

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


def _convnet(inputs: int, classes: int) -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = []
    for channels, stride in _CONVNET:
        layers += [*normalised(inputs, channels, stride=stride), nn.ReLU()]
        inputs = channels
    return nn.Sequential(*layers, *head(inputs, classes))


def _resnet(colours: int, classes: int) -> nn.Module:
    from torch import nn

    inputs = _RESNET[0][0]
    layers: list[nn.Module] = [*normalised(colours, inputs, stride=2), nn.ReLU()]
    for channels, stride in _RESNET:
        layers.append(basic_block(inputs, channels, stride))
        inputs = channels
    return nn.Sequential(*layers, *head(inputs, classes))


def head(inputs: int, classes: int) -> list[nn.Module]:
    """Return global average pooling and a linear layer."""
    from torch import nn

    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]


def normalised(inputs: int, channels: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Return a convolution without bias, and its batch normalisation."""
    from torch import nn

    convolution = nn.Conv2d(inputs, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels)]


def residual(inside: Iterable[nn.Module], before: int, after: int, stride: int, *, plain: bool = False) -> nn.Module:
    """Return a residual block: the sum of both parts of the same input, then ReLU.

    Where the shape changes, the shortcut is a 1 x 1 convolution, normalised unless `plain`.
    """
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(*inside)
            self.shortcut: nn.Module = nn.Identity()
            if before != after or stride != 1:
                convolution, *rest = normalised(before, after, 1, stride)
                self.shortcut = convolution if plain else nn.Sequential(convolution, *rest)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.relu(self.inside(x) + self.shortcut(x))

    return Residual()


def basic_block(before: int, channels: int, stride: int, *, plain: bool = False) -> nn.Module:
    """Return a residual block of two 3 x 3 convolutions."""
    from torch import nn

    inside = [*normalised(before, channels, 3, stride), nn.ReLU(), *normalised(channels, channels)]
    return residual(inside, before, channels, stride, plain=plain)


def _transformer() -> nn.Module:
    import torch
    from torch import nn

    class Characters(nn.Module):
        """Maps (n, length) characters to (n, length, VOCABULARY) logits of each one's next; length <= CONTEXT."""

        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(VOCABULARY, _WIDTH)
            self.places = nn.Parameter(torch.randn(CONTEXT, _WIDTH) * 0.02)
            layer = nn.TransformerEncoderLayer(
                _WIDTH, _HEADS, 4 * _WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
            self.normalised = nn.LayerNorm(_WIDTH)
            self.next = nn.Linear(_WIDTH, VOCABULARY)

        def forward(self, characters: torch.Tensor) -> torch.Tensor:
            length = characters.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            inside = self.layers(self.characters(characters) + self.places[:length], mask=mask, is_causal=True)
            logits: torch.Tensor = self.next(self.normalised(inside))
            return logits

    return Characters()


_NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "hdc": _hdc,
    "convnet": _convnet,
    "resnet": _resnet,
    "transformer": lambda _channels, _classes: _transformer(),
}
NAMES = tuple(_NETWORKS)
