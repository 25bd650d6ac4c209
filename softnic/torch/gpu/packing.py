"""Codes of a few bits, packed from bit 0 of each byte up: eight codes of b bits take b bytes (docs/FORMAT.md)."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _joined(codes, M: tl.constexpr, COUNT: tl.constexpr, BITS: tl.constexpr):
    """Join neighbours of (M, COUNT) codes to (M, COUNT // 2) numbers. The first has the BITS lowest bits of each."""
    first, second = tl.split(tl.reshape(codes, (M, COUNT // 2, 2)))
    return first | (second << BITS)


@triton.jit
def store_codes(at, codes, is_block, M: tl.constexpr, WORDS: tl.constexpr, BITS: tl.constexpr):
    """Store the codes of blocks, (M, WORDS) with BITS (1 to 16) each, at the pointers `at`, (M,)."""
    EIGHTS: tl.constexpr = WORDS // 8
    NUMBER: tl.constexpr = tl.uint32 if BITS <= 4 else tl.uint64
    BYTES: tl.constexpr = 4 if BITS <= 4 else 8 if BITS <= 8 else 16  # of which BITS are stored
    twos = _joined(codes.to(tl.uint32), M, WORDS, BITS)
    if BITS <= 8:
        fours = _joined(twos, M, WORDS // 2, 2 * BITS)
        eights = _joined(fours.to(NUMBER), M, WORDS // 4, 4 * BITS)[:, :, None]
    else:  # two numbers: the first 64 bits, and those behind them
        fours = _joined(twos.to(NUMBER), M, WORDS // 2, 2 * BITS)
        first, second = tl.split(tl.reshape(fours, (M, EIGHTS, 2)))
        if BITS < 16:
            first |= second << (4 * BITS)
            second >>= 64 - 4 * BITS
        eights = tl.join(first, second)
    of_number = tl.arange(0, 8 if BITS > 4 else 4)
    byte = tl.arange(0, BYTES)[None, None, :]
    found = tl.reshape((eights[:, :, :, None] >> (8 * of_number)[None, None, None, :]).to(tl.uint8), (M, EIGHTS, BYTES))
    where = at[:, None, None] + tl.arange(0, EIGHTS)[None, :, None] * BITS + byte
    tl.store(where, found, mask=is_block[:, None, None] & (byte < BITS))


@triton.jit
def load_codes(at, is_block, M: tl.constexpr, WORDS: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of blocks, (M, WORDS), as int32; 0 where there is no block. Each code is taken from the one to
    three bytes that have bits of it, most of which are loaded from the cache: no bit is passed between threads."""
    bit = tl.arange(0, WORDS) * BITS
    where = at[:, None] + (bit // 8)[None, :]
    bits = tl.load(where, mask=is_block[:, None], other=0).to(tl.int32)
    DIVISOR: tl.constexpr = 8 if BITS % 8 == 0 else BITS & -BITS  # of the bit of a byte at which a code begins
    for byte in tl.static_range(1, (15 - DIVISOR + BITS) // 8):
        reaches = bit % 8 + BITS > 8 * byte
        bits |= tl.load(where + byte, mask=is_block[:, None] & reaches[None, :], other=0).to(tl.int32) << (8 * byte)
    return (bits >> (bit % 8)[None, :]) & ((1 << BITS) - 1)
