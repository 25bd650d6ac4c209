"""The bytes of a stream that are written and not yet acknowledged, and the tags on their ranges.

Bytes lie in one piece of memory twice the capacity, so that any run of them is contiguous (a super-segment is a
view of it); when writing reaches its end the rest is moved to the front, at most once per capacity written. Or they
are lent: they stay where they are, and do not count as the buffer's (lent.py).

A stream is a row of *tag ranges* that no segment crosses. A new tag begins one, at any byte, also one that is not
written yet. So does an odd cut: a place inside a tagged range, not a multiple of 64 bytes from the range's start,
where a segment has ended because there was no more to send. Remembering it makes every retransmission cut there
again, so whatever codec is at work decodes to the same bits (FORMAT.md, "The payload of a tagged segment").
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.zerocopy import ZeroCopyRuns

CUT = 64
"""Tagged ranges are cut at multiples of this from the range's start."""
_WORD = 4
_EMPTY = memoryview(b"")


class TagRange(NamedTuple):
    """What is said about the bytes from `start` up to the next one."""

    start: int
    origin: int
    """Where the tagged range began: an odd cut leaves it as it was."""
    tag: Tag
    words: bool
    """The tag selects an offload: floats, to be cut as such."""

    def cut_before(self, position: int, limit: int) -> int:
        """Where a segment from `position` ends that may go on behind `limit`, but not go there itself."""
        return max(position, limit - (limit - self.origin) % CUT) if self.words else limit


class SendBuffer:
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
        """It may be changed (autotune.py): `write_space` goes by it."""
        self._memory = _EMPTY
        self._origin = 1
        """Position of the memory's first byte."""
        self.start = 1
        """Of the first byte kept."""
        self.end = 1
        """After the last byte written."""
        self.zerocopy = ZeroCopyRuns()
        """What lies elsewhere, all before the buffer's own bytes."""
        self.blocks = False
        """No odd cuts: an incomplete stretch of a tagged range waits until it is complete or the range ends."""
        self._floats = True
        """The peer takes floats: ranges whose tag selects an offload are words."""
        self._ranges = [TagRange(1, 1, PLAIN, False)]
        self._starts = [1]

    @property
    def free(self) -> int:
        return max(0, self.capacity - (self.end - self.start - self.zerocopy.outstanding))

    def write_space(self) -> memoryview:
        """Contiguous space for bytes to be written next; empty if the buffer is full. `wrote` says how many were."""
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
        """Takes memory of so many bytes; those from `own` on move there."""
        memory = np.empty(size, dtype=np.uint8).data  # which leaves the pages untouched until they are used
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
        """The bytes of [start, end), valid until the next `write_space`. Those of one run only, as `reach` has it."""
        if start < self.zerocopy.end:
            return self.zerocopy.at(start).view(start, end)
        return self._memory[start - self._origin : end - self._origin]

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> None:
        """Appends bytes that stay where they are, and must not change until `zerocopy.completed_bytes` has counted
        them.

        Raises ValueError inside a stretch of a tagged range: a loan begins and ends where a segment may.
        """
        tag_range = self.tag_range(self.end)
        if tag_range.words and ((self.end - tag_range.origin) % CUT or size % CUT):
            raise ValueError(f"a loan of {size} bytes cuts a tagged range where no segment may end")
        own = max(self.start, self.zerocopy.end)
        if self.end > own:
            self.zerocopy.keep(own, self._memory[own - self._origin : self.end - self._origin])
        self.zerocopy.send_zerocopy(self.end, memory, offset, size)
        self.end += size
        self._origin = self.end

    def zerocopy_len(self, size: int) -> int:
        """How many of `size` bytes to be written next may be lent. 0: some must be written first."""
        tag_range = self.tag_range(self.end)
        if not tag_range.words:
            return size
        return 0 if (self.end - tag_range.origin) % CUT else size - size % CUT

    def tag(self, tag: Tag, position: int, words: bool) -> None:
        """Tags the stream from `position` on. Raises ValueError for bytes already written or tagged."""
        last = self._ranges[-1]
        if tag == last.tag:
            return
        if position < self.end or position < last.start:
            raise ValueError(f"byte {position - 1} of the stream is already written or tagged")
        if position == last.start:
            self._ranges.pop()
            self._starts.pop()
        self._ranges.append(TagRange(position, position, tag, words and self._floats))
        self._starts.append(position)

    def no_floats(self) -> None:
        """The peer has no such NIC: tagged bytes go to it as they are, so they may be cut anywhere and none waits.

        To be called before anything is sent.
        """
        self._floats = False
        self._ranges = [tag_range._replace(words=False) for tag_range in self._ranges]

    @property
    def last_tag(self) -> Tag:
        return self._ranges[-1].tag

    def tag_range(self, position: int) -> TagRange:
        return self._ranges[bisect_right(self._starts, position) - 1]

    def extent(self, position: int, flush: bool) -> tuple[TagRange, int, bool]:
        """The tag_range with this byte, how far its data goes that may leave now, and whether its range ends there.

        `flush`: nothing will ever follow the bytes written, so an incomplete word goes too.
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
        unit = CUT if self.blocks else _WORD
        return tag_range, max(position, end - (end - tag_range.origin) % unit), False

    def reach(self, position: int, limit: int, flush: bool) -> int:
        """How far a segment that starts at `position` may go, not past `limit`."""
        tag_range, end, _ = self.extent(position, flush)
        return end if end <= limit else tag_range.cut_before(position, limit)

    def cut_at(self, position: int) -> None:
        """A segment ended here: remembers it if no rule would end one here again."""
        index = bisect_right(self._starts, position)
        tag_range = self._ranges[index - 1]
        if tag_range.words and tag_range.start != position and (position - tag_range.origin) % CUT:
            self._ranges.insert(index, tag_range._replace(start=position))
            self._starts.insert(index, position)

    def segment_start(self, position: int) -> int:
        """Where the segment with this byte has to start: inside a tagged range, at a cut."""
        tag_range = self.tag_range(position)
        if not tag_range.words:
            return position
        return max(tag_range.start, position - (position - tag_range.origin) % CUT)

    def release(self, position: int) -> None:
        """Everything before `position` is acknowledged; forgets what no retransmission needs."""
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
        """Gives the memory back if nothing is in it."""
        if max(self.start, self.zerocopy.end) == self.end:
            self._memory = _EMPTY
            self._origin = self.end

    def clear(self) -> None:
        """Gives the memory back; nothing is sent any more."""
        self._memory = _EMPTY
        self.zerocopy.clear()
        self.start = self._origin = self.end
