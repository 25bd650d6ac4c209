"""Codec 4, truncate (native/codecs/truncate.c): the highest bits of each word, in tiles of 64 words without headers."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def quantise(x, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of floats, (M, 64), and no headers."""
    codes = (x.to(tl.int32, bitcast=True) >> (32 - BITS)) & ((1 << BITS) - 1)
    return codes, tl.zeros((M,), tl.int32)


@triton.jit
def restore(codes, header, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the floats of codes, (M, 64)."""
    return (codes << (32 - BITS)).to(tl.float32, bitcast=True)
