"""Codec 4, truncate (native/codecs/truncate.c): the highest bits of each word; tiles of 64 words, all of one size."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.packing import load_codes, store_codes
from softnic.torch.gpu.tiles import blocks_here, load_words, store_words


@triton.jit
def encode(words, slots, sizes, blocks, M: tl.constexpr, BITS: tl.constexpr):
    """Encode tiles of `words` to slots of 8 BITS bytes, BITS up to 16."""
    block, is_block = blocks_here(blocks, M)
    x = load_words(words, block, is_block, 64).to(tl.int32, bitcast=True)
    codes = (x >> (32 - BITS)) & ((1 << BITS) - 1)
    store_codes(slots + block * (8 * BITS), codes, is_block, M, 64, BITS)
    tl.store(sizes + block, tl.full((M,), 8 * BITS, tl.int32), mask=is_block)


@triton.jit
def decode(slots, words, blocks, ADD: tl.constexpr, M: tl.constexpr, BITS: tl.constexpr):
    """Decode slots to tiles of `words`, or add them."""
    block, is_block = blocks_here(blocks, M)
    codes = load_codes(slots + block * (8 * BITS), is_block, M, 64, BITS)
    x = (codes << (32 - BITS)).to(tl.float32, bitcast=True)
    store_words(words, block, is_block, x, ADD, 64)
