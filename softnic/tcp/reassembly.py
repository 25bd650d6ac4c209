"""Out-of-order data, and the SACK blocks that report it (RFC 2018, sections 3 and 4; RFC 2883).

Islands are contiguous runs of bytes, disjoint and in order, each stored in chunks: adjoining small payloads are joined.
The number of chunks is limited, and their memory, bookkeeping included, is charged to the node's budget. What was kept
is dropped only for lack of memory (`prune`), or if the gap before it is not filled for long. The island that new data
touches is reported first, then those reported last: a sender that has seen each of them once knows them all. The first
block reports data that arrived a second time, once.

The operations are C (native/tcp/reassembly.c), which asks for room in the budget here.
"""

from __future__ import annotations

from collections.abc import Callable

from softnic._fields import Memory, ReassemblyFields
from softnic._native import ffi, lib
from softnic.tcp.budget import Budget


class Reassembly(ReassemblyFields):
    """Positions as in seq.py. `dropped` is called with the number of segments dropped."""

    __slots__ = ("_budget", "_c", "_dropped")

    has_gap: bool
    """Data waits for missing bytes."""
    has_repeated: bool
    """Data arrived again since the last report: bytes [repeated_start, repeated_end)."""
    repeated_start: int
    repeated_end: int
    most: int
    """Limit of the chunks."""
    count: int
    """Number of chunks."""
    size: int
    """Bytes of the stream."""
    cost: int
    """Bytes of memory; `paid`: of them, those that are charged otherwise; `charge`: what the budget is charged with."""
    paid: int
    charge: int
    recent_count: int
    """Number of the islands to report."""

    def __init__(
        self,
        max_chunks: int,
        budget: Budget | None = None,
        dropped: Callable[[int], None] = lambda _count: None,
        *,
        memory: Memory | None = None,
    ) -> None:
        del memory
        self._c = ffi.cast("sn_reassembly *", self.address)
        self._budget = budget or Budget(1 << 62)
        self._c.budget = self._budget.c
        self._dropped = dropped
        self.most = max_chunks
        self._budget.add(self)

    def keep(self, position: int, payload: memoryview, paid: int = 0) -> bool:
        """Stores a payload, not empty, that starts behind a gap. Returns False if there is no space.

        `paid`: bytes of memory that the connection has been charged for already.
        """
        chunk = lib.sn_reassembly_chunk(len(payload))
        if not chunk:
            return False
        ffi.memmove(chunk.data, payload, len(payload))
        chunk.end = len(payload)
        left = lib.sn_reassembly_keep(self._c, position, chunk, paid)
        if left > 0 and self._budget.make_room(self, left):
            left = lib.sn_reassembly_keep(self._c, position, chunk, paid)
        if left:
            lib.sn_chunk_free(chunk)
        return not left

    def note_repeated(self, start: int, end: int) -> None:
        """Bytes [start, end) arrived a second time."""
        lib.sn_reassembly_note_repeated(self._c, start, end)

    def report(self) -> list[tuple[int, int]]:
        """Returns the blocks to report now, the most important first; a D-SACK is reported once."""
        blocks = ffi.new(f"int64_t[{2 * lib.SN_MOST_REPORTED}]")
        count = lib.sn_reassembly_report(self._c, blocks)
        return [(blocks[2 * index], blocks[2 * index + 1]) for index in range(count)]

    def chunks(self) -> list[tuple[int, memoryview]]:
        """What waits, and where each chunk begins; valid until the next change."""
        waiting = [lib.sn_reassembly_at(self._c, index) for index in range(self.count)]
        return [(each.start, _bytes_of(each.chunk)) for each in waiting]

    def prune(self) -> None:
        """Drops everything, for lack of memory or of the missing data: the peer retransmits it."""
        self._dropped(lib.sn_reassembly_clear(self._c))

    def clear(self) -> None:
        """Releases everything at the end of the connection."""
        lib.sn_reassembly_clear(self._c)
        self._budget.remove(self)


def _bytes_of(chunk: object) -> memoryview:
    return memoryview(ffi.buffer(chunk.data + chunk.start, chunk.end - chunk.start))  # type: ignore[attr-defined]
