"""Words as planes of bytes, DEFLATE-coded (RFC 1951): all their lowest bytes, then all second ones, and so on.

Of numbers that are small as a rule the high bytes are nearly all alike, so each plane gets Huffman codes of its own.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


class _Deflate(Protocol):
    """What zlib.compressobj returns."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int = ..., /) -> bytes: ...


def pack(words: Words, width: int, deflate: _Deflate) -> bytes:
    """The lowest `width` bytes of each word."""
    planes = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width].T
    coded = [deflate.compress(plane.tobytes()) + deflate.flush(zlib.Z_BLOCK) for plane in planes]
    return b"".join(coded) + deflate.flush()


def unpack(data: bytes | memoryview, count: int, width: int, wbits: int) -> Words | None:
    """The `count` words that `pack` packed, by a zlib object of these `wbits`; None for what holds other than so many.
    Raises zlib.error for what is no DEFLATE stream."""
    size = width * count
    inflate = zlib.decompressobj(wbits)
    planes = inflate.decompress(data, size + 1)  # one more than there may be, which stops what would never end
    if len(planes) != size or not inflate.eof or inflate.unused_data:
        return None
    words = np.zeros((count, 4), np.uint8)
    words[:, :width] = np.frombuffer(planes, np.uint8).reshape(width, count).T
    return words.view("<u4").reshape(-1)
