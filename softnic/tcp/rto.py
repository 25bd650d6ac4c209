"""Retransmission timeout (RFC 6298): smoothed round-trip time, its variation, and exponential backoff.

Departures: the minimum is an option (200 ms by default, the RFC says 1 s). Backoff ends with the first acknowledgement
of new data, not with the first unambiguous sample: timestamps make every sample unambiguous.

The arithmetic is C (native/tcp/flow_growth.c).
"""

from __future__ import annotations

from softnic._fields import Memory, RetransmissionTimeoutFields


class RetransmissionTimeout(RetransmissionTimeoutFields):
    __slots__ = ()

    initial_s: float
    min_s: float
    max_s: float
    srtt: float
    """0 before the first sample."""
    rttvar: float
    latest: float
    """The last sample; 0 before the first one."""
    backoff: int
    """Timeouts since new data was acknowledged; each doubles the timeout."""
    rto: float
    """Seconds, backed off."""

    def __init__(self, initial_s: float, min_s: float, max_s: float, *, memory: Memory | None = None) -> None:
        del memory  # taken by the base class, as in all parts of a flow
        self.initial_s, self.min_s, self.max_s = initial_s, min_s, max_s
        self.rto = min(initial_s, max_s)
