"""A token bucket: events, or bytes, at a rate and with a burst. What strangers cause is bounded by one."""

from __future__ import annotations


class TokenBucket:
    """A bucket that is full at first.

    Parameters
    ----------
    rate : float
        Tokens per second.
    burst : float, optional
        Tokens that may be taken at once; those of a second if it is left out.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate = rate
        self._burst = self._left = rate if burst is None else burst
        self._at = 0.0

    def take(self, now: float, tokens: float = 1) -> bool:
        """Take tokens, if there are enough, and return whether there were."""
        self._fill(now)
        if self._left < tokens:
            return False
        self._left -= tokens
        return True

    def take_some(self, now: float, tokens: float) -> float:
        """Take tokens, or as many of them as there are, and return how many."""
        self._fill(now)
        taken = min(tokens, self._left)
        self._left -= taken
        return taken

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
