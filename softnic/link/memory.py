"""A network in memory: ports of a learning switch in one process.

The switch (IEEE 802.1D, clause 7.8) has no delay: a frame can be received at the instant of its sending, in the order
sent. Frames to a known unicast address go to its port alone, all others to every other port. Rate, delay and loss come
from an `EmulatedLink` around a port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from softnic.packet.frames import Frames

PORT_LIMIT_BYTES = 64 * 2**20
"""Limit of bytes queued at a port."""


@dataclass(slots=True)
class PortCounters:
    """Frames and Ethernet bytes of one port, as its owner sees them."""

    sent_frames: int = 0
    sent_bytes: int = 0
    received_frames: int = 0
    received_bytes: int = 0
    dropped_full: int = 0
    """Frames to this port that found its queue full."""


class MemoryNetwork:
    """A learning switch. It has no clock: `MemoryLink.next_time` tells a port's owner that frames are queued."""

    def __init__(self) -> None:
        self._ports: list[MemoryLink] = []
        self._by_mac: dict[bytes, MemoryLink] = {}

    def port(self, *, mtu: int = 1500, limit_bytes: int = PORT_LIMIT_BYTES) -> MemoryLink:
        """Add a port. Ports are served in the order of creation."""
        port = MemoryLink(self, mtu, limit_bytes)
        self._ports.append(port)
        return port

    def _forward(self, origin: MemoryLink, frames: Frames, size: int, now: float) -> None:
        destination, source = _addresses(frames)
        if not _is_group(source):
            self._by_mac[source] = origin
        target = None if _is_group(destination) else self._by_mac.get(destination)
        if target is None:
            for port in self._ports:
                if port is not origin:
                    port._take(frames, size, now)
        elif target is not origin:
            target._take(frames, size, now)

    def _remove(self, port: MemoryLink) -> None:
        if port in self._ports:
            self._ports.remove(port)
        self._by_mac = {mac: at for mac, at in self._by_mac.items() if at is not port}


class MemoryLink:
    """One port of a `MemoryNetwork`. A batch that is sent is passed on without a copy."""

    def __init__(self, network: MemoryNetwork, mtu: int, limit_bytes: int) -> None:
        self._network = network
        self.mtu = mtu
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[float, Frames, int]] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self.on_arrival: Callable[[float], object] = lambda _now: None
        """Called when a batch can be received."""
        self.counted = PortCounters()

    def send(self, frames: Frames, now: float) -> None:
        if len(frames) == 0 or self._closed:
            return
        size = frames.nbytes
        self.counted.sent_frames += len(frames)
        self.counted.sent_bytes += size
        self._network._forward(self, frames, size, now)

    def _take(self, frames: Frames, size: int, now: float) -> None:
        if self._waiting_bytes + size > self._limit_bytes:
            self.counted.dropped_full += len(frames)
            return
        self._waiting.append((now, frames, size))
        self._waiting_bytes += size
        self.on_arrival(now)

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        if not self._waiting:
            return None
        _, frames, size = self._waiting.popleft()
        self._waiting_bytes -= size
        self.counted.received_frames += len(frames)
        self.counted.received_bytes += size
        return frames

    def advance(self, now: float) -> None:
        """Does nothing: a port has no timed events."""

    def next_time(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        """Return the size of a whole queue: like a switch, a full port drops and cannot delay the sender."""
        return self._limit_bytes

    def counters(self) -> dict[str, int]:
        return {f"link_{name}": value for name, value in asdict(self.counted).items()}

    def close(self) -> None:
        self._closed = True
        self._network._remove(self)
        self._waiting.clear()
        self._waiting_bytes = 0


def _addresses(frames: Frames) -> tuple[bytes, bytes]:
    """Return destination and source MAC of a batch's first frame."""
    start = frames.offsets.item(0)
    both = frames.data[start : start + min(12, frames.lengths.item(0))].tobytes()
    return both[:6], both[6:12]


def _is_group(mac: bytes) -> bool:
    """Return whether this is broadcast, multicast or, from a frame too short, no address at all."""
    return len(mac) < 6 or bool(mac[0] & 1)
