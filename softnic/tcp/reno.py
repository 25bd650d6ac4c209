"""Reno congestion control (RFC 5681): one frame more per round trip, half of the window after a loss."""

from __future__ import annotations

from softnic.tcp.congestion import Congestion


class Reno(Congestion):
    """As Congestion."""

    name = "reno"
    number = 1

    acknowledged: int
    """Bytes acknowledged since `cwnd` last grew (RFC 5681, section 3.1; RFC 3465)."""
