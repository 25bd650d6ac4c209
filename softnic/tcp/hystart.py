"""HyStart++ (RFC 9406): ends slow start before losses, when round-trip times grow.

A round is a round trip. If the minimum round-trip time of a round exceeds that of the previous one by a threshold, a
queue is building up: conservative slow start follows, which grows a quarter as fast, for five rounds. If the time falls
again meanwhile, slow start resumes.
"""

from __future__ import annotations

_MIN_THRESHOLD_S = 0.004
_MAX_THRESHOLD_S = 0.016
_SAMPLES = 8
_DIVISOR = 4
_CONSERVATIVE_ROUNDS = 5
_NEVER = float("inf")


class HyStart:
    __slots__ = ("_baseline", "_current", "_last", "_rounds", "_samples", "_window_end")

    def __init__(self) -> None:
        self._window_end = 0
        """The round ends when this position is acknowledged."""
        self._last = self._current = _NEVER
        """The least round-trip time of the round before, and of this one."""
        self._samples = 0
        self._baseline = _NEVER
        """Finite in conservative slow start: what started it, in seconds."""
        self._rounds = 0

    def on_ack(self, una: int, nxt: int, rtt: float) -> tuple[bool, int]:
        """Returns whether slow start ends here, and by what its growth is divided (section 4.2)."""
        if rtt > 0:
            self._current = min(self._current, rtt)
            self._samples += 1
        conservative = self._baseline < _NEVER
        if self._samples >= _SAMPLES and self._current < _NEVER:
            if conservative:
                if self._current < self._baseline:
                    self._baseline = _NEVER
            elif self._last < _NEVER:
                threshold = max(_MIN_THRESHOLD_S, min(self._last / 8, _MAX_THRESHOLD_S))
                if self._current >= self._last + threshold:
                    self._baseline = self._current
                    self._rounds = 0
        if una >= self._window_end:
            self._window_end = nxt
            self._last, self._current, self._samples = self._current, _NEVER, 0
            if conservative:
                self._rounds += 1
                if self._rounds >= _CONSERVATIVE_ROUNDS:
                    return True, 1
        return False, _DIVISOR if self._baseline < _NEVER else 1
