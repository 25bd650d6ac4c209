"""Byte shuffle of 32-bit words before DEFLATE (RFC 1951): all lowest bytes, then all second ones, and so on.

The high bytes of mostly small numbers are nearly all equal, so the bytes of each significance get Huffman codes of
their own.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


class _Deflate(Protocol):
    """The result of zlib.compressobj."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int = ..., /) -> bytes: ...


def pack(words: Words, width: int, deflate: _Deflate) -> bytes:
    """Encode the lowest `width` bytes of each word."""
    shuffled = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width].T
    coded = [deflate.compress(part.tobytes()) + deflate.flush(zlib.Z_BLOCK) for part in shuffled]
    return b"".join(coded) + deflate.flush()


def unpack(data: bytes | memoryview, count: int, width: int, wbits: int) -> Words | None:
    """Decode `count` words that `pack` encoded with a zlib object of these `wbits`.

    Returns None for another number of words. Raises zlib.error for what is not a DEFLATE stream.
    """
    size = width * count
    inflate = zlib.decompressobj(wbits)
    shuffled = inflate.decompress(data, size + 1)  # one more than valid, which bounds the size of a malicious stream
    if len(shuffled) != size or not inflate.eof or inflate.unused_data:
        return None
    words = np.zeros((count, 4), np.uint8)
    words[:, :width] = np.frombuffer(shuffled, np.uint8).reshape(width, count).T
    return words.view("<u4").reshape(-1)
