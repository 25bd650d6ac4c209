"""Out-of-order data, and the SACK blocks that report it (RFC 2018, sections 3 and 4; RFC 2883).

Islands are contiguous runs of bytes, disjoint and in order, each stored in chunks: adjoining small payloads are joined.
The number of chunks is limited, and their memory, objects included, is charged to the node's budget. Accepted data is
dropped only for lack of memory (`prune`), or if the gap before it is not filled for long. The island that new data
touches is reported first, then those reported last: a sender that has seen each of them once knows them all. The first
block reports data that arrived a second time, once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable

from softnic._fields import Memory, ReassemblyFields
from softnic.tcp.budget import Budget

MOST_BLOCKS = 4
"""Blocks that fit into a SACK option without timestamps."""
JOINED = 16 << 10
"""Bytes of a chunk that is joined of small payloads, at most."""
COPIED = 128
"""Memory that a copied chunk takes beside its bytes: the object, and its place in the lists (measured, rounded up)."""
VIEWED = 512
"""The same of a chunk that is a view of what the NIC handed up."""

Chunk = bytes | bytearray | memoryview


class Reassembly(ReassemblyFields):
    """Positions as in seq.py. `dropped` is called with the number of segments dropped."""

    __slots__ = (
        "_at",
        "_budget",
        "_chunks",
        "_cost",
        "_counts",
        "_dropped",
        "_ends",
        "_max_chunks",
        "_paid",
        "_recent",
        "repeated",
        "starts",
    )

    has_gap: bool
    """Data waits for missing bytes."""
    has_repeated: bool
    """`repeated` is not None."""

    def __init__(
        self,
        max_chunks: int,
        budget: Budget | None = None,
        dropped: Callable[[int], None] = lambda _count: None,
        *,
        memory: Memory | None = None,
    ) -> None:
        del memory
        self._max_chunks = max_chunks
        self._budget = budget or Budget(1 << 62)
        self._dropped = dropped
        self.starts = array("q")
        """Start of each island."""
        self._ends = array("q")
        self._at = array("q")
        """Where each chunk begins, its bytes, and how many segments it is made of."""
        self._chunks: list[Chunk] = []
        self._counts = array("L")
        self._cost = 0
        """Bytes of memory."""
        self._paid = 0
        """Of them, those that are charged otherwise."""
        self._recent: deque[int] = deque(maxlen=MOST_BLOCKS)
        """A position in each island to report, the latest last."""
        self.repeated: tuple[int, int] | None = None
        """Data that arrived again since the last report."""

    def keep(self, position: int, payload: memoryview, paid: int = 0) -> bool:
        """Stores a payload, not empty, that starts behind a gap. Returns False if there is no space.

        `paid`: bytes of memory that the connection has been charged for already.
        """
        end = position + len(payload)
        first = bisect_left(self._ends, position)  # of the islands it touches, the last of which may reach behind it
        after = bisect_right(self.starts, end)
        low, high = position, end
        if first < after:
            if self.starts[first] <= position:
                if self._ends[first] >= end:
                    self.note_repeated(position, end)
                    self._note(position)
                    return True
                low = self._ends[first]
            high = min(end, max(low, self.starts[after - 1])) if self._ends[after - 1] > end else end
        if not self._put(low, high, payload[low - position : high - position], paid):
            return False
        if first < after:
            start, stop = min(position, self.starts[first]), max(end, self._ends[after - 1])
        else:
            start, stop = position, end
        self.starts[first:after] = array("q", (start,))
        self._ends[first:after] = array("q", (stop,))
        self.has_gap = True
        self._note(position)
        return True

    def _put(self, low: int, high: int, payload: memoryview, paid: int) -> bool:
        """Puts a payload in the place of all chunks between these positions, joined with its neighbours if it is small.
        Changes nothing and returns False if there is no room."""
        chunks, at = self._chunks, self._at
        first, after = bisect_left(at, low), bisect_left(at, high)
        size = high - low
        before = first > 0 and at[first - 1] + len(chunks[first - 1]) == low and size + len(chunks[first - 1]) <= JOINED
        if before:
            first -= 1
            size += len(chunks[first])
        behind = after < len(chunks) and at[after] == high and size + len(chunks[after]) <= JOINED
        if behind:
            size += len(chunks[after])
            after += 1
        stays = size > JOINED and not _wastes(payload)
        cost = self._cost + (_cost(payload) if stays else _copied(size)) - sum(map(_cost, chunks[first:after]))
        if len(chunks) - (after - first) >= self._max_chunks or not self._charge(cost, paid):
            return False
        count = 1 + (self._counts[first] if before else 0) + (self._counts[after - 1] if behind else 0)
        chunk: Chunk
        if before or behind:
            chunk = _growing(chunks[first]) if before else bytearray()
            chunk += payload
            if behind:
                chunk += chunks[after - 1]
        else:
            chunk = payload if stays else bytes(payload)
        at[first:after] = array("q", (at[first] if before else low,))
        chunks[first:after] = [chunk]
        self._counts[first:after] = array("L", (count,))
        return True

    def note_repeated(self, start: int, end: int) -> None:
        """Bytes [start, end) arrived a second time."""
        self.repeated = (start, end)
        self.has_repeated = True

    def _charge(self, cost: int, paid: int) -> bool:
        """Sets the charge to the budget. Returns False if there is not enough; less always succeeds."""
        if not self._budget.hold(self, max(0, cost - paid)):
            return False
        self._cost, self._paid = cost, paid
        return True

    def _note(self, position: int) -> None:
        if not self._recent or self._recent[-1] != position:
            self._recent.append(position)

    def take(self, position: int) -> list[memoryview]:
        """Removes and returns what follows on `position` up to the next gap; drops what lies before."""
        starts, ends = self.starts, self._ends
        covered = bisect_right(ends, position)
        islands = covered + (covered < len(starts) and starts[covered] <= position)
        if not islands:
            return []
        first = max(0, bisect_right(self._at, position) - 1)
        after = bisect_left(self._at, ends[islands - 1])
        found = []
        if islands > covered:
            found = [memoryview(chunk) for chunk in self._chunks[first:after]]
            found[0] = found[0][position - self._at[first] :]
        self._charge(self._cost - sum(map(_cost, self._chunks[:after])), self._paid)
        del starts[:islands], ends[:islands], self._at[:after], self._chunks[:after], self._counts[:after]
        self.has_gap = bool(starts)
        return found

    def report(self) -> list[tuple[int, int]]:
        """Returns the blocks to report now, the most important first; a D-SACK is reported once."""
        blocks: list[tuple[int, int]] = []
        for position in reversed(self._recent):
            index = bisect_right(self.starts, position) - 1
            if index >= 0 and position < self._ends[index]:
                block = (self.starts[index], self._ends[index])
                if block not in blocks:
                    blocks.append(block)
        if self.repeated is not None:
            blocks.insert(0, self.repeated)
            self.repeated = None
            self.has_repeated = False
        return blocks

    def chunks(self) -> list[tuple[int, memoryview]]:
        """What waits, and where each chunk begins."""
        return [(start, memoryview(chunk)) for start, chunk in zip(self._at, self._chunks, strict=True)]

    def prune(self) -> None:
        """Drops everything, for lack of memory or of the missing data: the peer retransmits it."""
        count = sum(self._counts)
        self.clear()
        self._dropped(count)

    def clear(self) -> None:
        """Releases everything at the end of the connection."""
        for held in (self.starts, self._ends, self._at, self._chunks, self._counts):
            del held[:]
        self.has_gap = False
        self._recent.clear()
        self._charge(0, 0)


def _growing(chunk: Chunk) -> bytearray:
    return chunk if isinstance(chunk, bytearray) else bytearray(chunk)


def _copied(size: int) -> int:
    """What a copied chunk takes of memory: one that grows has an eighth more room than bytes."""
    return COPIED + size + size // 8


def _cost(chunk: Chunk) -> int:
    return VIEWED + _owned(chunk) if isinstance(chunk, memoryview) else _copied(len(chunk))


def _owned(payload: memoryview) -> int:
    """Returns the bytes of memory that a view keeps allocated."""
    base = payload.obj
    owned: int = base.nbytes if hasattr(base, "nbytes") else len(base)  # type: ignore[arg-type]
    return owned


def _wastes(payload: memoryview) -> bool:
    """Whether a view keeps much more memory allocated than its own size."""
    return 4 * len(payload) < _owned(payload)
