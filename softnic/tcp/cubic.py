"""CUBIC congestion control (RFC 9438), the default on short paths (auto.py).

After a loss the window grows by elapsed time instead of by round trips: quickly back towards the size at the loss,
slowly around it, then quickly again. On short paths, where Reno would grow faster, it grows as Reno does. Windows are
in frames here, as the RFC's constants are. The window changes in C (native/tcp/flow_growth.c).
"""

from __future__ import annotations

from softnic.tcp.congestion import Congestion


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
