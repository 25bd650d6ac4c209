"""Other compressors to compare softnic's codecs with, called on one core.

They come with the extra `bench`; one that is not installed raises ImportError when it is prepared. LZ4, Snappy, zstd
and Blosc2 are exact and compress bytes; SZ3 and zfp get an absolute error bound. Bindings that can write into existing
memory do so, as softnic's codecs do, so that none pays for fresh pages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    return _in_place(words, codec.bound(words.size), codec.encode_into, codec.decode_into)


def _in_place(
    words: Floats, bound_bytes: int, encode: Callable[[Any, Any], int], decode: Callable[[Any, Any], object]
) -> Prepared:
    """Return a compressor that writes into existing memory; `encode` returns how many bytes it wrote."""
    room, back = np.empty(bound_bytes, np.uint8), np.empty_like(words)
    used = 0

    def encoded() -> int:
        nonlocal used
        used = int(encode(words, room))
        return used

    def decoded() -> Floats:
        decode(room[:used], back)
        return back

    return Prepared(encoded, decoded)


def _returning(words: Floats, encode: Callable[[Any], Any], decode: Callable[[Any], Floats]) -> Prepared:
    """Return a compressor that allocates its results."""
    body: Any = b""

    def encoded() -> int:
        nonlocal body
        body = encode(words)
        return memoryview(body).nbytes

    return Prepared(encoded, lambda: decode(body))


def _cramjam(words: Floats, encode: Callable[[Any, Any], int], decode: Callable[[Any, Any], object]) -> Prepared:
    return _in_place(
        words,
        words.nbytes + words.nbytes // 4 + 4096,
        lambda given, room: encode(given.view(np.uint8), room),
        lambda body, back: decode(body, back.view(np.uint8)),
    )


def _lz4(words: Floats, _bound: float) -> Prepared:
    lz4: Any = importlib.import_module("cramjam").lz4
    encode, decode = lz4.compress_block_into, lz4.decompress_block_into
    return _cramjam(words, partial(encode, store_size=False), partial(decode, output_len=words.nbytes))


def _snappy(words: Floats, _bound: float) -> Prepared:
    snappy: Any = importlib.import_module("cramjam").snappy
    return _cramjam(words, snappy.compress_raw_into, snappy.decompress_raw_into)


def _zstd(words: Floats, _bound: float) -> Prepared:
    zstandard: Any = importlib.import_module("zstandard")
    decompressor = zstandard.ZstdDecompressor()
    encode = zstandard.ZstdCompressor(level=1).compress
    return _returning(words, encode, lambda body: np.frombuffer(decompressor.decompress(body), np.float32))


def _blosc2(words: Floats, _bound: float) -> Prepared:
    """LZ4 after a bit shuffle: the fast setting of Blosc2 with the best ratio on floats."""
    blosc2: Any = importlib.import_module("blosc2")
    filters, back = [blosc2.Filter.BITSHUFFLE], np.empty_like(words)

    def decode(body: bytes) -> Floats:
        blosc2.decompress2(body, dst=back.view(np.uint8), nthreads=1)
        return back

    encode = partial(blosc2.compress2, codec=blosc2.Codec.LZ4, clevel=5, typesize=4, filters=filters, nthreads=1)
    return _returning(words, encode, decode)


def _sz3(words: Floats, bound: float) -> Prepared:
    pysz: Any = importlib.import_module("pysz")
    config = pysz.szConfig()
    config.errorBoundMode = pysz.szErrorBoundMode.ABS
    config.absErrorBound = bound
    return _returning(
        words,
        lambda given: pysz.sz.compress(given, config)[0],
        lambda body: pysz.sz.decompress(body, np.float32, words.shape)[0],
    )


def _zfp(words: Floats, bound: float) -> Prepared:
    zfpy: Any = importlib.import_module("zfpy")
    return _returning(words, partial(zfpy.compress_numpy, tolerance=bound), zfpy.decompress_numpy)


COMPRESSORS = (
    Compressor("LZ4", "cramjam", _lz4),
    Compressor("Snappy", "cramjam", _snappy),
    Compressor("zstd -1", "zstandard", _zstd),
    Compressor("Blosc2", "blosc2", _blosc2),
    Compressor("SZ3", "pysz", _sz3, exact=False),
    Compressor("zfp", "zfpy", _zfp, exact=False),
)
