"""Codec 5, rht (native/codecs/rht.h): whole blocks of 128 words, each in a slot of 2 + 16 b bytes.

No product is fused with a sum: kernels are compiled with enable_fp_fusion=False.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.packing import load_codes, store_codes
from softnic.torch.gpu.tiles import blocks_here, load_words, store_words

HUGE_EXPONENT: tl.constexpr = tl.constexpr(0xF0)
LEAST_SCALE: tl.constexpr = tl.constexpr(0x0D80)
AS_IT_IS: tl.constexpr = tl.constexpr(0xFFFF)


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
def _flip(x, signs):
    """Flip the sign bits of floats where `signs` has ones."""
    return (x.to(tl.int32, bitcast=True) ^ (signs[None, :] << 31)).to(tl.float32, bitcast=True)


@triton.jit
def encode_block(x, signs, thresholds, M: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of floats, (M, 128), and the scale of each block: 0 for one of zeros, AS_IT_IS for one that is
    not transformed."""
    exponents = (x.to(tl.int32, bitcast=True) >> 23) & 0xFF
    r = _transform(_flip(x, signs), M) * 0.125
    bits = r.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    magnitude = bits.to(tl.float32, bitcast=True)
    scale = (tl.max(bits, axis=1) + (0xFFFF - 256)) >> 16
    scale = tl.where(scale < LEAST_SCALE, 0, scale)
    scale = tl.where(tl.max(exponents, axis=1) >= HUGE_EXPONENT, AS_IT_IS, scale)
    s = (scale << 16).to(tl.float32, bitcast=True)
    codes = tl.where(r < 0, 1 << (BITS - 1), 0)
    for index in tl.static_range((1 << (BITS - 1)) - 1):
        threshold = s * tl.load(thresholds + index)
        codes += (magnitude >= threshold[:, None]).to(tl.int32)
    return codes, scale


@triton.jit
def decode_block(codes, scale, signs, levels, M: tl.constexpr, BITS: tl.constexpr):
    """Return the floats of blocks that are transformed, (M, 128)."""
    s = (scale << 16).to(tl.float32, bitcast=True)
    v = tl.load(levels + (codes & ((1 << (BITS - 1)) - 1))) * s[:, None]
    v = (v.to(tl.int32, bitcast=True) ^ ((codes >> (BITS - 1)) << 31)).to(tl.float32, bitcast=True)
    return _flip(_transform(v, M) * 0.0625, signs)


@triton.jit
def encode(words, slots, sizes, signs, thresholds, levels, blocks, M: tl.constexpr, BITS: tl.constexpr):
    """Encode blocks of `words` to slots, and note their sizes. Of an irregular one only the header is stored."""
    block, is_block = blocks_here(blocks, M)
    word = tl.arange(0, 128)
    x = load_words(words, block, is_block, 128)
    codes, scale = encode_block(x, tl.load(signs + word), thresholds, M, BITS)
    at = slots + block * (2 + 16 * BITS)
    tl.store(at, (scale & 0xFF).to(tl.uint8), mask=is_block)
    tl.store(at + 1, (scale >> 8).to(tl.uint8), mask=is_block)
    is_regular = (scale != 0) & (scale != AS_IT_IS)
    store_codes(at + 2, codes, is_block & is_regular, M, 128, BITS)
    size = tl.where(is_regular, 2 + 16 * BITS, tl.where(scale == 0, 2, 2 + 512))
    tl.store(sizes + block, size, mask=is_block)


@triton.jit
def decode(slots, words, signs, thresholds, levels, blocks, ADD: tl.constexpr, M: tl.constexpr, BITS: tl.constexpr):
    """Decode slots to blocks of `words`, or add them. All are regular."""
    block, is_block = blocks_here(blocks, M)
    word = tl.arange(0, 128)
    at = slots + block * (2 + 16 * BITS)
    scale = tl.load(at, mask=is_block, other=0).to(tl.int32)
    scale |= tl.load(at + 1, mask=is_block, other=0).to(tl.int32) << 8
    codes = load_codes(at + 2, is_block, M, 128, BITS)
    x = decode_block(codes, scale, tl.load(signs + word), levels, M, BITS)
    store_words(words, block, is_block, x, ADD, 128)
