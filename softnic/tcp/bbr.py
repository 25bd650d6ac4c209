"""BBR congestion control, for paths that lose frames without congestion
(draft-cardwell-iccrg-bbr-congestion-control-00, version 1, as in Linux).

Windows that shrink with each loss cannot fill such a path: at 0.1 % and 20 ms CUBIC and Reno keep some 40 frames in
flight (RFC 9438, section 5.2), a fortieth of what 1 Gbit/s needs. BBR measures the maximum delivery rate and the
minimum round trip, sends at that rate and keeps about twice their product in flight:

1. STARTUP: 2.89 times the measured rate, until it has not grown by a quarter for three round trips;
2. DRAIN: slower, until the queue that STARTUP built at the bottleneck is empty;
3. PROBE_BW: cycles of eight round trips, a quarter faster in one, a quarter slower in the next, then as measured;
4. PROBE_RTT: almost nothing in flight for 200 ms in ten seconds, if no round trip was as short since.

Rate samples follow draft-cheng-iccrg-delivery-rate-estimation-02: what arrived between two acknowledgements, divided by
the time between them or the time in which it was sent, whichever is longer.

Departures: rates are measured by sent ranges, not frames; losses and the first round of recovery change nothing.

The algorithm is C (native/tcp/bbr.c).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from softnic._fields import Memory
from softnic.tcp.congestion import INFINITY, Congestion


class Mode(IntEnum):
    """As SN_BBR_STARTUP and so on in native/tcp/flow.h."""

    STARTUP = 0
    DRAIN = 1
    PROBE_BW = 2
    PROBE_RTT = 3


class Bbr(Congestion):
    """`ssthresh` is not used."""

    name = "bbr"
    number = 3
    reduces = False

    mode: int
    """A `Mode`."""
    gain: float
    rate: float
    """Wire bytes per second: the maximum of the last ten rounds; 0 before the first sample."""
    least_rtt: float
    least_rtt_at: float
    round: int
    round_ends: int
    full_rate: float
    full_rounds: int
    """Round trips since the rate last grew by a quarter, to `full_rate`."""
    phase: int
    phase_at: float
    probe_ends: float | None
    """When PROBE_RTT ends; None: not yet known."""
    limited_until: int
    """Ranges sent before `delivered` reached this were sent in PROBE_RTT: their rate is not the path's."""
    resume: int
    """The window before PROBE_RTT."""

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.ssthresh = INFINITY
        self.begin_bbr()
        self._successor: Bbr | None = None
        """Of a snapshot: what has measured rates since."""

    def attach(self, memory: Memory) -> None:
        """As in Congestion; an undone reduction does not take measured rates back."""
        if self._successor is not None:
            self.take_rates(self._successor)
            self._successor = None
        super().attach(memory)

    def snapshot(self) -> Self:
        other = super().snapshot()
        other._successor = self
        return other

    def on_loss(self, flight_size: int, now: float) -> None:
        """Losses do not change the window."""
