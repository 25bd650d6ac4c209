"""Bodies of slots: blocks that are not regular take another size in a body than in their slot."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.tiles import blocks_here


@triton.jit
def place(
    slots,
    words,
    sizes,
    ends,
    body,
    blocks,
    M: tl.constexpr,
    SLOT: tl.constexpr,
    HEADER: tl.constexpr,
    RAW: tl.constexpr,
    SLOT_TILE: tl.constexpr,
    RAW_TILE: tl.constexpr,
):
    """Copy each block to its place in a body: its slot, or the header there and the RAW bytes of its words. `ends` is
    the running sum of the sizes."""
    block, is_block = blocks_here(blocks, M)
    size = tl.load(sizes + block, mask=is_block, other=0)
    to = body + (tl.load(ends + block, mask=is_block, other=0) - size)
    is_raw = size == HEADER + RAW
    byte = tl.arange(0, SLOT_TILE)[None, :]
    of_slot = is_block[:, None] & (byte < tl.where(is_raw, HEADER, tl.minimum(size, SLOT))[:, None])
    tl.store(to[:, None] + byte, tl.load(slots + block[:, None] * SLOT + byte, mask=of_slot, other=0), mask=of_slot)
    byte = tl.arange(0, RAW_TILE)[None, :]
    of_words = (is_block & is_raw)[:, None] & (byte < RAW)
    tl.store(
        to[:, None] + (HEADER + byte),
        tl.load(words + block[:, None] * RAW + byte, mask=of_words, other=0),
        mask=of_words,
    )
