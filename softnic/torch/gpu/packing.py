"""Codes of a few bits, packed from bit 0 of each byte up: eight codes of b bits take b bytes (docs/FORMAT.md)."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_codes(at, codes, is_block, M: tl.constexpr, WORDS: tl.constexpr, BITS: tl.constexpr):
    """Store the codes of blocks, (M, WORDS) with BITS (1 to 16) each, at the pointers `at`, (M,)."""
    NUMBER: tl.constexpr = tl.int32 if BITS <= 8 else tl.int64
    BYTES: tl.constexpr = 8 if BITS <= 8 else 16
    LIMIT: tl.constexpr = 32 if BITS <= 8 else 64
    four = tl.reshape(codes, (M, WORDS // 8, 2, 4)).to(NUMBER)
    low, high = tl.split(tl.sum(four << (tl.arange(0, 4) * BITS)[None, None, None, :], axis=3))
    low, high = low[:, :, None], high[:, :, None]
    byte = tl.arange(0, BYTES)[None, None, :]
    begin = 8 * byte
    behind = begin - 4 * BITS  # the bit of `high` with which this byte begins
    of_low = tl.where(begin < LIMIT, low >> tl.minimum(begin, LIMIT - 1), 0)
    shifted = tl.where(
        behind < 0, high << tl.minimum(-behind, LIMIT - 1), high >> tl.minimum(tl.maximum(behind, 0), LIMIT - 1)
    )
    of_low = tl.where(begin < 4 * BITS, of_low, 0)
    of_high = tl.where(behind > -8, shifted, 0)
    LEFT: tl.constexpr = 4 * BITS % 8  # bits of `low` in the byte that has some of both
    of_low = tl.where((behind > -8) & (behind < 0), of_low & ((1 << LEFT) - 1), of_low)
    where = at[:, None, None] + tl.arange(0, WORDS // 8)[None, :, None] * BITS + byte
    tl.store(where, ((of_low | of_high) & 0xFF).to(tl.uint8), mask=is_block[:, None, None] & (byte < BITS))


@triton.jit
def load_codes(at, is_block, M: tl.constexpr, WORDS: tl.constexpr, BITS: tl.constexpr):
    """Return the codes of blocks, (M, WORDS), as int32; 0 where there is no block."""
    NUMBER: tl.constexpr = tl.int32 if BITS <= 8 else tl.int64
    BYTES: tl.constexpr = 8 if BITS <= 8 else 16
    LIMIT: tl.constexpr = 32 if BITS <= 8 else 64
    byte = tl.arange(0, BYTES)[None, None, :]
    where = at[:, None, None] + tl.arange(0, WORDS // 8)[None, :, None] * BITS + byte
    found = tl.load(where, mask=is_block[:, None, None] & (byte < BITS), other=0).to(NUMBER)
    begin = 8 * byte
    behind = begin - 4 * BITS
    of_low = tl.where(begin < 4 * BITS, found << tl.minimum(begin, LIMIT - 1), 0)
    shifted = tl.where(
        behind < 0, found >> tl.minimum(-behind, 8), found << tl.minimum(tl.maximum(behind, 0), LIMIT - 1)
    )
    of_high = tl.where(behind > -8, shifted, 0)
    both = tl.join(tl.sum(of_low, axis=2), tl.sum(of_high, axis=2))
    codes = both[:, :, :, None] >> (tl.arange(0, 4) * BITS)[None, None, None, :]
    return (tl.reshape(codes, (M, WORDS)) & ((1 << BITS) - 1)).to(tl.int32)
