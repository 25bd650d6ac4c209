"""The scoreboard in Python: the reference of native/tcp/scoreboard.c."""

from __future__ import annotations

from bisect import bisect_right
from copy import copy

OUT, SACKED, LOST = range(3)


class ReferenceRange:
    __slots__ = (
        "app_limited",
        "delivered",
        "delivered_at",
        "end",
        "first_sent_at",
        "never_retransmitted",
        "sent_at",
        "start",
        "state",
        "wire_bytes",
    )

    def __init__(
        self,
        start: int,
        end: int,
        wire_bytes: int,
        sent_at: float,
        never_retransmitted: bool,
        delivered: int,
        delivered_at: float,
        first_sent_at: float,
        app_limited: bool,
    ) -> None:
        self.start = start
        self.end = end
        self.wire_bytes = wire_bytes
        self.sent_at = sent_at
        self.never_retransmitted = never_retransmitted
        """This is the first transmission of all its bytes."""
        self.state = OUT
        self.delivered = delivered
        """For rate samples (bbr.py): `Scoreboard.delivered` and `delivered_at` when this was sent."""
        self.delivered_at = delivered_at
        self.first_sent_at = first_sent_at
        """When the range was sent that was the last to arrive before this one was sent."""
        self.app_limited = app_limited
        """Sent while the application had nothing more to send: the rate is not the path's."""

    def cut(self, position: int) -> ReferenceRange:
        """Cuts the range at `position`, which lies inside. Returns the second part."""
        share = self.wire_bytes * (position - self.start) // (self.end - self.start)
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.app_limited)
        rest = ReferenceRange(
            position, self.end, self.wire_bytes - share, self.sent_at, self.never_retransmitted, *measured
        )
        rest.state = self.state
        self.end, self.wire_bytes = position, share
        return rest


class ReferenceAck:
    """News of one acknowledgement."""

    __slots__ = (
        "delivered",
        "flight_size",
        "never_retransmitted",
        "newest",
        "now",
        "nxt",
        "pipe",
        "reordered",
        "rtt",
        "srtt",
        "una",
        "wire_bytes",
    )

    def __init__(self, now: float, flight_size: int) -> None:
        self.now = now
        """Time of arrival."""
        self.flight_size = flight_size
        """Wire bytes unacknowledged before it (RFC 5681's FlightSize)."""
        self.wire_bytes = 0
        """Wire bytes newly reported as arrived."""
        self.newest: ReferenceRange | None = None
        """The one of them that was sent last."""
        self.never_retransmitted = True
        """None of them was retransmitted: the round trip is unambiguous (Karn's algorithm)."""
        self.reordered = False
        """A range never retransmitted arrived after one sent later (RFC 8985, section 6.2, step 3)."""
        self.rtt = 0.0
        """Round-trip sample in seconds; 0: none."""

    # State of the connection after the acknowledgement, for congestion control (set by ack.py).
    una: int
    nxt: int
    pipe: int
    """Wire bytes in flight."""
    delivered: int
    """Wire bytes that have arrived since the connection began."""
    srtt: float

    def add(self, sent: ReferenceRange, highest: int) -> None:
        """Adds a range that has arrived; `highest` is the end of what had arrived before."""
        self.wire_bytes += sent.wire_bytes
        newest = self.newest
        if newest is None or (sent.sent_at, sent.end) > (newest.sent_at, newest.end):
            self.newest = copy(sent)  # `sent` may be joined with its neighbours
        if not sent.never_retransmitted:
            self.never_retransmitted = False
        elif sent.end < highest:
            self.reordered = True


def _start(sent: ReferenceRange) -> int:
    return sent.start


class ReferenceScoreboard:
    """Positions as in seq.py."""

    __slots__ = (
        "app_limited_until",
        "delivered",
        "delivered_at",
        "first_sent_at",
        "highest",
        "lost",
        "lost_total",
        "pipe",
        "ranges",
        "sacked",
    )

    def __init__(self) -> None:
        self.ranges: list[ReferenceRange] = []
        """In stream order. Read-only for other modules."""
        self.pipe = 0
        """Wire bytes in flight."""
        self.sacked = 0
        """Wire bytes that arrived out of order."""
        self.lost = 0
        self.lost_total = 0
        """Wire bytes marked lost and not retransmitted yet."""
        self.highest = 0
        """End of the highest range that has arrived."""
        self.delivered = 0
        """Wire bytes that have arrived since the connection began; `delivered_at`: when the last were reported."""
        self.delivered_at = 0.0
        self.first_sent_at = 0.0
        """When the range was sent that was sent last of those that have arrived."""
        self.app_limited_until = 0
        """Ranges sent before `delivered` reaches this are application-limited."""

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def size(self) -> int:
        """Unacknowledged wire bytes: RFC 5681's FlightSize."""
        return self.pipe + self.sacked + self.lost

    @property
    def sent_once(self) -> bool:
        """No range in flight is a retransmission."""
        return all(sent.never_retransmitted or sent.state != OUT for sent in self.ranges)

    def sent(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Appends bytes [start, end), sent for the first time."""
        if not self.ranges:
            self.delivered_at = self.first_sent_at = now
        self.ranges.append(self._record(start, end, wire_bytes, now, True))

    def mark_app_limited(self) -> None:
        """The application has nothing more to send, although the window is not full."""
        self.app_limited_until = self.delivered + self.pipe

    def sent_again(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Records that bytes [start, end) of the scoreboard were retransmitted."""
        first, after = self._cut_out(start, end)
        for sent in self.ranges[first:after]:
            self._leave(sent)
        self.ranges[first:after] = [self._record(start, end, wire_bytes, now, False)]

    def _record(self, start: int, end: int, wire_bytes: int, now: float, never_retransmitted: bool) -> ReferenceRange:
        """Returns a range that is in flight from now on."""
        self.pipe += wire_bytes
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.delivered < self.app_limited_until)
        return ReferenceRange(start, end, wire_bytes, now, never_retransmitted, *measured)

    def arrived(self, ack: ReferenceAck) -> None:
        """Counts the news of an acknowledgement, after all of it was processed."""
        self.delivered += ack.wire_bytes
        self.delivered_at = ack.now
        if ack.newest is not None:
            self.first_sent_at = ack.newest.sent_at

    def acknowledge(self, una: int, ack: ReferenceAck) -> None:
        """Removes everything before `una`, which has arrived."""
        ranges = self.ranges
        done = 0
        for sent in ranges:
            if sent.end > una:
                if sent.start >= una:
                    break
                ranges[done] = sent.cut(una)
            else:
                done += 1
            self._leave(sent)
            if sent.state != SACKED:
                ack.add(sent, self.highest)
            if sent.end == una:
                break
        del ranges[:done]
        if una > self.highest:
            self.highest = una

    def sack(self, start: int, end: int, ack: ReferenceAck) -> None:
        """Marks bytes [start, end) as arrived out of order."""
        if not self.ranges:
            return
        start, end = max(start, self.ranges[0].start), min(end, self.ranges[-1].end)
        if start >= end:
            return
        index = bisect_right(self.ranges, start, key=_start) - 1
        if self.ranges[index].state == SACKED and self.ranges[index].end >= end:
            return  # known already, as most reports are
        first, after = self._cut_out(start, end)
        for sent in self.ranges[first:after]:
            if sent.state != SACKED:
                ack.add(sent, self.highest)
                self._leave(sent)
                self.sacked += sent.wire_bytes
                sent.state = SACKED
        self._join(first, after)
        self.highest = max(self.highest, end)

    def _cut_out(self, start: int, end: int) -> tuple[int, int]:
        """Cuts ranges at `start` and `end`. Returns the indices of the first one between and of the one behind."""
        ranges = self.ranges
        first = bisect_right(ranges, start, key=_start) - 1
        if ranges[first].start < start:
            ranges.insert(first + 1, ranges[first].cut(start))
            first += 1
        last = bisect_right(ranges, end - 1, key=_start) - 1
        if ranges[last].end > end:
            ranges.insert(last + 1, ranges[last].cut(end))
        return first, last + 1

    def _join(self, first: int, after: int) -> None:
        """Joins SACKED ranges with their SACKED neighbours."""
        ranges = self.ranges
        if first and ranges[first - 1].state == SACKED:
            first -= 1
        if after < len(ranges) and ranges[after].state == SACKED:
            after += 1
        whole = ranges[first]
        whole.end = ranges[after - 1].end
        whole.wire_bytes = sum(sent.wire_bytes for sent in ranges[first:after])
        del ranges[first + 1 : after]

    def _leave(self, sent: ReferenceRange) -> None:
        """Subtracts a range from the sum of its state."""
        if sent.state == OUT:
            self.pipe -= sent.wire_bytes
        elif sent.state == SACKED:
            self.sacked -= sent.wire_bytes
        else:
            self.lost -= sent.wire_bytes

    def mark_lost(self, sent: ReferenceRange) -> None:
        """Marks a range in flight as lost."""
        self.pipe -= sent.wire_bytes
        self.lost += sent.wire_bytes
        self.lost_total += sent.wire_bytes
        sent.state = LOST

    def mark_head_lost(self, wire_bytes: int) -> None:
        """Marks the first `wire_bytes` as lost if they are in flight, for peers without SACK."""
        head = self.ranges[0]
        if head.state != OUT:
            return
        if head.wire_bytes > wire_bytes:
            length = (head.end - head.start) * wire_bytes // head.wire_bytes
            if length:
                self.ranges.insert(1, head.cut(head.start + length))
        self.mark_lost(head)

    def on_sack_reneging(self) -> None:
        """Reverts SACKED marks: the peer has dropped what it reported (RFC 2018, section 8)."""
        for sent in self.ranges:
            if sent.state == SACKED:
                sent.state = OUT
                sent.never_retransmitted = False
        self.pipe += self.sacked
        self.sacked = 0

    def undo_lost_marks(self) -> None:
        """Reverts LOST marks after a spurious retransmission."""
        for sent in self.ranges:
            if sent.state == LOST:
                sent.state = OUT
        self.pipe += self.lost
        self.lost_total -= self.lost
        self.lost = 0

    def first_lost(self) -> tuple[int, int] | None:
        """Returns the first contiguous range marked lost."""
        if not self.lost:
            return None
        found: ReferenceRange | None = None
        end = 0
        for sent in self.ranges:
            if sent.state == LOST:
                found = found or sent
                end = sent.end
            elif found is not None:
                break
        return None if found is None else (found.start, end)

    def detect(self, sent_at: float, end: int, wait: float, now: float) -> float:
        """Marks ranges as lost that left before (`sent_at`, `end`), `wait` seconds ago."""
        until = float("inf")
        for sent in self.ranges:
            if sent.state != OUT or (sent.sent_at, sent.end) >= (sent_at, end):
                continue
            due = sent.sent_at + wait
            if due <= now + 1e-6:
                self.mark_lost(sent)
            elif until == float("inf") or due > until:
                until = due
        return until

    def time_out(self, rtt: float, window: float, now: float) -> None:
        """Marks the first range, and others sent `rtt` and `window` seconds ago, as lost."""
        for index, sent in enumerate(self.ranges):
            if sent.state == OUT and (not index or sent.sent_at + rtt + window <= now):
                self.mark_lost(sent)

    def clear(self) -> None:
        """Removes everything at the end of the connection."""
        self.ranges.clear()
        self.pipe = self.sacked = self.lost = 0
