"""Congestion control: Reno (RFC 5681) with NewReno's recovery (RFC 6582) and limited transmit (RFC 3042).

All sizes are wire bytes, because frames are what congests: a compressed stream may put a hundred times as many
original bytes in flight as a plain one with the same `cwnd`. `smss` is a full-sized frame.

Windows grow by the bytes acknowledged (RFC 3465) without its limit of two segments, because our receivers
acknowledge once a batch, and only while the window is in use (RFC 7661), so an idle or receiver-limited connection
does not hoard one. Recovery is RFC 6582's careful variant without its heuristics, the retransmission timer restarts
with the first partial acknowledgement only ("impatient").
"""

from __future__ import annotations

DUPLICATE_THRESHOLD = 3
_INITIAL_WINDOW = 10  # RFC 6928
_INFINITY = 1 << 40


class Reno:
    __slots__ = ("_acknowledged", "_partial", "cwnd", "duplicates", "in_recovery", "recover", "smss", "ssthresh")

    def __init__(self, smss: int) -> None:
        self.smss = smss
        self.cwnd = _INITIAL_WINDOW * smss
        self.ssthresh = _INFINITY
        self.duplicates = 0
        """Duplicate acknowledgements in a row."""
        self.in_recovery = False
        self.recover = 0
        """The highest position sent when loss was last found."""
        self._acknowledged = 0
        """In congestion avoidance: bytes acknowledged since `cwnd` last grew."""
        self._partial = False
        """A partial acknowledgement has come in this recovery."""

    def allowance(self, flight: int) -> int:
        """Bytes that may be sent on top of those in flight."""
        limited = 0 if self.in_recovery else min(self.duplicates, DUPLICATE_THRESHOLD - 1) * self.smss
        return self.cwnd + limited - flight

    def on_ack(self, una: int, acknowledged: int, flight: int) -> tuple[bool, bool]:
        """New data is acknowledged up to `una`; `flight` is what remains.

        Returns whether the first unacknowledged segment must be sent again, and whether to restart the timer.
        """
        self.duplicates = 0
        if not self.in_recovery:
            self._grow(acknowledged, flight + acknowledged)
            return False, True
        if una >= self.recover:
            self.in_recovery = False
            self.cwnd = min(self.ssthresh, max(flight, self.smss) + self.smss)
            return False, True
        self.cwnd = max(self.smss, self.cwnd - acknowledged) + (self.smss if acknowledged >= self.smss else 0)
        first, self._partial = not self._partial, True
        return True, first

    def _grow(self, acknowledged: int, flight: int) -> None:
        if 2 * flight < self.cwnd:
            return
        if self.cwnd < self.ssthresh:
            step = min(acknowledged, self.ssthresh - self.cwnd)
            self.cwnd += step
            acknowledged -= step
        self._acknowledged += acknowledged
        if self._acknowledged >= self.cwnd:
            self._acknowledged -= self.cwnd
            self.cwnd += self.smss

    def on_duplicate(self, una: int, snd_max: int, flight: int) -> bool:
        """A duplicate acknowledgement of `una`. Returns whether to retransmit the segment there, now."""
        self.duplicates += 1
        if self.in_recovery:
            self.cwnd += self.smss
            return False
        if self.duplicates != DUPLICATE_THRESHOLD or una <= self.recover:
            return False
        self._reduce(flight, snd_max)
        self.cwnd = self.ssthresh + DUPLICATE_THRESHOLD * self.smss
        self.in_recovery = True
        self._partial = False
        return True

    def on_timeout(self, snd_max: int, flight: int, first: bool) -> None:
        """The retransmission timer expired; `first`: for the first time for this segment."""
        if first:
            self._reduce(flight, snd_max)
        self.recover = snd_max
        self.cwnd = self.smss
        self.in_recovery = False
        self.duplicates = 0

    def _reduce(self, flight: int, snd_max: int) -> None:
        self.ssthresh = max(flight // 2, 2 * self.smss)
        self.recover = snd_max
        self._acknowledged = 0

    def on_idle(self) -> None:
        """Nothing was sent for longer than a timeout: the window says nothing about the path now (section 4.1)."""
        self.cwnd = min(self.cwnd, _INITIAL_WINDOW * self.smss)
