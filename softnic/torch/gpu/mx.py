"""Codec 7, mx (native/codecs/mx.h): blocks of 32 words, each in a slot of 1 + 4 w bytes; all are regular.

By integers alone, as mx.c.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.packing import load_codes, store_codes
from softnic.torch.gpu.tiles import blocks_here, load_words, store_words

NAN_WORD: tl.constexpr = tl.constexpr(0x7FC00000)
INFINITY_WORD: tl.constexpr = tl.constexpr(0x7F800000)


@triton.jit
def encode(
    words,
    slots,
    sizes,
    blocks,
    M: tl.constexpr,
    BITS: tl.constexpr,
    FRACTION: tl.constexpr,
    BIAS: tl.constexpr,
    MOST: tl.constexpr,
    INFINITE: tl.constexpr,
):
    """Encode blocks of `words` to slots. FRACTION is the bits of an element's mantissa, MOST its largest magnitude."""
    block, is_block = blocks_here(blocks, M)
    x = load_words(words, block, is_block, 32).to(tl.int32, bitcast=True)
    exponent = (x >> 23) & 0xFF
    mantissa = x & 0x7FFFFF
    above: tl.constexpr = (MOST >> FRACTION) - BIAS
    greatest = tl.max(exponent, axis=1)
    scale = tl.where(greatest == 255, 255, tl.maximum(greatest - above, 0))
    # A denormal is shifted until its first one is where a normal number has its own.
    first = (mantissa.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    below = tl.where(exponent == 0, 23 - tl.maximum(first, 0), 0)
    is_zero = (exponent == 0) & (mantissa == 0)
    mantissa = tl.where(exponent == 0, mantissa << below, mantissa | (1 << 23))
    exponent = tl.where(exponent == 0, 1 - below, exponent) + BIAS - scale[:, None]
    field = tl.maximum(exponent, 1)
    shift = tl.minimum(23 - FRACTION + field - exponent, 25)
    half = 1 << (shift - 1)
    kept = mantissa >> shift
    rest = mantissa & (2 * half - 1)
    kept += ((rest > half) | ((rest == half) & ((kept & 1) != 0))).to(tl.int32)
    magnitude = tl.minimum(((field - 1) << FRACTION) + kept, MOST)
    magnitude = tl.where(is_zero, 0, magnitude)
    codes = magnitude | tl.where(x < 0, 1 << (BITS - 1), 0)
    codes = tl.where(scale[:, None] == 255, 0, codes)
    at = slots + block * (1 + 4 * BITS)
    tl.store(at, scale.to(tl.uint8), mask=is_block)
    store_codes(at + 1, codes, is_block, M, 32, BITS)
    tl.store(sizes + block, tl.full((M,), 1 + 4 * BITS, tl.int32), mask=is_block)


@triton.jit
def decode(
    slots,
    words,
    blocks,
    ADD: tl.constexpr,
    M: tl.constexpr,
    BITS: tl.constexpr,
    FRACTION: tl.constexpr,
    BIAS: tl.constexpr,
    MOST: tl.constexpr,
    INFINITE: tl.constexpr,
):
    """Decode slots to blocks of `words`, or add them."""
    block, is_block = blocks_here(blocks, M)
    at = slots + block * (1 + 4 * BITS)
    scale = tl.load(at, mask=is_block, other=0).to(tl.int32)[:, None]
    codes = load_codes(at + 1, is_block, M, 32, BITS)
    sign = (codes >> (BITS - 1)) << 31
    magnitude = codes & ((1 << (BITS - 1)) - 1)
    field = magnitude >> FRACTION
    fraction = magnitude & ((1 << FRACTION) - 1)
    mantissa = fraction | tl.where(field != 0, 1 << FRACTION, 0)
    unit = tl.maximum(field, 1) - BIAS - FRACTION + scale - 127
    bits = mantissa.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) + unit
    normal = (bits & 0x7FFFFF) | (exponent << 23)
    denormal = mantissa << tl.minimum(tl.maximum(unit + 149, 0), 31)
    word = tl.where(exponent >= 255, INFINITY_WORD, tl.where(exponent > 0, normal, denormal))
    word = tl.where(mantissa == 0, 0, word)
    special = tl.where(fraction == 0, INFINITY_WORD if INFINITE else NAN_WORD, NAN_WORD)
    word = sign | tl.where(magnitude > MOST, special, word)
    x = tl.where(scale == 255, NAN_WORD, word).to(tl.float32, bitcast=True)
    store_words(words, block, is_block, x, ADD, 32)
