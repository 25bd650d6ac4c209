"""Other compressors to compare softnic's codecs with, called on one core.

They come with the extra `bench`; one that is not installed raises ImportError when it is prepared. LZ4, Snappy, zstd
and Blosc2 are exact and compress bytes; SZ3 and zfp get an absolute error bound. Bindings that can write into existing
memory do so, as softnic's codecs do, so that none pays for fresh pages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from softnic.codecs import Codec
from softnic.experiments.data import Floats


@dataclass(frozen=True)
class Prepared:
    """A compressor with its input and output memory, ready to be called repeatedly."""

    encode: Callable[[], int]
    """Returns the number of bytes of the result. Called at least once before `decode`."""
    decode: Callable[[], Floats]
    """Returns the decoded result of `encode`."""


@dataclass(frozen=True)
class Compressor:
    name: str
    package: str
    """Name of the package to install."""
    prepare: Callable[[Floats, float], Prepared]
    """Takes the floats and the absolute error bound of lossy compressors. Raises ImportError."""
    exact: bool = True


def ours(codec: Codec, words: Floats) -> Prepared:
    """Return a codec with the interface of the other compressors."""
    room, back = np.empty(codec.bound(words.size), np.uint8), np.empty_like(words)
    used = 0

    def encode() -> int:
        nonlocal used
        used = codec.encode_into(words, room)
        return used

    def decode() -> Floats:
        codec.decode_into(room[:used], back)
        return back

    return Prepared(encode, decode)


def _room(words: Floats) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return a buffer that is large enough for every compressor's worst case."""
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
    """LZ4 after a bit shuffle: the fast setting of Blosc2 with the best ratio on floats."""
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
