"""Kernels of codec 6, exact (native/codecs/exact.h): blocks of 128 words, without loss, of N elements of BITS bits.

The places of blocks in a body follow from their sizes, which come first: for encoding from `measure`, for decoding from
the encoder, which may send them along, or from `find`. That looks at one block after the other, because in this format
nothing but the block before says where a block begins.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton compiles these functions; their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

from softnic.torch.gpu.tiles import blocks_here, load_words, store_words

TILE: tl.constexpr = tl.constexpr(2)
"""Blocks of each program."""
AS_IT_IS: tl.constexpr = tl.constexpr(0xFF)
BLOCK_BYTES: tl.constexpr = tl.constexpr(512)
BLOCK_BITS: tl.constexpr = tl.constexpr(8 * 512)
SEEN: tl.constexpr = tl.constexpr(128)
BASES: tl.constexpr = tl.constexpr(8)


@triton.jit
def _rotated(elements, block, is_block, N: tl.constexpr, BITS: tl.constexpr):
    """Return the elements of blocks, (TILE, N), rotated left by one bit."""
    x = load_words(elements, block, is_block, N).to(tl.uint32)
    if BITS == 32:
        return (x << 1) | (x >> 31)
    return ((x << 1) | ((x >> 15) & 1)) & 0xFFFF


@triton.jit
def _base(symbols, N: tl.constexpr):
    """Return the symbol of each block for which it and the two below it are most frequent among the first 128 elements,
    the largest of several: one of 8 from the largest symbol down."""
    is_seen = tl.arange(0, N)[None, :] < SEEN
    greatest = tl.minimum(tl.max(tl.where(is_seen, symbols, 0), axis=1), AS_IT_IS - 1)
    distance = tl.where(is_seen, (greatest[:, None] - symbols) & 0xFF, 0x100)
    base = greatest
    most = greatest * 0
    for index in tl.static_range(BASES):
        candidate = (greatest - index) & 0xFF
        found = tl.sum(((distance >= index) & (distance < index + 3)).to(tl.int32), axis=1)
        is_better = (found > most) & (candidate != AS_IT_IS)
        base = tl.where(is_better, candidate, base)
        most = tl.where(is_better, found, most)
    return base


@triton.jit
def _codes(symbols, base):
    """Return the first codes of symbols, and the second ones of those whose first is 3."""
    distance = (base[:, None] - symbols) & 0xFF
    return tl.minimum(distance, 3), tl.where(distance == 255, 0, tl.minimum(distance - 2, 7))


@triton.jit
def _size(escaped, raw, N: tl.constexpr):
    """Return the bytes of blocks by their numbers of second codes, and of symbols behind these."""
    return 1 + N // 4 + 3 * ((escaped + 7) // 8) + raw + (BLOCK_BYTES - N)


@triton.jit
def measure(elements, sizes, blocks, BITS: tl.constexpr):
    """Store the bytes that each block of `elements` will have in a body."""
    N: tl.constexpr = BLOCK_BITS // BITS
    block, is_block = blocks_here(blocks, TILE)
    symbols = (_rotated(elements, block, is_block, N, BITS) >> (BITS - 8)).to(tl.int32)
    first, second = _codes(symbols, _base(symbols, N))
    escaped = tl.sum((first == 3).to(tl.int32), axis=1)
    size = _size(escaped, tl.sum(((first == 3) & (second == 7)).to(tl.int32), axis=1), N)
    tl.store(sizes + block, tl.minimum(size, 1 + BLOCK_BYTES), mask=is_block)


@triton.jit
def _store_plane(at, bits, size, N: tl.constexpr):
    """Store the first `size` bytes of a plane that has one bit of each element, (TILE, N)."""
    byte = tl.arange(0, N // 8)[None, :]
    plane = tl.sum(tl.reshape(bits, (TILE, N // 8, 8)) << tl.arange(0, 8)[None, None, :], axis=2)
    tl.store(at[:, None] + byte, plane.to(tl.uint8), mask=byte < size[:, None])


@triton.jit
def encode(elements, body, ends, scratch, blocks, BITS: tl.constexpr):
    """Encode blocks of `elements` to a body; `ends` is the running sum of their sizes.

    Second codes are brought together in `scratch`, of as many bytes as there are elements.
    """
    N: tl.constexpr = BLOCK_BITS // BITS
    block, is_block = blocks_here(blocks, TILE)
    end = tl.load(ends + block, mask=is_block, other=0)
    size = end - tl.load(ends + block - 1, mask=is_block & (block > 0), other=0)
    at = body + (end - size)
    rotated = _rotated(elements, block, is_block, N, BITS)
    symbols = (rotated >> (BITS - 8)).to(tl.int32)
    base = _base(symbols, N)
    first, second = _codes(symbols, base)
    is_coded = is_block & (size <= BLOCK_BYTES)
    tl.store(at, tl.where(is_coded, base, AS_IT_IS).to(tl.uint8), mask=is_block)

    plane = tl.where(is_coded, N // 8, 0)
    _store_plane(at + 1, first & 1, plane, N)
    _store_plane(at + 1 + N // 8, first >> 1, plane, N)

    is_escaped = ((first == 3) & is_coded[:, None]).to(tl.int32)
    place = tl.cumsum(is_escaped, axis=1) - is_escaped
    own = scratch + block[:, None] * N
    tl.store(own + place, second.to(tl.uint8), mask=is_escaped != 0)
    tl.debug_barrier()
    escaped = tl.sum(is_escaped, axis=1)
    element = tl.arange(0, N)[None, :]
    together = tl.load(own + element, mask=element < escaped[:, None], other=0).to(tl.int32)
    plane = (escaped + 7) // 8
    at_second = at + (1 + N // 4)
    for bit in tl.static_range(3):
        _store_plane(at_second + bit * plane, (together >> bit) & 1, plane, N)

    is_raw = is_escaped * (second == 7).to(tl.int32)
    place = tl.cumsum(is_raw, axis=1) - is_raw
    at_raw = at_second + 3 * plane
    tl.store(at_raw[:, None] + place, symbols.to(tl.uint8), mask=is_raw != 0)

    at_rest = at_raw + tl.sum(is_raw, axis=1)
    BELOW: tl.constexpr = BITS // 8 - 1
    for byte in tl.static_range(BELOW):
        where = at_rest[:, None] + (element * BELOW + byte)
        tl.store(where, (rotated >> (8 * byte)).to(tl.uint8), mask=is_coded[:, None])
    x = (rotated >> 1) | (rotated << (BITS - 1))
    for byte in tl.static_range(BITS // 8):
        where = at[:, None] + (1 + element * (BITS // 8) + byte)
        tl.store(where, (x >> (8 * byte)).to(tl.uint8), mask=(is_block & (size > BLOCK_BYTES))[:, None])


@triton.jit
def _bytes(at, offset, size, mask):
    """Return bytes of blocks, (TILE, N), as int32; 0 behind their sizes."""
    inside = mask & (offset >= 0) & (offset < size[:, None])
    return tl.load(at[:, None] + offset, mask=inside, other=0).to(tl.int32)


@triton.jit
def decode(body, elements, ends, malformed, length, blocks, BITS: tl.constexpr):
    """Decode a body of `length` bytes; `ends` is the running sum of the sizes of its blocks.

    Nothing else is read, whatever they are. `malformed` receives whether a block has another size or stray bits.
    """
    N: tl.constexpr = BLOCK_BITS // BITS
    block, is_block = blocks_here(blocks, TILE)
    end = tl.load(ends + block, mask=is_block, other=0)
    start = tl.load(ends + block - 1, mask=is_block & (block > 0), other=0)
    is_inside = is_block & (start >= 0) & (start < end) & (end <= length)
    size = tl.where(is_inside, end - start, 0).to(tl.int32)
    at = body + tl.where(is_inside, start, 0)
    base = tl.load(at, mask=is_inside, other=0).to(tl.int32)
    is_coded = (is_inside & (base != AS_IT_IS))[:, None]
    element = tl.arange(0, N)[None, :]

    first = (_bytes(at, 1 + element // 8, size, is_coded) >> (element % 8)) & 1
    first |= ((_bytes(at, 1 + N // 8 + element // 8, size, is_coded) >> (element % 8)) & 1) << 1
    is_escaped = (first == 3).to(tl.int32)
    escaped = tl.sum(is_escaped, axis=1)
    place = tl.cumsum(is_escaped, axis=1) - is_escaped
    plane = (escaped + 7) // 8
    second = first * 0
    last = escaped * 0
    for bit in tl.static_range(3):
        begin = 1 + N // 4 + bit * plane
        bits = _bytes(at, begin[:, None] + place // 8, size, is_escaped != 0)
        second |= ((bits >> (place % 8)) & 1) << bit
        is_last = is_inside & (escaped % 8 != 0) & (begin + plane <= size)
        last |= tl.load(at + begin + plane - 1, mask=is_last, other=0).to(tl.int32) >> (escaped % 8)

    is_raw = is_escaped * (second == 7).to(tl.int32)
    begin = 1 + N // 4 + 3 * plane
    place = tl.cumsum(is_raw, axis=1) - is_raw
    raw = _bytes(at, begin[:, None] + place, size, is_raw != 0)
    near = base[:, None] - tl.where(second == 0, -1, second + 2)
    symbols = tl.where(first < 3, base[:, None] - first, tl.where(is_raw != 0, raw, near)) & 0xFF

    begin += tl.sum(is_raw, axis=1)
    BELOW: tl.constexpr = BITS // 8 - 1
    rotated = symbols << (BITS - 8)
    for byte in tl.static_range(BELOW):
        rotated |= _bytes(at, begin[:, None] + (element * BELOW + byte), size, is_coded) << (8 * byte)
    rotated = rotated.to(tl.uint32)
    x = (rotated >> 1) | (rotated << (BITS - 1))
    is_given = (is_inside & (base == AS_IT_IS))[:, None]
    given = first * 0
    for byte in tl.static_range(BITS // 8):
        given |= _bytes(at, 1 + element * (BITS // 8) + byte, size, is_given) << (8 * byte)
    x = tl.where(is_given, given, x.to(tl.int32, bitcast=True))
    store_words(elements, block, is_block, x.to(elements.dtype.element_ty), N)

    expected = tl.where(base == AS_IT_IS, 1 + BLOCK_BYTES, begin + (BLOCK_BYTES - N))
    tl.store(malformed + block, ((size != expected) | (last != 0)).to(tl.uint8), mask=is_block)


@triton.jit
def _ones(plane):
    """Return the number of ones in the bytes of a plane, (N // 8,)."""
    return tl.sum(tl.sum((plane[:, None] >> tl.arange(0, 8)[None, :]) & 1, axis=1), axis=0)


@triton.jit
def find(body, sizes, length, blocks, BITS: tl.constexpr):
    """Store the sizes of the blocks in a body of `length` bytes. One program looks at one block after the other."""
    N: tl.constexpr = BLOCK_BITS // BITS
    byte = tl.arange(0, N // 8)
    start = length * 0
    block = blocks * 0
    while block < blocks:
        base = tl.load(body + start, mask=start < length, other=0).to(tl.int32)
        both = tl.full((N // 8,), 0xFF, tl.int32)
        for bit in tl.static_range(2):
            at = start + (1 + bit * (N // 8)) + byte
            both &= tl.load(body + at, mask=at < length, other=0).to(tl.int32)
        escaped = _ones(both)
        plane = (escaped + 7) // 8
        all_three = tl.full((N // 8,), 0xFF, tl.int32)
        for bit in tl.static_range(3):
            at = start + (1 + N // 4 + bit * plane) + byte
            all_three &= tl.load(body + at, mask=(byte < plane) & (at < length), other=0).to(tl.int32)
        size = tl.where(base == AS_IT_IS, 1 + BLOCK_BYTES, _size(escaped, _ones(all_three), N))
        tl.store(sizes + block, size)
        start += size
        block += 1
