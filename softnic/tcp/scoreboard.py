"""Sent and unacknowledged ranges of a stream: the scoreboard of RFC 6675, kept by ranges instead of segments.

A sent range is a part of the stream that left at one time, with the wire bytes it became: a super-segment at first.
Acknowledgements and SACK blocks cut ranges into parts, each with its share of the wire bytes. This is where original
bytes, which sequence numbers count, become wire bytes, which congestion control counts.

Every range is in flight (OUT), has arrived out of order (SACKED), or counts as lost (LOST) until it is retransmitted,
which makes it a new range in flight. `pipe` (RFC 6675) is the wire bytes in flight. Ranges adjoin, from `snd_una` to
`snd_nxt`; adjacent SACKED ranges are joined.

The operations are C (native/tcp/scoreboard.c), because the fast path uses them too; those that need memory raise
MemoryError.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from softnic._fields import AckFields, Memory, ScoreboardFields
from softnic._native import ffi, lib

OUT, SACKED, LOST = lib.SN_OUT, lib.SN_SACKED, lib.SN_LOST

SentRange: TypeAlias = Any
"""An `sn_range`: positions `start` and `end`, `wire_bytes`, `sent_at`, `state`.

`never_retransmitted`: this is the first transmission of all its bytes. For rate samples (bbr.py): `delivered` and
`delivered_at` of the scoreboard when it was sent; `first_sent_at`, when the range was sent that was the last to arrive
before this one was sent; `app_limited`: sent while the application had nothing more to send, so the rate is not the
path's.
"""


class Ack(AckFields):
    """News of one acknowledgement; a stack has one, which each acknowledgement `begin`s again."""

    __slots__ = ("c", "newest")

    now: float
    """Time of arrival."""
    flight_size: int
    """Wire bytes unacknowledged before it (RFC 5681's FlightSize)."""
    wire_bytes: int
    """Newly reported as arrived."""
    has_newest: bool
    never_retransmitted: bool
    """None of what has arrived was retransmitted, so the round trip is unambiguous (Karn's algorithm)."""
    reordered: bool
    """A range never retransmitted arrived after one sent later (RFC 8985, section 6.2, step 3)."""
    rtt: float
    """Round-trip sample in seconds; 0: none."""

    # For congestion control, the state after the acknowledgement.
    una: int
    nxt: int
    pipe: int
    delivered: int
    lost_total: int
    srtt: float

    def __init__(self) -> None:
        self.c = ffi.cast("sn_ack *", self.address)
        self.newest: SentRange = self.c.newest
        """The one of the ranges that have arrived that was sent last, if `has_newest`."""


class Scoreboard(ScoreboardFields):
    """Positions as in seq.py."""

    __slots__ = ("_c",)

    pipe: int
    """Wire bytes in flight."""
    sacked: int
    """Wire bytes that arrived out of order."""
    lost: int
    """Wire bytes marked lost and not retransmitted yet."""
    highest: int
    """End of the highest range that has arrived."""
    delivered: int
    """Wire bytes that have arrived since the connection began; `delivered_at`: when the last were reported."""
    delivered_at: float
    lost_total: int
    """Wire bytes that were marked lost since the connection began, unless the mark was reverted."""
    first_sent_at: float
    """When the range was sent that was sent last of those that have arrived."""
    app_limited_until: int
    """Ranges sent before `delivered` reaches this are application-limited."""
    first: int
    count: int
    """Number of ranges."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self._c = ffi.cast("sn_scoreboard *", self.address)

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def ranges(self) -> list[SentRange]:
        """In stream order, valid until the next change."""
        first = lib.sn_scoreboard_first(self._c)
        return [first + index for index in range(self.count)]

    @property
    def size(self) -> int:
        """Unacknowledged wire bytes: RFC 5681's FlightSize."""
        return self.pipe + self.sacked + self.lost

    @property
    def sent_once(self) -> bool:
        """No range in flight is a retransmission."""
        return bool(lib.sn_scoreboard_sent_once(self._c))

    def first_lost(self) -> tuple[int, int] | None:
        """Returns the first contiguous range marked lost."""
        found = ffi.new("int64_t[2]")
        return (found[0], found[1]) if self.lost and lib.sn_scoreboard_first_lost(self._c, found) else None
