"""A data set of patches cut out of ten photographs, which scikit-learn and scikit-image ship: nothing is downloaded.

A patch has 32 x 32 pixels in three colours, like an image of CIFAR-10; its class is the photograph that it comes from.

1. Each photograph is divided into square blocks. Every fifth block of a row, two further on in each next row, is for
   the test set, the others are for training. A patch lies within one block, so no pixel of a test patch occurs in a
   training patch.
2. Blocks, places in them and mirroring are drawn at random, the same for a seed, with as many patches of each class. Of
   every four patches drawn, the one with most contrast is taken, because empty sky or skin tells little.
3. The colours of each patch change at random, so that they alone do not tell the photographs apart: a part of the
   colour is removed, then the strength of each colour, the contrast and the brightness change.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from softnic.experiments.data import DataError, DataSet, Floats, Labels

NAME = "photos"
SIDE = 32
"""Pixels per side of a patch."""
CHANNELS = 3
BLOCK = 48
"""Pixels per side of a block."""
FILES = (
    *(f"sklearn/datasets/images/{name}" for name in ("china.jpg", "flower.jpg")),
    *(f"skimage/data/{name}" for name in ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg")),
    *(f"skimage/data/{name}" for name in ("ihc.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg")),
)
"""One photograph for each class, as package and path in it."""
CLASSES = len(FILES)
_TEST_EVERY, _TEST_SHIFT = 5, 2
_TRIES = 4
_GREY, _COLOUR_STRENGTH, _CONTRAST, _BRIGHTNESS = 0.5, 0.1, 0.2, 0.05
"""Largest changes: a share of the colour, two factors' natural logarithms, and a share of the full range."""
_STREAM = 0x70686F74
"""Part of the seed. A training with the same seed would otherwise draw the same permutation, and with it undo the order
of the patches: each of its batches would have patches of one class."""

Photograph = npt.NDArray[np.uint8]


def load(train: int = 20_000, test: int = 4_000, seed: int = 7) -> DataSet:
    """Return patches as rows of CHANNELS x SIDE x SIDE numbers from 0 to 1, in random order.

    `train` and `test` are divided by the number of photographs, rounded down. Raises ImportError without scikit-learn
    or scikit-image, DataError if one of their photographs is missing.
    """
    rng = np.random.default_rng([seed, _STREAM])
    photographs = [read(file) for file in find()]
    for_training = _patches(photographs, train // CLASSES, rng, test=False)
    return DataSet(NAME, *for_training, *_patches(photographs, test // CLASSES, rng, test=True))


def find() -> list[Traversable]:
    """Return the installed photographs, by class. Raises ImportError, DataError as `load` does."""
    found = [files(package).joinpath(path) for package, _, path in (name.partition("/") for name in FILES)]
    for file in found:
        if not file.is_file():
            raise DataError(f"{file}: the installed package lacks this photograph")
    return found


def read(file: Traversable) -> Photograph:
    """Return a photograph as (height, width, CHANNELS)."""
    from PIL import Image

    with file.open("rb") as opened, Image.open(opened) as image:
        return np.asarray(image.convert("RGB"))


def blocks(photograph: Photograph, *, test: bool) -> npt.NDArray[np.int64]:
    """Return row and column of the upper left corners of all blocks for the test, or of all for training."""
    rows, columns = np.indices((photograph.shape[0] // BLOCK, photograph.shape[1] // BLOCK))
    kept = ((columns + _TEST_SHIFT * rows) % _TEST_EVERY == 0) == test
    return BLOCK * np.stack([rows[kept], columns[kept]], axis=1)


def places(photograph: Photograph, count: int, rng: np.random.Generator, *, test: bool) -> npt.NDArray[np.int64]:
    """Return row and column of the upper left corners of `count` patches, each within a block."""
    return rng.choice(blocks(photograph, test=test), count) + rng.integers(0, BLOCK - SIDE + 1, (count, 2))


def _patches(
    photographs: list[Photograph], each: int, rng: np.random.Generator, *, test: bool
) -> tuple[Floats, Labels]:
    """Return `each` patches of every photograph and their classes."""
    rows = np.empty((each * len(photographs), CHANNELS * SIDE * SIDE), dtype=np.float32)
    order = rng.permutation(len(rows))
    labels = np.empty(len(rows), dtype=np.int64)
    for label, photograph in enumerate(photographs):
        windows = sliding_window_view(photograph, (SIDE, SIDE), axis=(0, 1))
        at = places(photograph, each * _TRIES, rng, test=test)
        cut = windows[at[:, 0], at[:, 1]]
        contrast = cut[:, 1].std(axis=(1, 2), dtype=np.float32).reshape(each, _TRIES)
        cut = cut[np.arange(each) * _TRIES + contrast.argmax(axis=1)]
        mirrored = rng.random(each) < 0.5
        cut[mirrored] = cut[mirrored][..., ::-1]
        own = order[label * each : (label + 1) * each]
        rows[own], labels[own] = recoloured(cut.reshape(each, CHANNELS, -1), rng).reshape(each, -1), label
    return rows, labels


def recoloured(patches: Photograph, rng: np.random.Generator) -> Floats:
    """Return patches of (count, CHANNELS, pixels) with their colours changed at random, 0..1.

    A colour x becomes c (D M x - 1/2) + 1/2 + b, where M moves it towards its mean over the channels, the diagonal
    matrix D has the strength of each channel, c is the contrast and b the brightness. Values outside 0..1 are clipped.
    """
    count = len(patches)

    def change(most: float, channels: int = 1) -> Floats:
        return rng.uniform(-most, most, (count, channels, 1)).astype(np.float32)

    grey = rng.random((count, 1, 1), dtype=np.float32) * np.float32(_GREY)
    mixed: Floats = np.asarray((1 - grey) * np.eye(CHANNELS) + grey / CHANNELS, dtype=np.float32)
    contrast = np.exp(change(_CONTRAST))
    mixed *= contrast * np.exp(change(_COLOUR_STRENGTH, CHANNELS)) / 255
    changed: Floats = mixed @ patches.astype(np.float32)
    changed += (1 - contrast) / 2 + change(_BRIGHTNESS)
    return np.clip(changed, 0, 1, out=changed)
