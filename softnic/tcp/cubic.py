"""CUBIC congestion control (RFC 9438), the default.

After a loss the window grows by elapsed time instead of by round trips: quickly back towards the size at the loss,
slowly around it, then quickly again. On short paths, where Reno would grow faster, it grows as Reno does. Windows are
in frames here, as the RFC's constants are.
"""

from __future__ import annotations

from softnic.tcp.congestion import Congestion
from softnic.tcp.scoreboard import Ack

BETA = 0.7
C = 0.4
"""Frames by seconds cubed (section 5)."""
_ALPHA = 3 * (1 - BETA) / (1 + BETA)
"""Frames a round trip with which a window that loses 1 - BETA has Reno's average (section 4.3)."""


class Cubic(Congestion):
    """As Congestion."""

    name = "cubic"
    number = 2

    w_max: float
    """The window before the last loss."""
    prior: float
    """And the one that was reduced, before fast convergence."""
    began_at: float | None
    """Of this congestion avoidance; None: not yet."""
    k: float
    """Seconds from then until the window is `w_max` again."""
    estimate: float
    """What Reno's window would be."""
    seen_at: float

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.began_at = None

    def avoid(self, ack: Ack, arrived: int, used: bool) -> None:
        began_at, now = self.began_at, ack.now
        if began_at is not None and not used:
            began_at += now - self.seen_at  # time in which the window was not used does not count (section 5.8)
            self.began_at = began_at
        self.seen_at = now
        if not used:
            return
        cwnd, smss, w_max, k, estimate = self.cwnd, self.smss, self.w_max, self.k, self.estimate
        window = cwnd / smss
        if began_at is None:
            self.began_at = began_at = now
            self.w_max = w_max = max(w_max, window)
            self.k = k = ((w_max - window) / C) ** (1 / 3)
            estimate = window
        frames = arrived / smss
        estimate += (1.0 if estimate >= self.prior else _ALPHA) * frames / window
        self.estimate = estimate
        elapsed = now - began_at
        if C * (elapsed - k) ** 3 + w_max < estimate:
            self.cwnd = max(cwnd, int(estimate * smss))
            return
        target = C * (elapsed + ack.srtt - k) ** 3 + w_max
        target = min(max(target, window), 1.5 * window)
        self.cwnd = cwnd + int((target - window) / window * frames * smss)

    def on_loss(self, flight_size: int, now: float) -> None:
        del now
        window = min(flight_size, self.cwnd) / self.smss
        # Who still had less than before the last loss leaves room to newcomers (section 4.7).
        self.w_max = window * (1 + BETA) / 2 if window < self.w_max else window
        self.prior = window
        self.began_at = None
        self.ssthresh = max(int(BETA * window * self.smss), 2 * self.smss)
