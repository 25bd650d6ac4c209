"""Codec 7, mx (native/codecs/mx.h): blocks of 32 words, all of them regular. The header is the scale.

By integers alone, as mx.c.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

NAN_WORD: tl.constexpr = tl.constexpr(0x7FC00000)
INFINITY_WORD: tl.constexpr = tl.constexpr(0x7F800000)
# Of each element type, by the codec's parameter.
ELEMENT_BITS: tl.constexpr = tl.constexpr((0, 8, 8, 6, 4))
FRACTION_BITS: tl.constexpr = tl.constexpr((0, 3, 2, 3, 1))
BIASES: tl.constexpr = tl.constexpr((0, 7, 15, 1, 1))
LARGEST: tl.constexpr = tl.constexpr((0, 0x7E, 0x7B, 0x1F, 0x07))
"""Magnitudes."""
WITH_INFINITIES: tl.constexpr = tl.constexpr(2)


@triton.jit
def quantise(x, tables, M: tl.constexpr, ELEMENT: tl.constexpr):
    """Return the elements of floats, (M, 32), and the scale of each block."""
    BITS: tl.constexpr = ELEMENT_BITS[ELEMENT]
    FRACTION: tl.constexpr = FRACTION_BITS[ELEMENT]
    BIAS: tl.constexpr = BIASES[ELEMENT]
    MOST: tl.constexpr = LARGEST[ELEMENT]
    above: tl.constexpr = (MOST >> FRACTION) - BIAS
    x = x.to(tl.int32, bitcast=True)
    exponent = (x >> 23) & 0xFF
    mantissa = x & 0x7FFFFF
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
    return tl.where(scale[:, None] == 255, 0, codes), scale


@triton.jit
def restore(codes, scale, tables, M: tl.constexpr, ELEMENT: tl.constexpr):
    """Return the floats of elements, (M, 32)."""
    BITS: tl.constexpr = ELEMENT_BITS[ELEMENT]
    FRACTION: tl.constexpr = FRACTION_BITS[ELEMENT]
    BIAS: tl.constexpr = BIASES[ELEMENT]
    sign = (codes >> (BITS - 1)) << 31
    magnitude = codes & ((1 << (BITS - 1)) - 1)
    field = magnitude >> FRACTION
    fraction = magnitude & ((1 << FRACTION) - 1)
    mantissa = fraction | tl.where(field != 0, 1 << FRACTION, 0)
    unit = tl.maximum(field, 1) - BIAS - FRACTION + scale[:, None] - 127
    bits = mantissa.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) + unit
    normal = (bits & 0x7FFFFF) | (exponent << 23)
    denormal = mantissa << tl.minimum(tl.maximum(unit + 149, 0), 31)
    word = tl.where(exponent >= 255, INFINITY_WORD, tl.where(exponent > 0, normal, denormal))
    word = tl.where(mantissa == 0, 0, word)
    special = tl.where(fraction == 0, INFINITY_WORD if ELEMENT == WITH_INFINITIES else NAN_WORD, NAN_WORD)
    word = sign | tl.where(magnitude > LARGEST[ELEMENT], special, word)
    return tl.where(scale[:, None] == 255, NAN_WORD, word).to(tl.float32, bitcast=True)
