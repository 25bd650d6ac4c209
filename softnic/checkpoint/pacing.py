"""Bounds the CPU that serving a state takes, so that the source goes on with its own work. Sans-IO.

Time is an argument. A bucket of CPU seconds fills with `share` seconds a second, up to `burst_s`. Serving takes from it
what it has used; while the bucket is empty, it pauses. Over any time t, at most `share` t + `burst_s` is used, and one
chunk more.
"""

from __future__ import annotations


class CpuBudget:
    """A share of one core.

    Parameters
    ----------
    share : float
        Of one core, above 0. 1 and more: hardly a limit.
    burst_s : float
        CPU seconds that may be used at once after a pause.
    now : float
        Time of the clock that all calls use, in seconds.
    """

    def __init__(self, share: float, burst_s: float, now: float) -> None:
        if not share > 0:
            raise ValueError(f"a share of {share} of a core: more than 0 is expected")
        self._share = share
        self._burst_s = burst_s
        self._left_s = burst_s
        self._at = now
        self.used_s = 0.0
        """CPU seconds that were charged."""

    def charge(self, cpu_s: float, now: float) -> float:
        """Take CPU seconds that were used. Returns the seconds to pause."""
        self._left_s = min(self._burst_s, self._left_s + self._share * max(0.0, now - self._at)) - cpu_s
        self._at = max(now, self._at)
        self.used_s += cpu_s
        return max(0.0, -self._left_s / self._share)
