"""Codec 3, bfp (native/codecs/bfp.c): blocks of 16 words that share an exponent, each in a slot of 1 + 2 (1 + m) bytes.

By integers alone, as floats would leave their range in some blocks.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.packing import load_codes, store_codes
from softnic.torch.gpu.tiles import blocks_here, load_words, store_words


@triton.jit
def encode(words, slots, sizes, blocks, M: tl.constexpr, BITS: tl.constexpr):
    """Encode blocks of `words` to slots, and note their sizes. Of an irregular one only the header is stored."""
    block, is_block = blocks_here(blocks, M)
    x = load_words(words, block, is_block, 16).to(tl.int32, bitcast=True)
    exponent = (x >> 23) & 0xFF
    shared = tl.max(exponent, axis=1)
    mantissa = (x & 0x7FFFFF) | tl.where(exponent != 0, 1 << 23, 0)
    shift = tl.minimum(24 - BITS + shared[:, None] - tl.maximum(exponent, 1), 25)
    half = 1 << (shift - 1)
    q = mantissa >> shift
    rest = mantissa & (2 * half - 1)
    q += ((rest > half) | ((rest == half) & ((q & 1) != 0))).to(tl.int32)
    q = tl.minimum(q, (1 << BITS) - 1)
    codes = q | tl.where((x < 0) & (q > 0), 1 << BITS, 0)
    at = slots + block * (3 + 2 * BITS)
    tl.store(at, shared.to(tl.uint8), mask=is_block)
    is_regular = (shared != 0) & (shared != 255)
    store_codes(at + 1, codes, is_block & is_regular, M, 16, BITS + 1)
    tl.store(sizes + block, tl.where(is_regular, 3 + 2 * BITS, tl.where(shared == 0, 1, 65)), mask=is_block)


@triton.jit
def decode(slots, words, blocks, ADD: tl.constexpr, M: tl.constexpr, BITS: tl.constexpr):
    """Decode slots to blocks of `words`, or add them. All are regular."""
    block, is_block = blocks_here(blocks, M)
    at = slots + block * (3 + 2 * BITS)
    shared = tl.load(at, mask=is_block, other=0).to(tl.int32)
    codes = load_codes(at + 1, is_block, M, 16, BITS + 1)
    q = codes & ((1 << BITS) - 1)
    bits = q.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 126 + shared[:, None] - BITS
    denormal = q << tl.minimum(tl.maximum(23 + shared[:, None] - BITS, 0), 31)
    magnitude = tl.where(exponent > 0, (bits & 0x7FFFFF) | (exponent << 23), denormal)
    magnitude = tl.where(q == 0, 0, magnitude)
    x = (magnitude | tl.where(q == 0, 0, (codes >> BITS) << 31)).to(tl.float32, bitcast=True)
    store_words(words, block, is_block, x, ADD, 16)
