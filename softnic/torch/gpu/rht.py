"""Codec 5, rht (native/codecs/rht.h): whole blocks of 128 words. The header is the scale.

No product is fused with a sum: kernels are compiled with enable_fp_fusion=False.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

LEAST_HUGE: tl.constexpr = tl.constexpr(0xF0 << 23)
LEAST_SCALE: tl.constexpr = tl.constexpr(0x0D80)
AS_IT_IS: tl.constexpr = tl.constexpr(0xFFFF)
MAGNITUDE: tl.constexpr = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _stage(x, DISTANCE: tl.constexpr, M: tl.constexpr):
    """Replace words at a distance by their sum and their difference."""
    pairs = tl.permute(tl.reshape(x, (M, 64 // DISTANCE, 2, DISTANCE)), (0, 1, 3, 2))
    a, b = tl.split(pairs)
    return tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 1, 3, 2)), (M, 128))


@triton.jit
def _transform(x, M: tl.constexpr):
    """Return the Walsh-Hadamard transform of blocks, (M, 128)."""
    x = _stage(x, 1, M)
    x = _stage(x, 2, M)
    x = _stage(x, 4, M)
    x = _stage(x, 8, M)
    x = _stage(x, 16, M)
    x = _stage(x, 32, M)
    return _stage(x, 64, M)


@triton.jit
def _flip(x, tables):
    """Flip the sign bits of floats where the first 128 words of `tables` have theirs."""
    signs = tl.load(tables + tl.arange(0, 128)).to(tl.int32, bitcast=True)
    return (x.to(tl.int32, bitcast=True) ^ signs[None, :]).to(tl.float32, bitcast=True)


@triton.jit
def quantise(x, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of floats, (M, 128), and the scale of each block: 0 for one of zeros, AS_IT_IS for one that is
    not transformed. `tables` has the sign bits that are flipped, the thresholds, and the levels."""
    r = _transform(_flip(x, tables), M) * 0.125
    bits = r.to(tl.int32, bitcast=True) & MAGNITUDE
    magnitude = bits.to(tl.float32, bitcast=True)
    scale = (tl.max(bits, axis=1) + (0xFFFF - 256)) >> 16
    scale = tl.where(scale < LEAST_SCALE, 0, scale)
    greatest = tl.max(x.to(tl.int32, bitcast=True) & MAGNITUDE, axis=1)
    scale = tl.where(greatest >= LEAST_HUGE, AS_IT_IS, scale)
    s = (scale << 16).to(tl.float32, bitcast=True)
    codes = tl.zeros((M, 128), tl.int32)
    for index in tl.static_range((1 << (BITS - 1)) - 1):  # the thresholds ascend
        threshold = s * tl.load(tables + 128 + index)
        codes = tl.where(magnitude >= threshold[:, None], index + 1, codes)
    return codes | tl.where(r < 0, 1 << (BITS - 1), 0), scale


@triton.jit
def restore(codes, scale, tables, M: tl.constexpr, BITS: tl.constexpr):
    """Return the floats of the codes of blocks that are transformed, (M, 128)."""
    levels = tables + (128 + (1 << (BITS - 1)) - 1)
    s = (scale << 16).to(tl.float32, bitcast=True)
    v = tl.load(levels + (codes & ((1 << (BITS - 1)) - 1))) * s[:, None]
    v = (v.to(tl.int32, bitcast=True) ^ ((codes >> (BITS - 1)) << 31)).to(tl.float32, bitcast=True)
    return _flip(_transform(v, M) * 0.0625, tables)
