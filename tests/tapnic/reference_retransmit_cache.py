"""The rules of native/nic/retransmit_cache.h in Python, which the C is compared with.

Positions are those of `softnic.tcp.seq`: the SYN has 0, the first byte 1.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from softnic._native import lib
from softnic.tcp import seq

CUT = 64
"""Bytes between the places where a tagged range may be cut (FORMAT.md), unless its codec has longer blocks."""
LONGEST_BLOCK: int = lib.SN_LONGEST_BLOCK
WORD = 4


@dataclass(frozen=True, slots=True)
class TaggedRange:
    """Consecutive bytes sent under one tag."""

    tos: int
    """ToS without its ECN bits."""
    origin: int | None
    """Position of its first byte; None: unknown."""
    block: int = CUT
    """Bytes between two places where it may be cut."""


class TxPart(NamedTuple):
    """Part of a segment whose bytes are all treated alike."""

    position: int
    payload: memoryview
    tagged_range: TaggedRange | None
    """None: plain."""
    coded: bool
    """True: encoded or rounded; False: exact."""

    @property
    def end(self) -> int:
        return self.position + len(self.payload)

    @property
    def block_offset(self) -> int:
        """Offset from the start of the tagged range modulo 512; 0 for exact bytes, which may be cut anywhere."""
        if not self.coded or self.tagged_range is None or self.tagged_range.origin is None:
            return 0
        return (self.position - self.tagged_range.origin) % LONGEST_BLOCK


@dataclass(slots=True)
class _CachedRange:
    """Consecutive bytes treated alike."""

    start: int
    end: int
    tagged_range: TaggedRange | None
    cached: memoryview | None = None
    """The bytes, if they are coded."""


_START = 1
"""Position of the first byte of a stream."""


class RetransmitCache:
    """The unacknowledged bytes that one end of a connection has sent. `iss` is the sequence number of its SYN."""

    def __init__(self, iss: int) -> None:
        self._iss = iss
        self._una = _START
        """All positions before it are acknowledged."""
        self._ranges: list[_CachedRange] = [_CachedRange(_START, _START, None)]
        """Ranges by position, without overlap; the last one stays as the end of the bytes seen."""

    @property
    def cached_bytes(self) -> int:
        return sum(len(item.cached) for item in self._ranges if item.cached is not None)

    def number(self, position: int) -> int:
        """Return the sequence number of a position."""
        return seq.number(self._iss, position)

    def on_ack(self, number: int) -> None:
        """Drop the bytes before this sequence number. An acknowledgement of bytes never sent is ignored."""
        ranges = self._ranges
        una = seq.position(self._iss, number, self._una)
        if not self._una < una <= ranges[-1].end + 1:  # the FIN has a number too
            return
        self._una = una
        if ranges[0].end > una:
            return
        gone = bisect_right(ranges, una, key=_end)
        del ranges[: min(gone, len(ranges) - 1)]
        if ranges[0].end <= una:
            ranges[0].cached = None

    def parts(self, number: int, payload: memoryview, tos: int, tagged: bool, block: int = CUT) -> list[TxPart]:
        """Return the parts to send for a segment, in order, without acknowledged ones.

        Parameters
        ----------
        number : int
            Sequence number of the first byte.
        payload : memoryview
            The segment's payload.
        tos : int
            Its ToS without ECN bits.
        tagged : bool
            Whether that selects an offload.
        block : int
            Bytes between two places where a range of its codec may be cut.
        """
        last = self._ranges[-1]
        start = seq.position(self._iss, number, last.end)
        end = start + len(payload)
        if not tagged and last.tagged_range is None and last.end == start:  # the common case: more plain bytes
            last.end = end
            return [TxPart(start, payload, None, False)]
        start_seen = max(start, self._una)
        if start_seen >= end:
            return []
        if start_seen > start:
            payload = payload[start_seen - start :]
        self._add(start_seen, payload, TaggedRange(tos, None, block) if tagged else None)
        return self._cut(start_seen, payload)

    # --- classification

    def _add(self, start: int, payload: memoryview, tag: TaggedRange | None) -> None:
        """Classify all bytes not seen before."""
        ranges, end = self._ranges, start + len(payload)
        index = self._after(start)
        at = start
        while at < end:
            following = ranges[index] if index < len(ranges) else None
            if following is not None and following.start <= at:
                at = following.end
                index += 1
                continue
            until = end if following is None else min(end, following.start)
            tagged_range = self._range_at(at, tag) if following is None else _range_before(following, at)
            index += self._insert(index, at, payload[at - start : until - start], tagged_range)
            at = until

    def _range_at(self, at: int, tag: TaggedRange | None) -> TaggedRange | None:
        """Return the tagged range of new bytes at `at`, behind all that was seen."""
        last = self._ranges[-1]
        if tag is None:
            return None
        if last.tagged_range is not None and last.tagged_range.tos == tag.tos:
            return last.tagged_range
        if last.end == at or last.end == self._una:  # bytes missed before it belong to it: all others are acknowledged
            return TaggedRange(tag.tos, last.end, tag.block)
        return tag

    def _insert(self, index: int, start: int, payload: memoryview, tagged_range: TaggedRange | None) -> int:
        """Insert new bytes before the range with this index. Returns how many ranges they added."""
        end = start + len(payload)
        previous = self._ranges[index - 1] if index else None
        if tagged_range is None or tagged_range.origin is None:
            if previous is not None and (previous.end, previous.tagged_range, previous.cached) == (
                start,
                tagged_range,
                None,
            ):
                previous.end = end
                return 0
            self._ranges.insert(index, _CachedRange(start, end, tagged_range))
            return 1
        first = min(end, start + (tagged_range.origin - start) % WORD)
        last = max(first, end - (end - tagged_range.origin) % WORD)
        cached = memoryview(bytes(payload[first - start : last - start]))
        added = [
            _CachedRange(start, first, tagged_range),
            _CachedRange(first, last, tagged_range, cached),
            _CachedRange(last, end, tagged_range),
        ]
        added = [item for item in added if item.start < item.end]
        self._ranges[index:index] = added
        return len(added)

    # --- transmission

    def _cut(self, start: int, payload: memoryview) -> list[TxPart]:
        """Return the parts of a segment, one for each range it overlaps."""
        parts: list[TxPart] = []
        end = start + len(payload)
        for index in range(self._after(start), len(self._ranges)):
            item = self._ranges[index]
            if item.start >= end:
                break
            first, last = max(start, item.start), min(end, item.end)
            if item.cached is None:
                parts.append(TxPart(first, payload[first - start : last - start], item.tagged_range, False))
                continue
            assert item.tagged_range is not None
            assert item.tagged_range.origin is not None
            first = max(item.start, first - (first - item.tagged_range.origin) % item.tagged_range.block)
            last = min(item.end, last + (item.tagged_range.origin - last) % item.tagged_range.block)
            cached = item.cached[first - item.start : last - item.start]
            parts.append(TxPart(first, cached, item.tagged_range, True))
        return parts

    def _after(self, position: int) -> int:
        """Return the index of the first range that ends behind a position."""
        return bisect_right(self._ranges, position, key=_end)


def _end(item: _CachedRange) -> int:
    return item.end


def _range_before(following: _CachedRange, at: int) -> TaggedRange | None:
    """Return the tagged range of late bytes at `at`, in front of bytes seen before."""
    tagged_range = following.tagged_range
    return (
        tagged_range
        if tagged_range is not None and tagged_range.origin is not None and at >= tagged_range.origin
        else None
    )
