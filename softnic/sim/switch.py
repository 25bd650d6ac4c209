"""The link from the switch to a node, at the rate of the link to the switch: nodes that send to one share it.

An EmulatedLink emulates a node's egress link; without this, ten nodes that send to one would reach it at ten times the
rate of a link. The queue at the switch's port has no limit: such fabrics pause senders rather than drop frames, and
TCP's windows bound what waits.

The switch is cut-through: frames that arrive without a pause from a link of the same rate leave as they arrive.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from softnic.link.memory import MemoryLink
from softnic.packet.frames import Frames


class SwitchedLink:
    """A link with a rate for what it receives. `rate_bps` counts Ethernet bytes, as `EmulationSpec` does."""

    def __init__(self, port: MemoryLink, rate_bps: float) -> None:
        self._port = port
        self.mtu = port.mtu
        port.on_arrival = self._take
        self.on_arrival: Callable[[float], object] = lambda _now: None
        """Called when a batch has reached the switch."""
        self._byte_s = 8 / rate_bps
        self._line: deque[tuple[float, Frames]] = deque()
        """Batches in transit, with the arrival time of the last frame."""
        self._free_at = -math.inf
        self.most_waiting_s = 0.0
        """Time at the link's rate of the longest queue so far."""

    def send(self, frames: Frames, now: float) -> None:
        self._port.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        if self._line and self._line[0][0] <= now:
            return self._line.popleft()[1]
        return None

    def _take(self, now: float) -> None:
        frames = self._port.receive(now)
        assert frames is not None
        # The sender's link took as long for the batch: an idle port has forwarded it meanwhile.
        self._free_at = max(self._free_at + frames.nbytes * self._byte_s, now)
        self.most_waiting_s = max(self.most_waiting_s, self._free_at - now)
        self._line.append((self._free_at, frames))
        self.on_arrival(now)

    def advance(self, now: float) -> None:
        """Does nothing: batches are taken as they arrive."""

    def next_time(self) -> float | None:
        return self._line[0][0] if self._line else None

    def tx_space(self, now: float) -> int:
        return self._port.tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._port.counters()

    def close(self) -> None:
        self._line.clear()
        self._port.close()
