"""Tiles: the blocks of words that one program of a kernel works on."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def blocks_here(blocks, M: tl.constexpr):
    """Return the numbers of this program's blocks, (M,), and which of them are below `blocks`."""
    block = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    return block, block < blocks


@triton.jit
def load_words(words, block, is_block, WORDS: tl.constexpr):
    """Return the floats of blocks, (M, WORDS); 0 where there is no block."""
    where = words + block[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    return tl.load(where, mask=is_block[:, None], other=0.0)


@triton.jit
def store_words(words, block, is_block, x, ADD: tl.constexpr, WORDS: tl.constexpr):
    """Store the floats of blocks, (M, WORDS), or add them to what is there."""
    if ADD:
        x = load_words(words, block, is_block, WORDS) + x
    where = words + block[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    tl.store(where, x, mask=is_block[:, None])
