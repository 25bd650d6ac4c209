"""What all congestion control algorithms are: a window in wire bytes, and how it changes.

All sizes are wire bytes, because frames are what congests: a compressed stream may put a hundred times as many
original bytes in flight as a plain one with the same `cwnd`. `smss` is a full-sized frame.

Here is what they share: the initial window, slow start by the bytes acknowledged (RFC 5681, section 3.1, with RFC 3465
without its limit of two segments, because our receivers acknowledge once a batch) that ends where HyStart++ says so,
no growth of a window that is not used (RFC 7661), and pacing. What differs is how a window grows after slow start, and
what a loss leaves of it. How lost frames are sent again is not theirs (recovery.py).
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar

from softnic.tcp.hystart import HyStart
from softnic.tcp.scoreboard import Ack

INITIAL_WINDOW = 10
"""Frames (RFC 6928)."""
INFINITY = 1 << 40


class Congestion:
    """Base of the algorithms. `before` is the one whose place it takes, and whose window it goes on with."""

    name: ClassVar[str]
    reduces: ClassVar[bool] = True
    """A loss makes the window smaller, by proportional rate reduction (RFC 6937)."""

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        self.smss = smss
        self.cwnd: int = INITIAL_WINDOW * smss if before is None else before.cwnd
        self.ssthresh: int = INFINITY if before is None else before.ssthresh
        self.hystart = HyStart()
        self._restarting = False
        """Nothing was measured since the connection was idle."""

    def on_ack(self, ack: Ack) -> None:
        """Something has arrived, and no recovery is on."""
        if ack.rtt > 0:
            self._restarting = False
        left = ack.wire_bytes
        used = 2 * ack.flight_size >= self.cwnd
        if self.cwnd < self.ssthresh:
            if not used:
                return
            ends, divisor = self.hystart.on_ack(ack.una, ack.nxt, ack.rtt)
            if ends:
                self.ssthresh = self.cwnd
            else:
                step = min(left // divisor, self.ssthresh - self.cwnd)
                self.cwnd += step
                left -= step * divisor
        if self.cwnd >= self.ssthresh:
            self.avoid(ack, left, used)

    def avoid(self, ack: Ack, arrived: int, used: bool) -> None:
        """Congestion avoidance: `arrived` wire bytes of the acknowledgement are left for it. Not `used`: half of the
        window or more is free."""
        raise NotImplementedError

    def on_loss(self, flight_size: int, now: float) -> None:
        """Something was lost, for the first time in this window: sets `ssthresh` (RFC 5681)."""
        raise NotImplementedError

    def on_timeout(self, flight_size: int, now: float, first: bool) -> None:
        """The retransmission timer expired; `first`: for the first time for this segment (RFC 5681, section 3.1)."""
        if first:
            self.on_loss(flight_size, now)
        self.cwnd = self.smss

    def on_idle(self) -> None:
        """Nothing was sent for longer than a timeout: the window says nothing about the path now (section 4.1), nor do
        round-trip times from before. HyStart++ begins anew (RFC 9406, section 4.3)."""
        self.cwnd = min(self.cwnd, INITIAL_WINDOW * self.smss)
        self.hystart = HyStart()
        self._restarting = True

    def pacing_rate(self, rtt: float) -> float | None:
        """Wire bytes a second; None: not paced. More than the window by the round trip, so that pacing keeps no window
        from growing (as Linux: twice in slow start, then 1.2 times). The window with which a connection restarts after
        it was idle is not paced: the round trip on which its pace would depend is not known yet."""
        if self._restarting:
            return None
        return (2.0 if 2 * self.cwnd < self.ssthresh else 1.2) * self.cwnd / rtt

    def set_window(self, cwnd: int) -> None:
        """Recovery has decided how much may be in flight."""
        self.cwnd = cwnd

    def set_smss(self, smss: int) -> None:
        self.smss = smss

    def snapshot(self) -> Congestion:
        """A copy, to come back to when a reduction turns out to be for nothing."""
        other = copy(self)
        other.hystart = copy(self.hystart)
        return other
