"""What is trained in comparisons: four small networks in PyTorch, by name, and the data that each learns from.

- hdc: the digit classifier of Li et al. (MICRO 2018): five fully connected layers, 500 wide. Weights start as those of
  softnic.experiments.train do: Gaussian with variance 2 / inputs (He et al., 2015), biases at zero.
- convnet: five 3 x 3 convolutions, each with batch normalisation and ReLU, as ConvNet5 of LGC (Abrahamyan et al.,
  section VI-E), with channels for small images; then the mean over the picture and a linear layer.
- resnet: a residual network (He et al., 2016) of three basic blocks, eight layers in all: 32, 64 and 128 channels.
- transformer: a causal transformer (Vaswani et al., 2017; normalised before each part) over characters: two layers,
  four heads, 128 wide, a context of 64 characters.

The first three see grey images of 28 x 28: MNIST's, or scikit-learn's digits enlarged to that size, which are what real
images there are without a download. So the residual network learns digits as well, not photographs. The transformer
reads English text: the language reference that comes with Python (pydoc_data.topics, which differs from release to
release), or a file.

torch is imported where a function needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softnic.experiments.data import CLASSES, DataError, load
from softnic.experiments.numpy_models import HIDDEN

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE = 28
"""Pixels of an image's side."""
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
_LEAST_TEXT = 20 * CONTEXT


@dataclass(frozen=True)
class TorchData:
    """Samples and their labels, the test's kept apart.

    Images: float32 (n, 1, SIDE, SIDE) and int64 (n,). Text: int64 (n, CONTEXT), and as labels the same shape, each
    character's next one.
    """

    name: str
    train_inputs: torch.Tensor
    train_labels: torch.Tensor
    test_inputs: torch.Tensor
    test_labels: torch.Tensor


def build(name: str, seed: int = 7) -> nn.Module:
    """The network with its first weights, always the same bits for a seed. Raises ValueError for a name that is none,
    ImportError without torch."""
    if name not in _NETWORKS:
        raise ValueError(f"{name!r} is no model: {', '.join(NAMES)}")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _NETWORKS[name]()


def data(name: str, path: Path | None = None) -> TorchData:
    """What the model `name` learns from. `path`: for the transformer a text file (None: Python's language reference);
    for the others a directory of MNIST's IDX files (None: scikit-learn's digits).

    Raises DataError, OSError; ImportError where torch or, for digits, scikit-learn is not there.
    """
    return text(path) if name == "transformer" else images(path)


def reads_text(name: str) -> bool:
    """Whether a model learns from text, and is judged by bits per character (fewer are better); the others are judged
    by their accuracy on images."""
    return name == "transformer"


def images(path: Path | None) -> TorchData:
    """Images of digits, enlarged to SIDE x SIDE where they are smaller."""
    import torch

    given = load(path)
    side = round(given.features**0.5)
    if side * side != given.features:
        raise DataError(f"{given.name}: rows of {given.features} numbers are no square images")

    def pictures(rows: object) -> torch.Tensor:
        grey = torch.as_tensor(rows).reshape(-1, 1, side, side)
        if side == SIDE:
            return grey
        return torch.nn.functional.interpolate(grey, size=(SIDE, SIDE), mode="bilinear", align_corners=False)

    return TorchData(
        given.name,
        pictures(given.train_inputs),
        torch.as_tensor(given.train_labels),
        pictures(given.test_inputs),
        torch.as_tensor(given.test_labels),
    )


def text(path: Path | None, test_share: float = 0.1) -> TorchData:
    """Windows of CONTEXT characters that follow each other; the last `test_share` of the text is kept for the test."""
    import torch

    name, characters = read(path)
    codes = torch.frombuffer(bytearray(characters), dtype=torch.uint8).long()

    def windows(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = (len(part) - 1) // CONTEXT
        return part[: count * CONTEXT].reshape(count, CONTEXT), part[1 : count * CONTEXT + 1].reshape(count, CONTEXT)

    kept = int(len(codes) * (1 - test_share))
    return TorchData(name, *windows(codes[:kept]), *windows(codes[kept:]))


def read(path: Path | None) -> tuple[str, bytes]:
    """A text's name and its characters. Raises DataError, OSError."""
    if path is None:
        from pydoc_data.topics import topics

        name, words = "Python's language reference", "\n".join(topics[key] for key in sorted(topics))
    else:
        name, words = path.name, path.read_text(encoding="utf-8", errors="replace")
    if len(words) < _LEAST_TEXT:
        raise DataError(f"{name}: {len(words)} characters are too few; {_LEAST_TEXT} are needed")
    return name, words.encode("ascii", "replace")


def _hdc() -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    before = SIDE * SIDE
    for width in HIDDEN:
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    layers.append(nn.Linear(before, CLASSES))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def _convnet() -> nn.Module:
    from torch import nn

    layers: list[nn.Module] = []
    before = 1
    for channels, stride in _CONVNET:
        layers += [*_normalised(before, channels, stride=stride), nn.ReLU()]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def _resnet() -> nn.Module:
    from torch import nn

    before = _RESNET[0][0]
    layers: list[nn.Module] = [*_normalised(1, before, stride=2), nn.ReLU()]
    for channels, stride in _RESNET:
        layers.append(_block(before, channels, stride))
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def _normalised(before: int, channels: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    from torch import nn

    convolution = nn.Conv2d(before, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels)]


def _block(before: int, channels: int, stride: int) -> nn.Module:
    """Two 3 x 3 convolutions, and past them what came in, made to fit where its shape differs."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, second = _normalised(before, channels, stride=stride), _normalised(channels, channels)
            self.inside = nn.Sequential(*first, nn.ReLU(), *second)
            fits = before == channels and stride == 1
            self.past = nn.Identity() if fits else nn.Sequential(*_normalised(before, channels, 1, stride))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.relu(self.inside(x) + self.past(x))

    return Block()


def _transformer() -> nn.Module:
    import torch
    from torch import nn

    class Characters(nn.Module):
        """(n, length) characters to (n, length, VOCABULARY) logits of each one's next; length <= CONTEXT."""

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
            seen = nn.Transformer.generate_square_subsequent_mask(length)
            inside = self.layers(self.characters(characters) + self.places[:length], mask=seen, is_causal=True)
            logits: torch.Tensor = self.next(self.normalised(inside))
            return logits

    return Characters()


_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "hdc": _hdc,
    "convnet": _convnet,
    "resnet": _resnet,
    "transformer": _transformer,
}
NAMES = tuple(_NETWORKS)
