"""Compressors of others, to stand beside softnic's codecs: what each is, and how to call it on one core.

They come with the extra `bench`; one that is not installed raises ImportError where it is prepared, and only there.
LZ4, Snappy, zstd and Blosc2 are exact and see bytes; SZ3 and zfp are given an absolute error bound. Where a binding can
write into memory that is there already, it does, as softnic's codecs do, so that nobody pays for fresh pages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from softnic.experiments.data import Floats


@dataclass(frozen=True)
class Prepared:
    """A compressor with its input and its memory: what is called again and again."""

    encode: Callable[[], int]
    """Returns the bytes that it needed. Called at least once before `decode`."""
    decode: Callable[[], Floats]
    """What `encode` made, back again."""


@dataclass(frozen=True)
class Compressor:
    name: str
    package: str
    """What to install."""
    prepare: Callable[[Floats, float], Prepared]
    """Floats, and the absolute error that lossy ones may make. Raises ImportError."""
    exact: bool = True


def _room(words: Floats) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Enough for any of them to fail in."""
    return np.empty(words.nbytes + words.nbytes // 4 + 4096, np.uint8)


def _lz4(words: Floats, _bound: float) -> Prepared:
    cramjam: Any = importlib.import_module("cramjam")

    given, room, back = words.view(np.uint8), _room(words), np.empty_like(words)
    used = 0

    def encode() -> int:
        nonlocal used
        used = int(cramjam.lz4.compress_block_into(given, room, store_size=False))
        return used

    def decode() -> Floats:
        cramjam.lz4.decompress_block_into(room[:used], back.view(np.uint8), output_len=words.nbytes)
        return back

    return Prepared(encode, decode)


def _snappy(words: Floats, _bound: float) -> Prepared:
    cramjam: Any = importlib.import_module("cramjam")

    given, room, back = words.view(np.uint8), _room(words), np.empty_like(words)
    used = 0

    def encode() -> int:
        nonlocal used
        used = int(cramjam.snappy.compress_raw_into(given, room))
        return used

    def decode() -> Floats:
        cramjam.snappy.decompress_raw_into(room[:used], back.view(np.uint8))
        return back

    return Prepared(encode, decode)


def _zstd(words: Floats, _bound: float) -> Prepared:
    zstandard: Any = importlib.import_module("zstandard")

    compressor, decompressor = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    body = b""

    def encode() -> int:
        nonlocal body
        body = compressor.compress(words)
        return len(body)

    return Prepared(encode, lambda: np.frombuffer(decompressor.decompress(body), np.float32))


def _blosc2(words: Floats, _bound: float) -> Prepared:
    """LZ4 behind a shuffle of bits: of Blosc2's fast settings the one that finds most in floats."""
    blosc2: Any = importlib.import_module("blosc2")

    back = np.empty_like(words)
    settings = {
        "codec": blosc2.Codec.LZ4,
        "clevel": 5,
        "typesize": 4,
        "filters": [blosc2.Filter.BITSHUFFLE],
        "nthreads": 1,
    }
    body = b""

    def encode() -> int:
        nonlocal body
        body = blosc2.compress2(words, **settings)
        return len(body)

    def decode() -> Floats:
        blosc2.decompress2(body, dst=back.view(np.uint8), nthreads=1)
        return back

    return Prepared(encode, decode)


def _sz3(words: Floats, bound: float) -> Prepared:
    pysz: Any = importlib.import_module("pysz")

    config = pysz.szConfig()
    config.errorBoundMode = pysz.szErrorBoundMode.ABS
    config.absErrorBound = bound
    body = np.empty(0, np.uint8)

    def encode() -> int:
        nonlocal body
        body, _ = pysz.sz.compress(words, config)
        return int(body.nbytes)

    return Prepared(encode, lambda: pysz.sz.decompress(body, np.float32, words.shape)[0])


def _zfp(words: Floats, bound: float) -> Prepared:
    zfpy: Any = importlib.import_module("zfpy")

    body = b""

    def encode() -> int:
        nonlocal body
        body = zfpy.compress_numpy(words, tolerance=bound)
        return len(body)

    return Prepared(encode, lambda: zfpy.decompress_numpy(body))


COMPRESSORS = (
    Compressor("LZ4", "cramjam", _lz4),
    Compressor("Snappy", "cramjam", _snappy),
    Compressor("zstd -1", "zstandard", _zstd),
    Compressor("Blosc2", "blosc2", _blosc2),
    Compressor("SZ3", "pysz", _sz3, exact=False),
    Compressor("zfp", "zfpy", _zfp, exact=False),
)
