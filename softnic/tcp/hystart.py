"""HyStart++ (RFC 9406): ends slow start before losses, when round-trip times grow.

A round is a round trip. If the minimum round-trip time of a round exceeds that of the previous one by a threshold, a
queue is building up: conservative slow start follows, which grows a quarter as fast, for five rounds. If the time falls
again meanwhile, slow start resumes. The rounds are counted in C (native/tcp/flow_growth.c).
"""

from __future__ import annotations

from softnic._fields import HystartFields, Memory


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
