"""Tiles: the blocks of words that one program of a kernel works on."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

QUIET: tl.constexpr = tl.constexpr(0x400000)


@triton.jit
def blocks_here(blocks, M: tl.constexpr):
    """Return the numbers of this program's blocks, (M,), and which of them are below `blocks`."""
    block = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    return block, block < blocks


@triton.jit
def load_words(words, block, is_block, WORDS: tl.constexpr):
    """Return the words of blocks, (M, WORDS); 0 where there is no block."""
    where = words + block[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    return tl.load(where, mask=is_block[:, None], other=0)


@triton.jit
def store_words(words, block, is_block, x, WORDS: tl.constexpr):
    """Store the words of blocks, (M, WORDS)."""
    where = words + block[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    tl.store(where, x, mask=is_block[:, None])


@triton.jit
def add(a, b):
    """Return sums of floats. Of NaNs the first is the result, made quiet, as on the host (native/codecs/reduce.h);
    that of infinity minus infinity is the device's."""
    nan = tl.where(a != a, a, b).to(tl.int32, bitcast=True) | QUIET
    return tl.where((a != a) | (b != b), nan.to(tl.float32, bitcast=True), a + b)
