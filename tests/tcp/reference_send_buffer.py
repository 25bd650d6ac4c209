"""The send buffer in Python: the reference of native/tcp/send_buffer.c."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.send_buffer import Cuts
from tests.tcp.reference_zerocopy import ReferenceRuns

CUT = 64
"""Size of a coding block: tagged ranges are cut at multiples of it from the range's start."""
_WORD = 4
_SHORTEST = Cuts()
_EMPTY = memoryview(b"")


class ReferenceTagRange(NamedTuple):
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


class ReferenceSendBuffer:
    """Positions as in seq.py: the first byte written has position 1."""

    __slots__ = (
        "_floats",
        "_memory",
        "_origin",
        "_ranges",
        "_starts",
        "blocks",
        "capacity",
        "end",
        "start",
        "zerocopy",
    )

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Limit of the copied bytes kept; autotune.py changes it."""
        self._memory = _EMPTY
        self._origin = 1
        """Position of the memory's first byte."""
        self.start = 1
        """Position of the first byte kept."""
        self.end = 1
        """Position behind the last byte written."""
        self.zerocopy = ReferenceRuns()
        """Runs of bytes in other memory, all before the buffer's own bytes."""
        self.blocks = False
        """No odd cuts: an incomplete coding block waits until it is complete or the range ends."""
        self._floats = True
        """The peer has a compressing NIC: ranges whose tag selects an offload are floats."""
        self._ranges = [ReferenceTagRange(1, 1, PLAIN, False)]
        self._starts = [1]

    @property
    def free(self) -> int:
        return max(0, self.capacity - (self.end - self.start - self.zerocopy.outstanding))

    def write_space(self) -> memoryview:
        """Returns contiguous space for the next bytes, to be reported by `wrote`; empty if the buffer is full."""
        own = max(self.start, self.zerocopy.end)
        if len(self._memory) < 2 * self.capacity:
            self._move(2 * self.capacity, own)
        free = self.free
        tail = self.end - self._origin
        if own == self.end:
            self._origin, tail = self.end, 0
        elif len(self._memory) - tail < min(free, self.capacity // 4):
            self._memory[: self.end - own] = self._memory[own - self._origin : tail]
            self._origin = own
            tail = self.end - own
        return self._memory[tail : tail + free]

    def _move(self, size: int, own: int) -> None:
        """Allocates memory of `size` bytes, and moves the bytes from position `own` on there."""
        memory = np.empty(size, dtype=np.uint8).data  # pages stay untouched until they are used
        memory[: self.end - own] = self._memory[own - self._origin : self.end - self._origin]
        self._memory, self._origin = memory, own

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
        if not 0 <= count <= min(self.free, len(self._memory) - (self.end - self._origin)):
            raise ValueError(f"{count} bytes were never free")
        self.end += count

    def view(self, start: int, end: int) -> memoryview:
        """The bytes of [start, end), valid until the next `write_space`. One run only, as `reach` returns it."""
        if start < self.zerocopy.end:
            return self.zerocopy.at(start).view(start, end)
        return self._memory[start - self._origin : end - self._origin]

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> None:
        """Appends bytes that stay where they are, and must not change until `zerocopy.completed_bytes` has counted
        them.

        Raises ValueError inside a coding block of a tagged range, where no segment may begin or end.
        """
        tag_range = self.tag_range(self.end)
        block = tag_range.block
        if tag_range.words and ((self.end - tag_range.origin) % block or size % block):
            raise ValueError(f"{size} zero-copy bytes would cut a tagged range where no segment may end")
        own = max(self.start, self.zerocopy.end)
        if self.end > own:
            self.zerocopy.keep(own, self._memory[own - self._origin : self.end - self._origin])
        self.zerocopy.send_zerocopy(self.end, memory, offset, size)
        self.end += size
        self._origin = self.end

    def zerocopy_len(self, size: int) -> int:
        """Returns how many of the next `size` bytes may be sent without a copy; 0: some must be copied first."""
        tag_range = self.tag_range(self.end)
        if not tag_range.words:
            return size
        block = tag_range.block
        return 0 if (self.end - tag_range.origin) % block else size - size % block

    def tag(self, tag: Tag, position: int, words: bool, cuts: Cuts = _SHORTEST) -> None:
        """Tags the stream from `position` on. Raises ValueError for bytes already written or tagged."""
        last = self._ranges[-1]
        if tag == last.tag:
            return
        if position < self.end or position < last.start:
            raise ValueError(f"byte {position - 1} of the stream is already written or tagged")
        if position == last.start:
            self._ranges.pop()
            self._starts.pop()
        self._ranges.append(ReferenceTagRange(position, position, tag, words and self._floats, *cuts))
        self._starts.append(position)

    def no_floats(self) -> None:
        """Treats tagged bytes as plain ones, for a peer without a compressing NIC: they may be cut anywhere.

        To be called before anything is sent.
        """
        self._floats = False
        self._ranges = [ReferenceTagRange(r.start, r.origin, r.tag, False, r.block, r.lossless) for r in self._ranges]

    @property
    def last_tag(self) -> Tag:
        return self._ranges[-1].tag

    def tag_range(self, position: int) -> ReferenceTagRange:
        return self._ranges[bisect_right(self._starts, position) - 1]

    def extent(self, position: int, flush: bool) -> tuple[ReferenceTagRange, int, bool]:
        """Returns the tag range of a byte, the end of its data that may be sent now, and whether the range ends there.

        `flush`: nothing will follow the bytes written, so an incomplete word is sent too.
        """
        starts = self._starts
        index = bisect_right(starts, position)
        tag_range = self._ranges[index - 1]
        end = self.zerocopy.at(position).end if position < self.zerocopy.end else self.end
        if index < len(starts) and starts[index] <= end:
            return tag_range, starts[index], True
        if end < self.end:
            return tag_range, end, True
        if flush or not tag_range.words:
            return tag_range, end, flush
        unit = tag_range.block if self.blocks else 1 if tag_range.lossless else _WORD
        return tag_range, max(position, end - (end - tag_range.origin) % unit), False

    def reach(self, position: int, limit: int, flush: bool) -> int:
        """Returns where a segment from `position` ends, at most at `limit`."""
        tag_range, end, _ = self.extent(position, flush)
        return end if end <= limit else tag_range.cut_before(position, limit)

    def cut_at(self, position: int) -> None:
        """Records that a segment ended here, if that is an odd cut."""
        index = bisect_right(self._starts, position)
        tag_range = self._ranges[index - 1]
        if tag_range.words and tag_range.start != position and (position - tag_range.origin) % tag_range.block:
            origin = position if (position - tag_range.origin) % _WORD else tag_range.origin
            cut = tag_range._replace(start=position, origin=origin)
            self._ranges.insert(index, cut)
            self._starts.insert(index, position)

    def segment_start(self, position: int) -> int:
        """Returns where the segment with this byte starts: in a tagged range, at a cut."""
        tag_range = self.tag_range(position)
        if not tag_range.words:
            return position
        return max(tag_range.start, position - (position - tag_range.origin) % tag_range.block)

    def release(self, position: int) -> None:
        """Releases what no retransmission needs: everything before `position` is acknowledged."""
        start = min(self.segment_start(position), self.end)
        if start <= self.start:
            return
        self.start = start
        self.zerocopy.release(start)
        if len(self._starts) > 1:
            spare = bisect_right(self._starts, start) - 1
            del self._starts[:spare]
            del self._ranges[:spare]

    def release_memory(self) -> None:
        """Releases the memory if it is empty."""
        if max(self.start, self.zerocopy.end) == self.end:
            self._memory = _EMPTY
            self._origin = self.end

    def clear(self) -> None:
        """Releases everything at the end of the connection."""
        self._memory = _EMPTY
        self.zerocopy.clear()
        self.start = self._origin = self.end
