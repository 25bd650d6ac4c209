"""A node's own clock: it starts at any time, runs a little fast or slow, and may jump ahead.

A monotonic clock never goes back, so this one does not. A jump is what a process sees after its host was suspended.
"""

from __future__ import annotations

import math


class LocalClock:
    """A clock that shows `start` at time 0 of the world and then advances `rate` seconds a second."""

    def __init__(self, start: float = 0.0, rate: float = 1.0) -> None:
        self._since = 0.0
        self._base = start
        self._rate = rate

    def local_time(self, now: float) -> float:
        """Return what the clock shows at a time of the world."""
        return self._base + (now - self._since) * self._rate

    def jump(self, seconds: float, now: float) -> None:
        """Set the clock ahead."""
        self._base = self.local_time(now) + seconds
        self._since = now

    def global_time(self, local: float) -> float:
        """Return the earliest time of the world at which the clock shows `local` or more.

        Rounded up, so that a timer that expires then is not early.
        """
        at = self._since + (local - self._base) / self._rate
        while self.local_time(at) < local:
            at += max(math.ulp(local) / self._rate, math.ulp(at))
        return at
