"""HyStart++ (RFC 9406): ends slow start before losses, when round-trip times grow.

A round is a round trip. If the minimum round-trip time of a round exceeds that of the previous one by a threshold, a
queue is building up: conservative slow start follows, which grows a quarter as fast, for five rounds. If the time falls
again meanwhile, slow start resumes.
"""

from __future__ import annotations

from softnic._flow import HystartFields, Memory

_MIN_THRESHOLD_S = 0.004
_MAX_THRESHOLD_S = 0.016
_SAMPLES = 8
_DIVISOR = 4
_CONSERVATIVE_ROUNDS = 5
_NEVER = float("inf")


class HyStart(HystartFields):
    __slots__ = ()

    window_end: int
    """The round ends when this position is acknowledged."""
    last: float
    """The least round-trip time of the round before."""
    current: float
    """And of this one."""
    samples: int
    baseline: float
    """Finite in conservative slow start: what started it, in seconds."""
    rounds: int

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self.restart()

    def restart(self) -> None:
        """Forgets all round trips."""
        self.window_end = self.samples = self.rounds = 0
        self.last = self.current = self.baseline = _NEVER

    def on_ack(self, una: int, nxt: int, rtt: float) -> tuple[bool, int]:
        """Returns whether slow start ends here, and by what its growth is divided (section 4.2)."""
        if rtt > 0:
            self.current = min(self.current, rtt)
            self.samples += 1
        conservative = self.baseline < _NEVER
        if self.samples >= _SAMPLES and self.current < _NEVER:
            if conservative:
                if self.current < self.baseline:
                    self.baseline = _NEVER
            elif self.last < _NEVER:
                threshold = max(_MIN_THRESHOLD_S, min(self.last / 8, _MAX_THRESHOLD_S))
                if self.current >= self.last + threshold:
                    self.baseline = self.current
                    self.rounds = 0
        if una >= self.window_end:
            self.window_end = nxt
            self.last, self.current, self.samples = self.current, _NEVER, 0
            if conservative:
                self.rounds += 1
                if self.rounds >= _CONSERVATIVE_ROUNDS:
                    return True, 1
        return False, _DIVISOR if self.baseline < _NEVER else 1
