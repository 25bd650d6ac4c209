"""Written and not yet acknowledged bytes of a stream, and the tags on their ranges.

Bytes lie in one buffer of twice the capacity, so that any run of them is contiguous (a super-segment is a view of it);
when writing reaches its end, the rest is moved to the front, at most once per capacity written. Zero-copy bytes stay in
the writer's memory and do not count against the capacity (zerocopy.py).

A stream is a sequence of *tag ranges* that no segment crosses. A new tag begins one at any byte, also at one not
written yet. So does an odd cut: a position inside a tagged range, not a multiple of 64 bytes (or of the codec's blocks)
from the range's start, where a segment ended because there was no more to send. Remembering it makes every
retransmission cut there again, so every codec decodes to the same bits (FORMAT.md, "The payload of a tagged segment").
With a lossless codec the bytes of an incomplete float leave too, and a range begins behind them.

Tags and cuts are kept in C (native/tcp/send_buffer.c), because the fast path uses them too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from softnic._fields import Memory, SendBufferFields
from softnic._native import ffi, lib
from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.zerocopy import ZeroCopyRuns, address_of

CUT: int = lib.SN_BLOCK
"""Size of a coding block: tagged ranges are cut at multiples of it from the range's start, unless their codec has
longer blocks."""
LONGEST_BLOCK: int = lib.SN_LONGEST_BLOCK
_EMPTY = memoryview(b"")
_EXTENT = struct.Struct("@qqIx?H?q?")


class Cuts(NamedTuple):
    """Where a tagged range may be cut."""

    block: int = CUT
    """Bytes between two such places."""
    lossless: bool = False
    """Its codec alters no byte: an incomplete float at its end does not wait, and another range begins behind it."""


SHORTEST = Cuts()
CutsOf = Callable[[Tag], Cuts]
"""Returns where a range with this tag may be cut."""


def coding_blocks(_tag: Tag) -> Cuts:
    """Return the cuts of codecs that all have the shortest blocks."""
    return SHORTEST


class TagRange(NamedTuple):
    """Tag of the bytes from `start` up to the next range."""

    start: int
    origin: int
    """Start of the tagged range; an odd cut does not change it."""
    tag: Tag
    words: bool
    """The tag selects an offload: the bytes are floats."""
    block: int = CUT
    """Bytes between two places where the range may be cut."""
    lossless: bool = False
    """Its codec alters no byte."""

    def cut_before(self, position: int, limit: int) -> int:
        """Returns the last position before `limit` where a segment from `position` may end if more follows."""
        return max(position, limit - (limit - self.origin) % self.block) if self.words else limit


class SendBuffer(SendBufferFields):
    """Positions as in seq.py: the first byte written has position 1."""

    __slots__ = ("_extent", "_found", "_memory", "_numbers", "_tags", "c", "zerocopy")

    capacity: int
    """Limit of the copied bytes kept; autotune.py changes it."""
    origin: int
    """Position of the memory's first byte."""
    memory_address: int
    memory_size: int
    start: int
    """Position of the first byte kept."""
    end: int
    """Position behind the last byte written."""
    blocks: bool
    """No odd cuts: an incomplete coding block waits until it is complete or the range ends."""
    tags_count: int
    """Number of tag ranges."""
    floats: bool
    """The peer has a compressing NIC: ranges whose tag selects an offload are floats."""

    def __init__(self, capacity: int, *, memory: Memory | None = None) -> None:
        del memory
        self.c = ffi.cast("sn_send_buffer *", self.address)
        self._extent = ffi.new("sn_extent *")
        self._found = ffi.buffer(self._extent)
        self.capacity = capacity
        self._memory = _EMPTY
        self.origin = self.start = self.end = 1
        self.zerocopy = ZeroCopyRuns(memory=self.memory)
        """Runs of bytes in other memory, all before the buffer's own bytes."""
        self.floats = True
        self._tags: list[Tag] = []
        self._numbers: dict[Tag, int] = {}
        """Number of each tag in C; its index in `_tags`."""
        self._add_tag(1, PLAIN, False)

    def number_of(self, tag: Tag) -> int:
        """Returns the number of a tag in C."""
        number = self._numbers.setdefault(tag, len(self._tags))
        if number == len(self._tags):
            self._tags.append(tag)
        return number

    def _add_tag(self, position: int, tag: Tag, words: bool, cuts: Cuts = SHORTEST) -> None:
        number = self.number_of(tag)
        if lib.sn_send_buffer_tag(self.c, position, number, tag.tos, words, cuts.block, cuts.lossless):
            raise MemoryError("no memory for a tag")

    def tag_numbered(self, number: int) -> Tag:
        """Returns the tag with this number in C."""
        return self._tags[number]

    @property
    def tags(self) -> Sequence[Tag]:
        """The tags that bytes were written under or may be, in the order of their first use."""
        return self._tags

    @property
    def free(self) -> int:
        return int(lib.sn_send_buffer_free(self.c))

    def write_space(self) -> memoryview:
        """Returns contiguous space for the next bytes, to be reported by `wrote`; empty if the buffer is full."""
        if self.memory_size < 2 * self.capacity:
            self._move(2 * self.capacity, max(self.start, self.zerocopy.zerocopy_end))
        size = self.space()
        tail = self.end - self.origin
        return self._memory[tail : tail + size]

    def _move(self, size: int, own: int) -> None:
        """Allocates memory of `size` bytes, and moves the bytes from position `own` on there."""
        memory = np.empty(size, dtype=np.uint8).data  # pages stay untouched until they are used
        memory[: self.end - own] = self._memory[own - self.origin : self.end - self.origin]
        self._set_memory(memory)
        self.origin = own

    def _set_memory(self, memory: memoryview) -> None:
        """Replaces the memory of the buffer's own bytes."""
        self._memory = memory
        self.memory_address, self.memory_size = (address_of(memory), len(memory)) if memory else (0, 0)

    def grow(self, size: int) -> None:
        self.capacity += size

    def set_capacity(self, capacity: int) -> None:
        """Limits what may be written; bytes already written stay."""
        self.capacity = capacity

    def set_blocks(self, blocks: bool) -> bool:
        """Sets `blocks`. Returns whether that changed it."""
        changed = blocks != self.blocks
        self.blocks = blocks
        return changed

    def wrote(self, count: int) -> None:
        if not 0 <= count <= min(self.free, len(self._memory) - (self.end - self.origin)):
            raise ValueError(f"{count} bytes were never free")
        self.end += count

    def view(self, start: int, end: int) -> memoryview:
        """The bytes of [start, end), valid until the next `write_space`. One run only, as `reach` returns it."""
        if start < self.zerocopy.zerocopy_end:
            return self.zerocopy.view(start, end)
        return self._memory[start - self.origin : end - self.origin]

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> None:
        """Appends bytes that stay where they are, and must not change until `zerocopy.completed_bytes` has counted
        them.

        Raises ValueError inside a coding block of a tagged range, where no segment may begin or end.
        """
        if self.zerocopy_len(size) != size:
            raise ValueError(f"{size} zero-copy bytes would cut a tagged range where no segment may end")
        self.zerocopy.send_zerocopy(memory, offset, size)

    def tag(self, tag: Tag, position: int, words: bool, cuts: Cuts = SHORTEST) -> None:
        """Tags the stream from `position` on. Raises ValueError for bytes already written or tagged."""
        last = lib.sn_send_buffer_last_range(self.c)
        if tag == self._tags[last.tag]:
            return
        if position < self.end or position < last.start:
            raise ValueError(f"byte {position - 1} of the stream is already written or tagged")
        self._add_tag(position, tag, words and self.floats, cuts)

    @property
    def last_tag(self) -> Tag:
        number: int = lib.sn_send_buffer_last_range(self.c).tag
        return self._tags[number]

    def tag_range(self, position: int) -> TagRange:
        return self.extent(position, False)[0]

    def extent(self, position: int, flush: bool) -> tuple[TagRange, int, bool]:
        """Returns the tag range of a byte, the end of its data that may be sent now, and whether the range ends there.

        `flush`: nothing will follow the bytes written, so an incomplete word is sent too, with any codec.
        """
        lib.sn_send_buffer_extent(self.c, position, flush, self._extent)
        start, origin, number, words, block, lossless, end, closed = _EXTENT.unpack_from(self._found)
        # quicker than TagRange()
        tag_range = tuple.__new__(TagRange, (start, origin, self._tags[number], words, block, lossless))
        return tag_range, end, closed

    def release_memory(self) -> None:
        """Releases the memory if it is empty."""
        if max(self.start, self.zerocopy.zerocopy_end) == self.end:
            self._set_memory(_EMPTY)
            self.origin = self.end

    def clear(self) -> None:
        """Releases everything at the end of the connection."""
        self._set_memory(_EMPTY)
        self.zerocopy.clear()
        self.start = self.origin = self.end
