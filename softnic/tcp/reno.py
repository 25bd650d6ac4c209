"""Reno congestion control (RFC 5681): one frame more per round trip, half of the window after a loss."""

from __future__ import annotations

from softnic.tcp.congestion import Congestion
from softnic.tcp.scoreboard import Ack


class Reno(Congestion):
    """As Congestion."""

    name = "reno"

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self._acknowledged = 0
        """Bytes acknowledged since `cwnd` last grew (RFC 5681, section 3.1; RFC 3465)."""

    def avoid(self, ack: Ack, arrived: int, used: bool) -> None:
        del ack
        if not used:
            return
        self._acknowledged += arrived
        if self._acknowledged >= self.cwnd:
            self._acknowledged -= self.cwnd
            self.cwnd += self.smss

    def on_loss(self, flight_size: int, now: float) -> None:
        del now
        self.ssthresh = max(flight_size // 2, 2 * self.smss)
        self._acknowledged = 0
