"""Retransmission timeout (RFC 6298): smoothed round-trip time, its variation, and exponential backoff.

Departures: the minimum is an option (200 ms by default, the RFC says 1 s). Backoff ends with the first acknowledgement
of new data, not with the first unambiguous sample: timestamps make every sample unambiguous.
"""

from __future__ import annotations

from softnic._flow import Memory, RetransmissionTimeoutFields

_ALPHA = 1 / 8
_BETA = 1 / 4
_K = 4
_GRANULARITY_S = 0.001


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

    def sample(self, rtt_s: float) -> None:
        """Adds a round-trip sample (section 2.2 and 2.3)."""
        self.latest = rtt_s
        srtt, rttvar = self.srtt, self.rttvar
        if srtt == 0.0:
            srtt = max(rtt_s, 1e-9)
            rttvar = rtt_s / 2
        else:
            rttvar += _BETA * (abs(srtt - rtt_s) - rttvar)
            srtt += _ALPHA * (rtt_s - srtt)
        self.srtt, self.rttvar = srtt, rttvar
        self._set(srtt, rttvar)

    def back_off(self) -> None:
        """Doubles the timeout after the timer has expired."""
        self.backoff += 1
        self._set(self.srtt, self.rttvar)

    def answered(self) -> None:
        """Ends backoff: new data was acknowledged."""
        self.backoff = 0
        self._set(self.srtt, self.rttvar)

    def _set(self, srtt: float, rttvar: float) -> None:
        if srtt:
            variation, least = _K * rttvar, self.min_s
            rto = srtt + (variation if variation > _GRANULARITY_S else _GRANULARITY_S)
            if rto < least:
                rto = least
        else:
            rto = self.initial_s
        if backoff := self.backoff:
            rto *= 2.0 ** min(backoff, 30)
        most = self.max_s
        self.rto = rto if rto < most else most
