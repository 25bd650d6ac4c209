"""What a process group has exchanged, in figures for a training's own log."""

from __future__ import annotations

import threading
import time
from dataclasses import astuple, dataclass

from softnic.comm.connections import Traffic


@dataclass(frozen=True)
class GroupStats:
    """What this rank has exchanged in a process group so far. The difference of two is what happened in between."""

    calls: int
    """Calls of torch.distributed, messages included."""
    given_bytes: int
    """Bytes that this rank sent to others, before compression."""
    sent_bytes: int
    """Bytes that these became, without headers."""
    wire_bytes: int
    """Bytes of the frames that carried them, retransmissions included."""
    exchange_s: float
    """Seconds in which at least one call was in progress."""

    @property
    def ratio(self) -> float:
        """Bytes before to bytes after compression; 1 if nothing was sent."""
        return self.given_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def __sub__(self, earlier: GroupStats) -> GroupStats:
        return GroupStats(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(earlier), strict=True)))


class CallClock:
    """Counts calls, and the time in which at least one of them is in progress. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self._calls = 0
        self._began_at = self._seconds = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._running:
                self._began_at = time.monotonic()
            self._running += 1
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._seconds += time.monotonic() - self._began_at

    @property
    def is_running(self) -> bool:
        """Whether a call is in progress."""
        return bool(self._running)

    def stats(self, traffic: Traffic, spared_bytes: int = 0) -> GroupStats:
        """Return the figures so far, with those of the group's connections.

        `spared_bytes`: by which others than NICs have shortened what was sent.
        """
        with self._lock:
            running_s = time.monotonic() - self._began_at if self._running else 0.0
            calls, seconds = self._calls, self._seconds + running_s
        given = traffic.given_bytes + spared_bytes
        return GroupStats(calls, given, traffic.sent_bytes, traffic.wire_bytes, seconds)
