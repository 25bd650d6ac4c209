"""What to train on: scikit-learn's handwritten digits, MNIST's files, or points that are made up.

Inputs are float32 rows, of images in 0..1, labels 0..9. Every rank trains on a part of its own, as the paper's nodes
do (Li et al., MICRO 2018, section VII), and all are judged by the same test set.

The IDX format of MNIST (two zero bytes, type 8 for unsigned bytes, the number of dimensions, each dimension as a
big-endian 32-bit integer, then the bytes) is read as it comes or through gzip. A file that is anything else gives
one DataError.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    """A data set that is not there, or is not one."""


@dataclass(frozen=True)
class DataSet:
    """Images of digits or points, a row each, and the class of each."""

    name: str
    train_inputs: Floats
    train_labels: Labels
    test_inputs: Floats
    test_labels: Labels

    @property
    def features(self) -> int:
        """Numbers in a row."""
        return int(self.train_inputs.shape[1])

    def save(self, path: Path) -> None:
        """Writes a file that `load` reads, for processes that are to train on the same set."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with path.open("wb") as file:
            np.savez(file, name=np.array(self.name), **arrays)


def synthetic(seed: int = 0, features: int = 64, train: int = 4096, test: int = 512) -> DataSet:
    """Rows around ten random centres, a class each: what needs no files, and what a linear model could learn."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLASSES, features), dtype=np.float32)
    labels = rng.integers(0, CLASSES, train + test)
    inputs = centres[labels] + rng.standard_normal((train + test, features), dtype=np.float32)
    return DataSet("synthetic", inputs[:train], labels[:train], inputs[train:], labels[train:])


def load(path: Path | None) -> DataSet:
    """The set at `path`: a directory of MNIST's files, a file that `save` wrote; scikit-learn's digits for None."""
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
    """scikit-learn's 1,797 digits of 8 x 8 (UCI's test part); each `test_every`-th is kept back for the test.

    Raises ImportError where scikit-learn is not installed.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = (bunch.data / 16).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    kept = np.arange(len(labels)) % test_every == 0
    return DataSet("digits", inputs[~kept], labels[~kept], inputs[kept], labels[kept])


def mnist(directory: Path) -> DataSet:
    """The four IDX files of MNIST (or of a set of its shape) in `directory`, packed by gzip or not."""
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
    """The array of unsigned bytes that an IDX file holds. Raises DataError, OSError."""
    data = _read(path)
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]):
        raise DataError(f"{path}: this is no IDX file of unsigned bytes with {dimensions} dimension(s)")
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4))
    if math.prod(shape) != len(data) - header:
        raise DataError(f"{path}: {' x '.join(map(str, shape))} bytes are announced, {len(data) - header} are there")
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """Indexes of `size` samples at a time, for ever: each of the `count` once, in random order, then again."""
    if not 0 < size <= count:
        raise ValueError(f"a batch of {size} cannot be drawn from {count} samples")
    waiting = rng.permutation(count)
    while True:
        if len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]


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
