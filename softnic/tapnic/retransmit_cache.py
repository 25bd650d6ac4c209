"""Which bytes of a kernel's connection are floats, and how each of them goes, however often the kernel sends it again.

A kernel stamps the ToS of a socket on a packet when it sends it, on retransmissions too, and cuts retransmissions as
it likes. The NIC must do to a byte the second time what it did the first, or a peer that got half of something one way
and half the other would have what was never written. Hence:

1. What a byte is is decided when it is first seen, and remembered until the peer has on_ack it: plain, or part of
   a tagged *tagged_range*, whose words and blocks are counted from its first byte.
2. Of what is first seen in one payload_ref, the whole words are *coded*: encoded or, where that does not shrink,
rounded (FORMAT.md). The bytes of a word that is not there in whole go *exact*, and so do all its others, whenever they
come. 3. Coded bytes are cached, and a retransmission of any of them is made of the cached ones: widened to multiples
of 64 bytes from the start of the tagged_range, so that no word or block is cut other than the first time.
4. Bytes that the kernel sent and that never came here (its queue was full) are filled in later. What follows them
   says what they were: a program changes the tag only when all before it is on_ack (docs/kernel.md), so they are
   of the tagged_range of what follows, if that did not begin later. A tagged_range whose beginning is uncertain goes
   exact.

Positions are those of `softnic.tcp.seq`: the SYN has 0, the first byte 1.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from softnic.tcp import seq

CUT = 64
"""Bytes: where a tagged_range may be cut (FORMAT.md)."""
WORD = 4


@dataclass(frozen=True, slots=True)
class TaggedRange:
    """Bytes that were sent under one tag, one after the other."""

    tos: int
    """Without its ECN bits."""
    origin: int | None
    """Position of its first byte; None where that is not known."""


class TxPart(NamedTuple):
    """Payload that goes in one way."""

    position: int
    payload: memoryview
    tagged_range: TaggedRange | None
    """None: plain."""
    coded: bool
    """Or exact."""

    @property
    def end(self) -> int:
        return self.position + len(self.payload)

    @property
    def block_offset(self) -> int:
        """Offset from the start of its tagged_range, modulo 64, where that matters: exact bytes may be cut anywhere."""
        if not self.coded or self.tagged_range is None or self.tagged_range.origin is None:
            return 0
        return (self.position - self.tagged_range.origin) % CUT


@dataclass(slots=True)
class _CachedRange:
    """Neighbouring bytes that are treated alike."""

    start: int
    end: int
    tagged_range: TaggedRange | None
    cached: memoryview | None = None
    """The bytes, where they are coded."""


_START = 1
"""Position of the first byte of a stream."""


class RetransmitCache:
    """What one end of a connection has sent. `iss` is the sequence number of its SYN."""

    def __init__(self, iss: int) -> None:
        self._iss = iss
        self._una = _START
        """All before it is on_ack."""
        self._ranges: list[_CachedRange] = [_CachedRange(_START, _START, None)]
        """By position, without overlaps; the last one stays, as the end of what was seen."""

    @property
    def cached_bytes(self) -> int:
        return sum(len(payload_ref.cached) for payload_ref in self._ranges if payload_ref.cached is not None)

    def number(self, position: int) -> int:
        """The sequence number of a position."""
        return seq.number(self._iss, position)

    def on_ack(self, number: int) -> None:
        """The peer has all before this sequence number. One that acknowledges what was never sent is passed over."""
        payloads = self._ranges
        una = seq.position(self._iss, number, self._una)
        if not self._una < una <= payloads[-1].end + 1:  # the FIN has a number too
            return
        self._una = una
        if payloads[0].end > una:
            return
        gone = bisect_right(payloads, una, key=_end)
        del payloads[: min(gone, len(payloads) - 1)]
        if payloads[0].end <= una:
            payloads[0].cached = None

    def parts(self, number: int, payload: memoryview, tos: int, tagged: bool) -> list[TxPart]:
        """A segment's payload as it is to go out, in order; parts of it that the peer has are left out. `number` is the
        sequence number of its first byte, `tagged` says that its ToS (without ECN bits) selects an offload."""
        last = self._ranges[-1]
        start = seq.position(self._iss, number, last.end)
        end = start + len(payload)
        if not tagged and last.tagged_range is None and last.end == start:  # the usual: more of what is plain
            last.end = end
            return [TxPart(start, payload, None, False)]
        start_seen = max(start, self._una)
        if start_seen >= end:
            return []
        if start_seen > start:
            payload = payload[start_seen - start :]
        self._add(start_seen, payload, TaggedRange(tos, None) if tagged else None)
        return self._cut(start_seen, payload)

    # What is seen for the first time.

    def _add(self, start: int, payload: memoryview, tag: TaggedRange | None) -> None:
        """Decides on all bytes that are new."""
        payloads, end = self._ranges, start + len(payload)
        index = self._after(start)
        at = start
        while at < end:
            following = payloads[index] if index < len(payloads) else None
            if following is not None and following.start <= at:
                at = following.end
                index += 1
                continue
            until = end if following is None else min(end, following.start)
            tagged_range = self._numbered(at, tag) if following is None else _range_before(following, at)
            index += self._insert(index, at, payload[at - start : until - start], tagged_range)
            at = until

    def _numbered(self, at: int, tag: TaggedRange | None) -> TaggedRange | None:
        """Of what are the bytes that begin at `at`, behind all that was seen?"""
        last = self._ranges[-1]
        if tag is None:
            return None
        if last.tagged_range is not None and last.tagged_range.tos == tag.tos:
            return last.tagged_range
        if last.end == at or last.end == self._una:  # what did not come belongs to it: all before is on_ack
            return TaggedRange(tag.tos, last.end)
        return tag

    def _insert(self, index: int, start: int, payload: memoryview, tagged_range: TaggedRange | None) -> int:
        """Remembers new bytes, before the payload_ref with this index. Returns how many payloads they made."""
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
        made = [
            _CachedRange(start, first, tagged_range),
            _CachedRange(first, last, tagged_range, cached),
            _CachedRange(last, end, tagged_range),
        ]
        made = [payload_ref for payload_ref in made if payload_ref.start < payload_ref.end]
        self._ranges[index:index] = made
        return len(made)

    # What is sent.

    def _cut(self, start: int, payload: memoryview) -> list[TxPart]:
        """The segment by the payloads that it lies in."""
        parts: list[TxPart] = []
        end = start + len(payload)
        for index in range(self._after(start), len(self._ranges)):
            payload_ref = self._ranges[index]
            if payload_ref.start >= end:
                break
            first, last = max(start, payload_ref.start), min(end, payload_ref.end)
            if payload_ref.cached is None:
                parts.append(TxPart(first, payload[first - start : last - start], payload_ref.tagged_range, False))
                continue
            assert payload_ref.tagged_range is not None
            assert payload_ref.tagged_range.origin is not None
            first = max(payload_ref.start, first - (first - payload_ref.tagged_range.origin) % CUT)
            last = min(payload_ref.end, last + (payload_ref.tagged_range.origin - last) % CUT)
            cached = payload_ref.cached[first - payload_ref.start : last - payload_ref.start]
            parts.append(TxPart(first, cached, payload_ref.tagged_range, True))
        return parts

    def _after(self, position: int) -> int:
        """Index of the first payload_ref that ends behind a position."""
        return bisect_right(self._ranges, position, key=_end)


def _end(payload_ref: _CachedRange) -> int:
    return payload_ref.end


def _range_before(following: _CachedRange, at: int) -> TaggedRange | None:
    """Of what are bytes at `at` that come late, before a payload_ref that was seen?"""
    tagged_range = following.tagged_range
    return (
        tagged_range
        if tagged_range is not None and tagged_range.origin is not None and at >= tagged_range.origin
        else None
    )
