"""The timestamps option (RFC 7323): the clock, what to echo, and PAWS. One tick is a millisecond."""

from __future__ import annotations

from softnic._fields import Memory, TimestampsFields
from softnic.tcp import seq

_TICKS_PER_S = 1000
_STALE_S = 24 * 86400.0
"""Age at which `ts_recent` may have wrapped and PAWS would reject new segments (section 5.5)."""


class Timestamps(TimestampsFields):
    __slots__ = ()

    offset: int
    """The same for all connections with a peer (see `TcpStack.timestamp_offset`)."""
    ts_recent: int
    recent_at: float

    def __init__(self, offset: int, *, memory: Memory | None = None) -> None:
        del memory
        self.offset = offset
        self.recent_at = float("-inf")

    def value(self, now: float) -> int:
        """Returns the TSval of a segment sent now."""
        return (int(now * _TICKS_PER_S) + self.offset) & 0xFFFFFFFF

    def rtt(self, tsecr: int, now: float) -> float:
        """Seconds since we sent the TSval that comes back."""
        return seq.elapsed(self.value(now), tsecr) / _TICKS_PER_S

    def is_old(self, tsval: int, now: float) -> bool:
        """PAWS: whether a segment is an old duplicate from an earlier wrap of the numbers (section 5.3, R1)."""
        return seq.after(self.ts_recent, tsval) and now - self.recent_at < _STALE_S

    def note(self, tsval: int, now: float) -> None:
        """Stores the TSval to echo, of a segment that spans the last ACK sent (section 4.3)."""
        self.ts_recent = tsval
        self.recent_at = now
