"""What is on its way: one record a super-segment, in the order of the stream, with the wire bytes it became.

Congestion control counts wire bytes, sequence numbers count original bytes; here is where the one becomes the
other. An acknowledgement inside a record takes its share of the record's wire bytes.
"""

from __future__ import annotations

from collections import deque


class _Record:
    __slots__ = ("end", "once", "sent_at", "start", "wire_bytes")

    def __init__(self, start: int, end: int, wire_bytes: int, sent_at: float, once: bool) -> None:
        self.start = start
        self.end = end
        self.wire_bytes = wire_bytes
        self.sent_at = sent_at
        self.once = once


class Flight:
    """Positions as in seq.py."""

    __slots__ = ("_records", "wire_bytes")

    def __init__(self) -> None:
        self._records: deque[_Record] = deque()
        self.wire_bytes = 0
        """Of all that is sent and not acknowledged, as RFC 5681's FlightSize."""

    def __bool__(self) -> bool:
        return bool(self._records)

    def sent(self, start: int, end: int, wire_bytes: int, now: float, once: bool) -> None:
        """Bytes [start, end) went out at the stream's head; not `once`: some of them were sent before."""
        self._records.append(_Record(start, end, wire_bytes, now, once))
        self.wire_bytes += wire_bytes

    def sent_again(self, end: int) -> None:
        """What lies before `end` was retransmitted: its acknowledgement says nothing about its first sending."""
        for record in self._records:
            if record.start >= end:
                break
            record.once = False

    def acknowledged(self, una: int) -> tuple[int, float | None]:
        """Wire bytes that left the flight, and when the newest of them was sent.

        No time (None) where that would be ambiguous (Karn's rule): after a retransmission of any of them.
        """
        before = self.wire_bytes
        sent_at: float | None = None
        once = True
        records = self._records
        while records and records[0].end <= una:
            record = records.popleft()
            self.wire_bytes -= record.wire_bytes
            once = once and record.once
            sent_at = record.sent_at
        if records and records[0].start < una:
            record = records[0]
            share = record.wire_bytes * (una - record.start) // (record.end - record.start)
            record.wire_bytes -= share
            record.start = una
            self.wire_bytes -= share
            once = once and record.once
            sent_at = record.sent_at
        return before - self.wire_bytes, sent_at if once else None

    def lost(self) -> None:
        """After a timeout nothing counts as on its way any more."""
        self._records.clear()
        self.wire_bytes = 0
