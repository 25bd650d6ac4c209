"""A machine's own clock: it started at some time of its own, runs a little fast or slow, and may jump ahead.

A monotonic clock never goes back, so this one does not; a jump is what a program sees of a machine that was suspended.
"""

from __future__ import annotations

import math


class Clock:
    """Shows `start` when the world begins, and then `rate` seconds a second."""

    def __init__(self, start: float = 0.0, rate: float = 1.0) -> None:
        self._since = 0.0
        self._base = start
        self._rate = rate

    def local(self, world: float) -> float:
        """What it shows at a moment of the world."""
        return self._base + (world - self._since) * self._rate

    def jump(self, seconds: float, world: float) -> None:
        """Goes ahead at once."""
        self._base = self.local(world) + seconds
        self._since = world

    def world(self, local: float) -> float:
        """The moment at which it shows no less than `local`. Rounded up: whoever is woken then is not too early."""
        at = self._since + (local - self._base) / self._rate
        while self.local(at) < local:
            at += max(math.ulp(local) / self._rate, math.ulp(at))
        return at

    def local_of(self, world: float) -> float:
        """A local time that is not shown before this moment of the world."""
        local = self.local(world)
        while self.world(local) < world:
            local += max(math.ulp(local), math.ulp(world))
        return local
