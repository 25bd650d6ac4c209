"""Pacing: spreads a window over the round trip, so that it does not fill the bottleneck's queue at once.

Bursts last a millisecond at the rate of congestion control, because each costs a turn of the daemon. Paths shorter than
two milliseconds are not paced: a window is hardly longer than a burst there, and timers are too coarse. Nor is a stream
that waits for the node's own link (`Pacer.update`).
"""

from __future__ import annotations

from softnic._fields import Memory, PacerFields


class Pacer(PacerFields):
    __slots__ = ()

    rate: float | None
    """Wire bytes a second; None: not paced."""
    free_at: float
    """When the next burst may leave."""
    late_s: float
    """Extension of the next burst because its timer was late."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.rate = None
