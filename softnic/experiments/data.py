"""Data sets: scikit-learn's handwritten digits, MNIST's files, or synthetic points.

Inputs are float32 rows, 0..1 for images; labels are 0..9. Every rank trains on a part of its own, as the nodes of Li
et al. do (MICRO 2018, section VII); all are evaluated on the same test set.

MNIST's IDX files (two zero bytes, type 8 for unsigned bytes, the number of dimensions, each dimension as a big-endian
32-bit integer, then the bytes) may be compressed by gzip. Any other content raises DataError.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

CLASSES = 10
_ARRAYS = ("train_inputs", "train_labels", "test_inputs", "test_labels")
_UNSIGNED_BYTES = 0x08
_LARGEST_FILE = 1 << 30
"""Bytes after unpacking; MNIST's largest has 47 million."""


class DataError(Exception):
    """A data set is missing or invalid."""


@dataclass(frozen=True)
class DataSet:
    """Images or points, one per row, and the class of each."""

    name: str
    train_inputs: Floats
    train_labels: Labels
    test_inputs: Floats
    test_labels: Labels

    @property
    def features(self) -> int:
        """Numbers per row."""
        return int(self.train_inputs.shape[1])

    def save(self, path: Path) -> None:
        """Write a file that `load` reads, for other processes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with path.open("wb") as file:
            np.savez(file, name=np.array(self.name), **arrays)


def synthetic(seed: int = 0, features: int = 64, train: int = 4096, test: int = 512) -> DataSet:
    """Return rows around ten random centres, one for each class: a linear model can learn them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLASSES, features), dtype=np.float32)
    labels = rng.integers(0, CLASSES, train + test)
    inputs = centres[labels] + rng.standard_normal((train + test, features), dtype=np.float32)
    return DataSet("synthetic", inputs[:train], labels[:train], inputs[train:], labels[train:])


def load(path: Path | None) -> DataSet:
    """Load a directory of MNIST's files, a file that `DataSet.save` wrote, or (None) scikit-learn's digits.

    Raises DataError, OSError; ImportError without scikit-learn.
    """
    if path is None:
        return digits()
    if path.is_dir():
        return mnist(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return DataSet(str(stored["name"]), *(stored[name] for name in _ARRAYS))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such directory of IDX files") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: a directory of IDX files is needed, or a set that softnic saved") from error


def digits(test_every: int = 5) -> DataSet:
    """Return scikit-learn's 1,797 digits of 8 x 8 (UCI's test part); each `test_every`-th is in the test set.

    Raises ImportError if scikit-learn is not installed.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = (bunch.data / 16).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    kept = np.arange(len(labels)) % test_every == 0
    return DataSet("digits", inputs[~kept], labels[~kept], inputs[kept], labels[kept])


def mnist(directory: Path) -> DataSet:
    """Read the four IDX files of MNIST, or of a set of its shape. Raises DataError, OSError."""
    parts: list[npt.NDArray[np.uint8]] = []
    for part in ("train", "t10k"):
        images = read_idx(_find(directory, f"{part}-images-idx3-ubyte"), dimensions=3)
        labels = read_idx(_find(directory, f"{part}-labels-idx1-ubyte"), dimensions=1)
        if len(images) != len(labels) or not len(images):
            raise DataError(f"{directory}: {part} has {len(images)} images and {len(labels)} labels")
        if labels.max() >= CLASSES:
            raise DataError(f"{directory}: {part} has a label {labels.max()}; digits go from 0 to 9")
        parts += [images.reshape(len(images), -1), labels]
    if parts[0].shape[1] != parts[2].shape[1]:
        raise DataError(f"{directory}: the images of train and t10k differ in size")
    train, train_labels, test, test_labels = parts
    return DataSet("MNIST", _scaled(train), train_labels.astype(np.int64), _scaled(test), test_labels.astype(np.int64))


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes. Raises DataError, OSError."""
    data = _read(path)
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]):
        raise DataError(f"{path}: not an IDX file of unsigned bytes with {dimensions} dimension(s)")
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4))
    if math.prod(shape) != len(data) - header:
        raise DataError(f"{path}: {' x '.join(map(str, shape))} bytes are announced, {len(data) - header} are there")
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """Yield indices of `size` samples without end: each of `count` samples once per epoch, in random order.

    Raises ValueError if the batch is larger than the set, or empty.
    """
    if not 0 < size <= count:
        raise ValueError(f"a batch of {size} cannot be drawn from {count} samples")
    waiting = rng.permutation(count)
    while True:
        if len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]


def batches_of_rank(inputs: Any, labels: Any, rank: int, size: int, batch: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield one rank's batches of inputs and labels (arrays or tensors of all ranks) without end.

    Rank r owns every `size`-th sample from r on. The seed and the rank decide the order.
    """
    own_inputs, own_labels = inputs[rank::size], labels[rank::size]
    for drawn in batches(len(own_labels), batch, np.random.default_rng([seed, rank])):
        yield own_inputs[drawn], own_labels[drawn]


def _scaled(images: npt.NDArray[np.uint8]) -> Floats:
    return images.astype(np.float32) / np.float32(255)


def _find(directory: Path, name: str) -> Path:
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{directory}: {name} (or {name}.gz) is not there; the four IDX files of MNIST are needed")


def _read(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            data = file.read(_LARGEST_FILE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: gzip cannot unpack it: {error}") from error
    if len(data) > _LARGEST_FILE:
        raise DataError(f"{path}: it unpacks to more than {_LARGEST_FILE >> 30} GiB")
    return data
