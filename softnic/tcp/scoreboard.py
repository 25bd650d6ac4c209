"""What is on its way, and what is known of it: the scoreboard of RFC 6675, kept by ranges instead of segments.

A sent range is a part of the stream that left at one time, with the wire bytes it became: a super-segment at first.
What the peer acknowledges or reports cuts ranges into parts, each of which takes its share of the wire bytes. So here
original bytes, which sequence numbers count, become wire bytes, which congestion control counts.

Every range is on its way (OUT), has arrived out of order (SACKED), or counts as lost (LOST) until it is sent again,
which makes it a new range, on its way. `pipe`, RFC 6675's name, is what is on its way. Ranges adjoin, from
`snd_una` to `snd_nxt`; neighbours that are SACKED become one.
"""

from __future__ import annotations

from bisect import bisect_right

OUT, SACKED, LOST = range(3)


class SentRange:
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
        """It was never sent before."""
        self.state = OUT
        self.delivered = delivered
        """For measuring rates: what had arrived of the connection, and at what time, when this left (bbr.py)."""
        self.delivered_at = delivered_at
        self.first_sent_at = first_sent_at
        """When that had left which was the last to arrive before this left."""
        self.app_limited = app_limited
        """There was nothing more to be sent, so the rate says little of the path."""

    def cut(self, position: int) -> SentRange:
        """Keeps what is before `position`, which lies inside; returns the rest."""
        share = self.wire_bytes * (position - self.start) // (self.end - self.start)
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.app_limited)
        rest = SentRange(position, self.end, self.wire_bytes - share, self.sent_at, self.never_retransmitted, *measured)
        rest.state = self.state
        self.end, self.wire_bytes = position, share
        return rest


class Ack:
    """What one acknowledgement tells for the first time."""

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
        """When it came."""
        self.flight_size = flight_size
        """Wire bytes that were not acknowledged before it."""
        self.wire_bytes = 0
        """That arrived."""
        self.newest: SentRange | None = None
        """What was sent last of them."""
        self.never_retransmitted = True
        """None of them was sent twice, so it is clear which sending this answers (Karn's rule)."""
        self.reordered = False
        """Something never sent twice has arrived after what was sent later (RFC 8985, section 6.2, step 3)."""
        self.rtt = 0.0
        """The round trip that it shows, in seconds; 0: none."""

    # What congestion control asks of the connection, as it is after the acknowledgement: set by whoever asks it.
    una: int
    nxt: int
    pipe: int
    """Wire bytes that are on their way."""
    delivered: int
    """That have arrived in the connection's life."""
    srtt: float

    def add(self, sent: SentRange, highest: int) -> None:
        """`highest` is the end of what had arrived before."""
        self.wire_bytes += sent.wire_bytes
        newest = self.newest
        if newest is None or (sent.sent_at, sent.end) > (newest.sent_at, newest.end):
            self.newest = sent
        if not sent.never_retransmitted:
            self.never_retransmitted = False
        elif sent.end < highest:
            self.reordered = True


def _start(sent: SentRange) -> int:
    return sent.start


class Scoreboard:
    """Positions as in seq.py."""

    __slots__ = (
        "app_limited_until",
        "delivered",
        "delivered_at",
        "first_sent_at",
        "highest",
        "lost",
        "pipe",
        "ranges",
        "sacked",
    )

    def __init__(self) -> None:
        self.ranges: list[SentRange] = []
        """In the order of the stream. To be changed by the methods only."""
        self.pipe = 0
        """Wire bytes of what is on its way."""
        self.sacked = 0
        """Of what has arrived out of order."""
        self.lost = 0
        """Of what counts as lost and was not sent again."""
        self.highest = 0
        """Up to here something has arrived."""
        self.delivered = 0
        """Wire bytes that have arrived in the connection's life, and when the last of them was told of."""
        self.delivered_at = 0.0
        self.first_sent_at = 0.0
        """When that left which was sent last of what has arrived."""
        self.app_limited_until = 0
        """What is sent before so much has arrived leaves a window that is not full."""

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def size(self) -> int:
        """Wire bytes of all that is not acknowledged: RFC 5681's FlightSize."""
        return self.pipe + self.sacked + self.lost

    @property
    def sent_once(self) -> bool:
        """Nothing that is on its way was sent before."""
        return all(sent.never_retransmitted or sent.state != OUT for sent in self.ranges)

    def sent(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Bytes [start, end) went out, behind everything else."""
        if not self.ranges:
            self.delivered_at = self.first_sent_at = now
        self.ranges.append(self._record(start, end, wire_bytes, now, True))

    def mark_app_limited(self) -> None:
        """The application has nothing more to send, although the window is not full."""
        self.app_limited_until = self.delivered + self.pipe

    def sent_again(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Bytes [start, end), which lie in the scoreboard, went out once more."""
        first, after = self._cut_out(start, end)
        for sent in self.ranges[first:after]:
            self._leave(sent)
        self.ranges[first:after] = [self._record(start, end, wire_bytes, now, False)]

    def _record(self, start: int, end: int, wire_bytes: int, now: float, never_retransmitted: bool) -> SentRange:
        """Of what is on its way from now on."""
        self.pipe += wire_bytes
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.delivered < self.app_limited_until)
        return SentRange(start, end, wire_bytes, now, never_retransmitted, *measured)

    def arrived(self, ack: Ack) -> None:
        """Counts what an acknowledgement that was taken whole has told of."""
        self.delivered += ack.wire_bytes
        self.delivered_at = ack.now
        if ack.newest is not None:
            self.first_sent_at = ack.newest.sent_at

    def acknowledge(self, una: int, ack: Ack) -> None:
        """Everything before `una` has arrived."""
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

    def sack(self, start: int, end: int, ack: Ack) -> None:
        """Bytes [start, end) have arrived."""
        if not self.ranges:
            return
        start, end = max(start, self.ranges[0].start), min(end, self.ranges[-1].end)
        if start >= end:
            return
        index = bisect_right(self.ranges, start, key=_start) - 1
        if self.ranges[index].state == SACKED and self.ranges[index].end >= end:
            return  # known already, as most of what is reported
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
        """Makes ranges begin at `start` and end at `end`. Returns the first between them and the one behind."""
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
        """Makes one of SACKED ranges and their neighbours."""
        ranges = self.ranges
        if first and ranges[first - 1].state == SACKED:
            first -= 1
        if after < len(ranges) and ranges[after].state == SACKED:
            after += 1
        whole = ranges[first]
        whole.end = ranges[after - 1].end
        whole.wire_bytes = sum(sent.wire_bytes for sent in ranges[first:after])
        del ranges[first + 1 : after]

    def _leave(self, sent: SentRange) -> None:
        """Takes a range out of the sum that it is in."""
        if sent.state == OUT:
            self.pipe -= sent.wire_bytes
        elif sent.state == SACKED:
            self.sacked -= sent.wire_bytes
        else:
            self.lost -= sent.wire_bytes

    def mark_lost(self, sent: SentRange) -> None:
        """A range that was on its way counts as lost from here on."""
        self.pipe -= sent.wire_bytes
        self.lost += sent.wire_bytes
        sent.state = LOST

    def mark_head_lost(self, wire_bytes: int) -> None:
        """The first so many wire bytes count as lost, if they are on their way: for peers that report nothing."""
        head = self.ranges[0]
        if head.state != OUT:
            return
        if head.wire_bytes > wire_bytes:
            length = (head.end - head.start) * wire_bytes // head.wire_bytes
            if length:
                self.ranges.insert(1, head.cut(head.start + length))
        self.mark_lost(head)

    def on_sack_reneging(self) -> None:
        """The peer has thrown away what it reported (RFC 2018, section 8): none of that counts as arrived."""
        for sent in self.ranges:
            if sent.state == SACKED:
                sent.state = OUT
                sent.never_retransmitted = False
        self.pipe += self.sacked
        self.sacked = 0

    def undo_lost_marks(self) -> None:
        """Nothing was lost after all."""
        for sent in self.ranges:
            if sent.state == LOST:
                sent.state = OUT
        self.pipe += self.lost
        self.lost = 0

    def first_lost(self) -> tuple[int, int] | None:
        """The first range that counts as lost."""
        if not self.lost:
            return None
        found: SentRange | None = None
        end = 0
        for sent in self.ranges:
            if sent.state == LOST:
                found = found or sent
                end = sent.end
            elif found is not None:
                break
        return None if found is None else (found.start, end)

    def clear(self) -> None:
        """The connection has ended."""
        self.ranges.clear()
        self.pipe = self.sacked = self.lost = 0
