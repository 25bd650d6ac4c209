"""What is on its way, and what is known of it: the scoreboard of RFC 6675, kept by ranges instead of segments.

A record is a range of the stream that left at one time, with the wire bytes it became: a super-segment at first. What
the peer acknowledges or reports cuts records into parts, each of which takes its share of the wire bytes. So here
original bytes, which sequence numbers count, become wire bytes, which congestion control counts.

Every record is on its way (OUT), has arrived out of order (SACKED), or counts as lost (LOST) until it is sent again,
which makes it a new record, on its way. `pipe`, RFC 6675's name, is what is on its way. Records adjoin, from
`snd_una` to `snd_nxt`; neighbours that are SACKED become one.
"""

from __future__ import annotations

from bisect import bisect_right

OUT, SACKED, LOST = range(3)


class Record:
    __slots__ = (
        "delivered",
        "delivered_at",
        "end",
        "first_sent_at",
        "limited",
        "once",
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
        once: bool,
        delivered: int,
        delivered_at: float,
        first_sent_at: float,
        limited: bool,
    ) -> None:
        self.start = start
        self.end = end
        self.wire_bytes = wire_bytes
        self.sent_at = sent_at
        self.once = once
        """It was never sent before."""
        self.state = OUT
        self.delivered = delivered
        """For measuring rates: what had arrived of the connection, and at what time, when this left (bbr.py)."""
        self.delivered_at = delivered_at
        self.first_sent_at = first_sent_at
        """When that had left which was the last to arrive before this left."""
        self.limited = limited
        """There was nothing more to be sent, so the rate says little of the path."""

    def cut(self, position: int) -> Record:
        """Keeps what is before `position`, which lies inside; returns the rest."""
        share = self.wire_bytes * (position - self.start) // (self.end - self.start)
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.limited)
        rest = Record(position, self.end, self.wire_bytes - share, self.sent_at, self.once, *measured)
        rest.state = self.state
        self.end, self.wire_bytes = position, share
        return rest


class Ack:
    """What one acknowledgement tells for the first time."""

    __slots__ = (
        "delivered",
        "flight",
        "newest",
        "now",
        "nxt",
        "once",
        "pipe",
        "reordered",
        "rtt",
        "srtt",
        "una",
        "wire_bytes",
    )

    def __init__(self, now: float, flight: int) -> None:
        self.now = now
        """When it came."""
        self.flight = flight
        """Wire bytes that were not acknowledged before it."""
        self.wire_bytes = 0
        """That arrived."""
        self.newest: Record | None = None
        """What was sent last of them."""
        self.once = True
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

    def add(self, record: Record, highest: int) -> None:
        """`highest` is the end of what had arrived before."""
        self.wire_bytes += record.wire_bytes
        newest = self.newest
        if newest is None or (record.sent_at, record.end) > (newest.sent_at, newest.end):
            self.newest = record
        if not record.once:
            self.once = False
        elif record.end < highest:
            self.reordered = True


def _start(record: Record) -> int:
    return record.start


class Flight:
    """Positions as in seq.py."""

    __slots__ = (
        "delivered",
        "delivered_at",
        "first_sent_at",
        "highest",
        "limited_until",
        "lost",
        "pipe",
        "records",
        "sacked",
    )

    def __init__(self) -> None:
        self.records: list[Record] = []
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
        self.limited_until = 0
        """What is sent before so much has arrived leaves a window that is not full."""

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def size(self) -> int:
        """Wire bytes of all that is not acknowledged: RFC 5681's FlightSize."""
        return self.pipe + self.sacked + self.lost

    @property
    def sent_once(self) -> bool:
        """Nothing that is on its way was sent before."""
        return all(record.once or record.state != OUT for record in self.records)

    def sent(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Bytes [start, end) went out, behind everything else."""
        if not self.records:
            self.delivered_at = self.first_sent_at = now
        self.records.append(self._record(start, end, wire_bytes, now, True))

    def sent_again(self, start: int, end: int, wire_bytes: int, now: float) -> None:
        """Bytes [start, end), which lie in the flight, went out once more."""
        first, after = self._cut_out(start, end)
        for record in self.records[first:after]:
            self._leave(record)
        self.records[first:after] = [self._record(start, end, wire_bytes, now, False)]

    def _record(self, start: int, end: int, wire_bytes: int, now: float, once: bool) -> Record:
        """Of what is on its way from now on."""
        self.pipe += wire_bytes
        measured = (self.delivered, self.delivered_at, self.first_sent_at, self.delivered < self.limited_until)
        return Record(start, end, wire_bytes, now, once, *measured)

    def arrived(self, ack: Ack) -> None:
        """Counts what an acknowledgement that was taken whole has told of."""
        self.delivered += ack.wire_bytes
        self.delivered_at = ack.now
        if ack.newest is not None:
            self.first_sent_at = ack.newest.sent_at

    def acknowledge(self, una: int, ack: Ack) -> None:
        """Everything before `una` has arrived."""
        records = self.records
        done = 0
        for record in records:
            if record.end > una:
                if record.start >= una:
                    break
                records[done] = record.cut(una)
            else:
                done += 1
            self._leave(record)
            if record.state != SACKED:
                ack.add(record, self.highest)
            if record.end == una:
                break
        del records[:done]
        if una > self.highest:
            self.highest = una

    def sack(self, start: int, end: int, ack: Ack) -> None:
        """Bytes [start, end) have arrived."""
        if not self.records:
            return
        start, end = max(start, self.records[0].start), min(end, self.records[-1].end)
        if start >= end:
            return
        index = bisect_right(self.records, start, key=_start) - 1
        if self.records[index].state == SACKED and self.records[index].end >= end:
            return  # known already, as most of what is reported
        first, after = self._cut_out(start, end)
        for record in self.records[first:after]:
            if record.state != SACKED:
                ack.add(record, self.highest)
                self._leave(record)
                self.sacked += record.wire_bytes
                record.state = SACKED
        self._join(first, after)
        self.highest = max(self.highest, end)

    def _cut_out(self, start: int, end: int) -> tuple[int, int]:
        """Makes records begin at `start` and end at `end`. Returns the first between them and the one behind."""
        records = self.records
        first = bisect_right(records, start, key=_start) - 1
        if records[first].start < start:
            records.insert(first + 1, records[first].cut(start))
            first += 1
        last = bisect_right(records, end - 1, key=_start) - 1
        if records[last].end > end:
            records.insert(last + 1, records[last].cut(end))
        return first, last + 1

    def _join(self, first: int, after: int) -> None:
        """Makes one of SACKED records and their neighbours."""
        records = self.records
        if first and records[first - 1].state == SACKED:
            first -= 1
        if after < len(records) and records[after].state == SACKED:
            after += 1
        whole = records[first]
        whole.end = records[after - 1].end
        whole.wire_bytes = sum(record.wire_bytes for record in records[first:after])
        del records[first + 1 : after]

    def _leave(self, record: Record) -> None:
        """Takes a record out of the sum that it is in."""
        if record.state == OUT:
            self.pipe -= record.wire_bytes
        elif record.state == SACKED:
            self.sacked -= record.wire_bytes
        else:
            self.lost -= record.wire_bytes

    def lose(self, record: Record) -> None:
        """A record that was on its way counts as lost from here on."""
        self.pipe -= record.wire_bytes
        self.lost += record.wire_bytes
        record.state = LOST

    def lose_head(self, wire_bytes: int) -> None:
        """The first so many wire bytes count as lost, if they are on their way: for peers that report nothing."""
        head = self.records[0]
        if head.state != OUT:
            return
        if head.wire_bytes > wire_bytes:
            length = (head.end - head.start) * wire_bytes // head.wire_bytes
            if length:
                self.records.insert(1, head.cut(head.start + length))
        self.lose(head)

    def disbelieve(self) -> None:
        """The peer has thrown away what it reported (RFC 2018, section 8): none of that counts as arrived."""
        for record in self.records:
            if record.state == SACKED:
                record.state = OUT
                record.once = False
        self.pipe += self.sacked
        self.sacked = 0

    def find_lost(self) -> None:
        """Nothing was lost after all."""
        for record in self.records:
            if record.state == LOST:
                record.state = OUT
        self.pipe += self.lost
        self.lost = 0

    def first_lost(self) -> tuple[int, int] | None:
        """The first range that counts as lost."""
        if not self.lost:
            return None
        found: Record | None = None
        end = 0
        for record in self.records:
            if record.state == LOST:
                found = found or record
                end = record.end
            elif found is not None:
                break
        return None if found is None else (found.start, end)

    def clear(self) -> None:
        """The connection has ended."""
        self.records.clear()
        self.pipe = self.sacked = self.lost = 0
