"""Encoding of the indices of sent gradients: gaps between them, byte-shuffled and DEFLATE-coded.

LGC (Abrahamyan et al., section V-A) codes indices by DEFLATE. Here the gaps are coded, in as few bytes each as the
longest needs, all first bytes before all second ones: at a density of 0.1 % first bytes are noise and second bytes
nearly always small, and DEFLATE's Huffman codes come within a few percent of the gaps' entropy (11.4 bits).

    bytes a gap (1, 2 or 4) | raw DEFLATE stream (RFC 1951) of the shuffled bytes, the least significant first
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from softnic.gradients import byte_shuffle
from softnic.gradients.method import MethodError

Indices = npt.NDArray[np.int64]
"""Increasing, counted from 0."""

_RAW = -15
"""`wbits` of zlib for a DEFLATE stream without a header."""
_MEMORY = 9
"""zlib's largest `memLevel`."""
_WIDTHS = (1, 2, 4)


def encode(indices: Indices) -> bytes:
    """Encode increasing indices below 2^32."""
    gaps = np.diff(indices, prepend=-1) - 1
    longest = int(gaps.max(initial=0))
    width = next(width for width in _WIDTHS if longest < 1 << 8 * width)
    deflate = zlib.compressobj(6, zlib.DEFLATED, _RAW, _MEMORY, zlib.Z_FILTERED)
    return bytes([width]) + byte_shuffle.pack(gaps.astype(np.uint32), width, deflate)


def decode(data: bytes | memoryview, count: int, size: int) -> Indices:
    """Decode `count` indices below `size`. Raises MethodError for bytes that encode none."""
    width = data[0] if len(data) else 0
    if width not in _WIDTHS or not 0 <= count <= size:
        raise MethodError(f"{len(data)} bytes are not {count} indices below {size}")
    try:
        gaps = byte_shuffle.unpack(data[1:], count, width, _RAW)
    except zlib.error as error:
        raise MethodError(f"indices are not a DEFLATE stream: {error}") from error
    if gaps is None:
        raise MethodError(f"{len(data)} bytes are not {count} indices below {size}")
    indices: Indices = np.cumsum(gaps.astype(np.int64) + 1) - 1
    if count and indices[-1] >= size:
        raise MethodError(f"there is no index {indices[-1]} below {size}")
    return indices
