"""The kernels of codecs with slots: encode, decode, and what sums need of both at once.

A slot is a header and the packed codes of a block: QUANTISE computes both of floats, RESTORE floats of both (rht.py,
bfp.py, mx.py, truncate.py).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from softnic.torch.gpu.packing import load_codes, store_codes
from softnic.torch.gpu.tiles import add, blocks_here, load_words, store_words


@dataclass(frozen=True)
class Shape:
    """What the kernels of a codec are compiled for."""

    tile: int
    """Blocks of each program."""
    words: int
    """Of a block."""
    header: int
    """Bytes in front of the codes, little-endian."""
    bits: int
    """Of a code."""
    irregular: int
    """Headers from this one on, after which the words follow as they are, and 0, of a block of zeros, have no codes. So
    the block has another size in a body than its slot. 0: none has."""
    parameter: int
    """Of the codec."""

    @property
    def slot(self) -> int:
        """Bytes of a regular block."""
        return self.header + self.words * self.bits // 8


@triton.jit
def _store_slots(codes, header, slots, sizes, blocks, SHAPE: tl.constexpr):
    """Store the slots of this program's blocks, and the size of each in a body. Of an irregular one only the header is
    stored."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    size = tl.full((SHAPE.tile,), SHAPE.slot, tl.int32)
    if SHAPE.irregular:
        irregular = tl.where(header == 0, SHAPE.header, SHAPE.header + 4 * SHAPE.words)
        size = tl.where((header != 0) & (header < SHAPE.irregular), size, irregular)
    at = slots + block * SHAPE.slot
    HEADER: tl.constexpr = SHAPE.header
    for byte in tl.static_range(HEADER):
        tl.store(at + byte, (header >> (8 * byte)).to(tl.uint8), mask=is_block)
    store_codes(at + SHAPE.header, codes, is_block & (size == SHAPE.slot), SHAPE.tile, SHAPE.words, SHAPE.bits)
    tl.store(sizes + block, size, mask=is_block)


@triton.jit
def _load_regular(at, tables, is_there, SHAPE: tl.constexpr, RESTORE: tl.constexpr):
    """Return the floats of regular blocks that begin at `at`."""
    header = tl.full((SHAPE.tile,), 0, tl.int32)
    HEADER: tl.constexpr = SHAPE.header
    for byte in tl.static_range(HEADER):
        header |= tl.load(at + byte, mask=is_there, other=0).to(tl.int32) << (8 * byte)
    codes = load_codes(at + SHAPE.header, is_there, SHAPE.tile, SHAPE.words, SHAPE.bits)
    return RESTORE(codes, header, tables, SHAPE.tile, SHAPE.parameter)


@triton.jit
def _load_slots(slots, tables, block, is_block, SHAPE: tl.constexpr, RESTORE: tl.constexpr):
    """Return the floats of slots. All are of regular blocks."""
    return _load_regular(slots + block * SHAPE.slot, tables, is_block, SHAPE, RESTORE)


@triton.jit
def _total(contributions, words, tables, blocks, COUNT: tl.constexpr, SHAPE: tl.constexpr, RESTORE: tl.constexpr):
    """Return `words` plus the floats of COUNT contributions, one added after the other; their slots lie behind each
    other."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    x = load_words(words, block, is_block, SHAPE.words)
    for _ in range(COUNT):
        x = add(_load_slots(contributions, tables, block, is_block, SHAPE, RESTORE), x)
        block += blocks
    return x


@triton.jit
def _decoded(x, codes, header, tables, SHAPE: tl.constexpr, RESTORE: tl.constexpr):
    """Return what the blocks of floats become by way of their codes and headers."""
    decoded = RESTORE(codes, header, tables, SHAPE.tile, SHAPE.parameter)
    if SHAPE.irregular:
        decoded = tl.where((header >= SHAPE.irregular)[:, None], x, decoded)
        decoded = tl.where((header == 0)[:, None], 0.0, decoded)
    return decoded


@triton.jit
def encode(words, slots, sizes, tables, blocks, SHAPE: tl.constexpr, QUANTISE: tl.constexpr):
    """Encode `words` to slots."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    codes, header = QUANTISE(load_words(words, block, is_block, SHAPE.words), tables, SHAPE.tile, SHAPE.parameter)
    _store_slots(codes, header, slots, sizes, blocks, SHAPE)


@triton.jit
def encode_with_residual(
    words, residual, slots, sizes, tables, blocks, SHAPE: tl.constexpr, QUANTISE: tl.constexpr, RESTORE: tl.constexpr
):
    """Encode `words` + `residual` to slots, and replace the residual by the error: 0 where that is infinite or NaN."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    x = add(load_words(words, block, is_block, SHAPE.words), load_words(residual, block, is_block, SHAPE.words))
    codes, header = QUANTISE(x, tables, SHAPE.tile, SHAPE.parameter)
    _store_slots(codes, header, slots, sizes, blocks, SHAPE)
    error = x - _decoded(x, codes, header, tables, SHAPE, RESTORE)
    is_finite = (error.to(tl.int32, bitcast=True) & 0x7F800000) != 0x7F800000
    store_words(residual, block, is_block, tl.where(is_finite, error, 0.0), SHAPE.words)


@triton.jit
def decode(slots, words, tables, blocks, SHAPE: tl.constexpr, RESTORE: tl.constexpr):
    """Decode slots to `words`. All are of regular blocks."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    x = _load_slots(slots, tables, block, is_block, SHAPE, RESTORE)
    store_words(words, block, is_block, x, SHAPE.words)


@triton.jit
def decode_body(
    body, sizes, ends, words, tables, blocks, ADD: tl.constexpr, SHAPE: tl.constexpr, RESTORE: tl.constexpr
):
    """Decode a body to `words`, or add it to them; `ends` is the running sum of the sizes of its blocks."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    size = tl.load(sizes + block, mask=is_block, other=0)
    at = body + (tl.load(ends + block, mask=is_block, other=0) - size)
    x = _load_regular(at, tables, is_block & (size == SHAPE.slot), SHAPE, RESTORE)
    WORDS: tl.constexpr = SHAPE.words
    is_raw = (is_block & (size == SHAPE.header + 4 * WORDS))[:, None]
    word = at[:, None] + (SHAPE.header + 4 * tl.arange(0, WORDS)[None, :])
    bits = tl.load(word, mask=is_raw, other=0).to(tl.int32)
    for byte in tl.static_range(1, 4):
        bits |= tl.load(word + byte, mask=is_raw, other=0).to(tl.int32) << (8 * byte)
    x = tl.where((size == SHAPE.slot)[:, None], x, bits.to(tl.float32, bitcast=True))  # without bits: zeros
    if ADD:
        x = add(x, load_words(words, block, is_block, WORDS))
    store_words(words, block, is_block, x, WORDS)


@triton.jit
def decode_and_add(
    contributions, words, tables, blocks, COUNT: tl.constexpr, SHAPE: tl.constexpr, RESTORE: tl.constexpr
):
    """Add the slots of COUNT contributions to `words`, in their order. All are of regular blocks."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    x = _total(contributions, words, tables, blocks, COUNT, SHAPE, RESTORE)
    store_words(words, block, is_block, x, SHAPE.words)


@triton.jit
def reduce(
    contributions,
    words,
    slots,
    sizes,
    tables,
    blocks,
    DECODE: tl.constexpr,
    COUNT: tl.constexpr,
    SHAPE: tl.constexpr,
    QUANTISE: tl.constexpr,
    RESTORE: tl.constexpr,
):
    """Encode the sum of `words` and the slots of COUNT contributions to slots. With DECODE, `words` become what these
    decode to."""
    block, is_block = blocks_here(blocks, SHAPE.tile)
    x = _total(contributions, words, tables, blocks, COUNT, SHAPE, RESTORE)
    codes, header = QUANTISE(x, tables, SHAPE.tile, SHAPE.parameter)
    _store_slots(codes, header, slots, sizes, blocks, SHAPE)
    if DECODE:
        decoded = _decoded(x, codes, header, tables, SHAPE, RESTORE)
        store_words(words, block, is_block, decoded, SHAPE.words)
