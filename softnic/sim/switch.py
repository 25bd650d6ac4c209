"""The way from the switch to a node, as slow as the way there: many that send to one share its rate.

An EmulatedLink makes a node's way out what it is; without this, ten nodes that send to one would reach it ten times as
fast as any link is. The queue at the switch's port has no end: fabrics of this kind pause senders rather than drop
frames, and windows of TCP bound what waits.

The switch cuts through: what a link of the same rate brings without a pause leaves without one, as late as it came.
"""

from __future__ import annotations

import math
from collections import deque

from softnic.link.base import Link
from softnic.packet.frames import Frames


class SwitchedLink:
    """`inner` with a rate on the way in. `rate_bps` counts Ethernet bytes, as `EmulationSpec` does."""

    def __init__(self, inner: Link, rate_bps: float) -> None:
        self._inner = inner
        self._byte_s = 8 / rate_bps
        self._line: deque[tuple[float, Frames]] = deque()
        """What is on its way, with the time that its last frame arrives."""
        self._free_at = -math.inf
        self.most_waiting_s = 0.0
        """Time at the link's rate of the longest queue there was."""

    @property
    def mtu(self) -> int:
        return self._inner.mtu

    def send(self, frames: Frames, now: float) -> None:
        self._inner.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        self._take(now)
        if self._line and self._line[0][0] <= now:
            return self._line.popleft()[1]
        return None

    def _take(self, now: float) -> None:
        while (frames := self._inner.receive(now)) is not None:
            taken_s = frames.nbytes * self._byte_s
            # It took the sender's link as long to bring the batch: an idle port has been passing it on meanwhile.
            self._free_at = max(self._free_at + taken_s, now)
            self.most_waiting_s = max(self.most_waiting_s, self._free_at - now)
            self._line.append((self._free_at, frames))

    def advance(self, now: float) -> None:
        self._inner.advance(now)
        self._take(now)

    def next_time(self) -> float | None:
        inner = self._inner.next_time()
        if not self._line:
            return inner
        first = self._line[0][0]
        return first if inner is None or first < inner else inner

    def tx_space(self, now: float) -> int:
        return self._inner.tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._inner.counters()

    def close(self) -> None:
        self._line.clear()
        self._inner.close()
