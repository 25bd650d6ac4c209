"""Codec 3, bfp (native/codecs/bfp.c): blocks of 16 words. The header is the exponent that they share.

By integers alone, as floats would leave their range in some blocks.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def quantise(x, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of floats, (M, 16), and the exponent of each block."""
    x = x.to(tl.int32, bitcast=True)
    exponent = (x >> 23) & 0xFF
    shared = tl.max(exponent, axis=1)
    mantissa = (x & 0x7FFFFF) | tl.where(exponent != 0, 1 << 23, 0)
    shift = tl.minimum(24 - BITS + shared[:, None] - tl.maximum(exponent, 1), 25)
    half = 1 << (shift - 1)
    q = mantissa >> shift
    rest = mantissa & (2 * half - 1)
    q += ((rest > half) | ((rest == half) & ((q & 1) != 0))).to(tl.int32)
    q = tl.minimum(q, (1 << BITS) - 1)
    return q | tl.where((x < 0) & (q > 0), 1 << BITS, 0), shared


@triton.jit
def restore(codes, shared, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the floats of the codes of blocks with an exponent of 1 to 254, (M, 16)."""
    q = codes & ((1 << BITS) - 1)
    bits = q.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 126 + shared[:, None] - BITS
    denormal = q << tl.minimum(tl.maximum(23 + shared[:, None] - BITS, 0), 31)
    magnitude = tl.where(exponent > 0, (bits & 0x7FFFFF) | (exponent << 23), denormal)
    magnitude = tl.where(q == 0, 0, magnitude)
    return (magnitude | tl.where(q == 0, 0, (codes >> BITS) << 31)).to(tl.float32, bitcast=True)
