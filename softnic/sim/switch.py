"""The link from the switch to a node, at the rate of the link to the switch: nodes that send to one share it.

An EmulatedLink emulates a node's egress link; without this, ten nodes that send to one would reach it at ten times the
rate of a link. The queue at the switch's port has no limit: such fabrics pause senders rather than drop frames, and
TCP's windows bound what waits.

The switch is cut-through: frames that arrive without a pause from a link of the same rate leave as they arrive.

A request of ARP reaches every node, and nearly all drop it. There it takes its time on the link and goes no further: a
thousand nodes that look for one peer each would wake each other a million times.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable

from softnic.link.memory import MemoryLink
from softnic.packet import arp, ethernet
from softnic.packet.frames import Frames


class SwitchedLink:
    """A link with a rate for what it receives.

    Parameters
    ----------
    port : MemoryLink
        A port of the switch.
    rate_bps : float
        Counts Ethernet bytes, as `EmulationSpec` does.
    ip : int, optional
        The node's address. Requests of ARP for others are not received, but from peers that the node knows or looks up.
        None: all are received.
    knows : callable
        Whether the node does so with this address.
    """

    def __init__(
        self,
        port: MemoryLink,
        rate_bps: float,
        ip: int | None = None,
        knows: Callable[[int], bool] = lambda _ip: True,
    ) -> None:
        self._port = port
        self.mtu = port.mtu
        port.on_arrival = self._take
        self.on_arrival: Callable[[float], object] = lambda _now: None
        """Called when a batch has reached the switch."""
        self._ip, self._knows = ip, knows
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
        if not self._is_dropped(frames):
            self._line.append((self._free_at, frames))
            self.on_arrival(now)

    def _is_dropped(self, frames: Frames) -> bool:
        """Whether all of these frames are requests of ARP that do not concern the node."""
        if self._ip is None or not frames.data.item(frames.offsets.item(0)) & 1:
            return False
        for frame in frames:
            question = _question(frame)
            if question is None or question.target_ip == self._ip or self._knows(question.sender_ip):
                return False
        return True

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


@functools.lru_cache(maxsize=1024)  # every port gets the same frame
def _question(frame: bytes) -> arp.Arp | None:
    """Return a request of ARP for the address of another node."""
    try:
        packet = ethernet.parse(frame)
        found = arp.parse(packet.payload) if packet.ethertype == ethernet.TYPE_ARP else None
    except ethernet.ParseError:
        return None
    is_question = found is not None and found.operation == arp.REQUEST and found.target_ip != found.sender_ip
    return found if is_question else None
