"""Data sets: scikit-learn's digits, IDX files and their errors, batches."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from softnic.experiments.data import DataError, batches, digits, load, mnist, read_idx


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write_mnist(directory: Path, train: int = 6, test: int = 4, packed: bool = False) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        for name, array in (
            (f"{part}-images-idx3-ubyte", rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)),
            (f"{part}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8)),
        ):
            data = idx(array)
            path = directory / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(data) if packed else data)


def test_digits_are_split_without_overlap() -> None:
    data = digits()
    assert (data.features, len(data.train_labels), len(data.test_labels)) == (64, 1437, 360)
    for inputs in (data.train_inputs, data.test_inputs):
        assert inputs.dtype == np.float32
        assert (inputs.min(), inputs.max()) == (0, 1)
    assert set(data.train_labels) == set(data.test_labels) == set(range(10))


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_files_are_read_compressed_or_not(tmp_path: Path, packed: bool) -> None:
    write_mnist(tmp_path, packed=packed)
    data = load(tmp_path)
    assert (data.name, data.train_inputs.shape, data.test_inputs.shape) == ("MNIST", (6, 784), (4, 784))
    assert data.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.train_inputs.dtype == np.float32
    raw = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    assert np.array_equal(np.rint(data.train_inputs * 255).astype(np.uint8), raw.reshape(6, 784))


def test_a_saved_set_loads_unchanged(tmp_path: Path) -> None:
    data = digits()
    data.save(tmp_path / "set")
    loaded = load(tmp_path / "set")
    assert loaded.name == data.name
    for name in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        assert np.array_equal(getattr(loaded, name), getattr(data, name))
        assert getattr(loaded, name).dtype == getattr(data, name).dtype


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("train-labels-idx1-ubyte", b"", "not an IDX file"),
        ("train-labels-idx1-ubyte", b"\0\0\x08", "not an IDX file"),
        ("train-labels-idx1-ubyte", b"\0\0\x0d\x01\0\0\0\x06" + bytes(24), "not an IDX file of unsigned bytes"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x07" + bytes(6), "7 bytes are announced, 6 are there"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x05" + bytes(5), "train has 6 images and 5 labels"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x06" + bytes([1, 2, 3, 4, 5, 10]), "has a label 10"),
        ("t10k-images-idx3-ubyte", idx(np.zeros((4, 5, 5), dtype=np.uint8)), "differ in size"),
        ("t10k-images-idx3-ubyte", b"\0\0\x08\x03" + b"\xff" * 12, "are announced, 0 are there"),
        ("t10k-labels-idx1-ubyte", None, "t10k-labels-idx1-ubyte (or t10k-labels-idx1-ubyte.gz) is not there"),
    ],
)
def test_an_invalid_file_raises_one_error(tmp_path: Path, name: str, content: bytes | None, hint: str) -> None:
    write_mnist(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        mnist(tmp_path)
    assert hint in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("spoil", ["cut", "garbage", "flipped"])
def test_a_damaged_gzip_file_raises_one_error(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "x.gz"
    packed = gzip.compress(idx(np.arange(200, dtype=np.uint8)))
    flipped = packed[:40] + bytes([packed[40] ^ 0xFF]) + packed[41:]
    path.write_bytes({"cut": packed[:-9], "garbage": b"no gzip", "flipped": flipped}[spoil])
    with pytest.raises(DataError):
        read_idx(path, 1)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 but no more"])
def test_a_file_that_is_not_a_set_raises_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set").write_bytes(content)
    with pytest.raises(DataError):
        load(tmp_path / "set")
    with pytest.raises(DataError, match="no such directory"):
        load(tmp_path / "absent")


def test_batches_draw_every_sample_once_per_epoch() -> None:
    drawn = batches(10, 4, np.random.default_rng(0))
    seen = np.concatenate([next(drawn) for _ in range(5)])
    assert len(seen) == 20
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert not np.array_equal(seen[:10], seen[10:])


@pytest.mark.parametrize("size", [0, 11])
def test_a_batch_must_fit_the_samples(size: int) -> None:
    with pytest.raises(ValueError, match="cannot be drawn from 10 samples"):
        next(batches(10, size, np.random.default_rng(0)))
