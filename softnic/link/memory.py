"""A network in memory under a virtual clock: whole clusters in one process, repeatable to the bit.

`Network` is a learning switch (IEEE 802.1D, clause 7.8) without delay: a frame can be received at the instant it
was sent, in the order sent. A known unicast destination gets its frames alone, everything else goes to all other
ports. Rate, delay and loss come from an `EmulatedLink` around a port.

`VirtualClock` runs things that have `advance(now)` and `next_time()`: it lets every one of them act until nothing
more is due, then jumps to the next time that one of them asked for. Nothing here reads a real clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from softnic.packet.frames import Frames

PORT_LIMIT_BYTES = 64 * 2**20
"""Bytes that may wait at a port for its owner."""

MAX_ROUNDS = 100_000
"""Rounds at one instant after which a clock gives up: something asks to be called again without getting on."""


class Stalled(TimeoutError):
    """The condition that a clock was to run until did not come true."""


class Actor(Protocol):
    """What a VirtualClock runs: a node, a link, an application."""

    def advance(self, now: float) -> None:
        """Does what is due at `now`."""

    def next_time(self) -> float | None:
        """When it wants to be called next; None: not before another actor does something."""


class VirtualClock:
    """Time that passes only between events.

    `granularity_s`: wake-ups come at multiples of it only, as from a coarse timer; 0 wakes exactly on time.
    """

    def __init__(self, now: float = 0.0, *, granularity_s: float = 0.0) -> None:
        self.now = now
        self._granularity_s = granularity_s

    def run(self, actors: Sequence[Actor], until: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Runs the actors until the condition holds; it is asked after every round.

        Raises Stalled if it does not hold within `limit_s` virtual seconds, or when nothing is left to happen.
        """
        end = self.now + limit_s
        while True:
            held, wake = self._round(actors, until)
            if held:
                return
            if wake is None:
                raise Stalled(f"nothing is left to happen at {self.now:.6f} s and the condition does not hold")
            if wake > end:
                raise Stalled(f"the condition does not hold after {limit_s:g} virtual seconds")
            self.now = wake

    def run_for(self, actors: Sequence[Actor], duration_s: float) -> None:
        """Runs the actors for that much virtual time, whether something happens or not."""
        end = self.now + duration_s
        while True:
            _, wake = self._round(actors, _never)
            if wake is None or wake > end:
                self.now = end
                return
            self.now = wake

    def _round(self, actors: Sequence[Actor], until: Callable[[], bool]) -> tuple[bool, float | None]:
        """Everything that happens at this instant: (True, _) as soon as the condition holds, else the next instant."""
        for _ in range(MAX_ROUNDS):
            for actor in actors:
                actor.advance(self.now)
            if until():
                return True, None
            wake = self._next_time(actors)
            if wake is None or wake > self.now:
                return False, wake
        raise Stalled(f"time stands still at {self.now:.6f} s: an actor keeps asking for that instant")

    def _next_time(self, actors: Sequence[Actor]) -> float | None:
        times = [time for actor in actors if (time := actor.next_time()) is not None]
        if not times:
            return None
        wake = min(times)
        if self._granularity_s and wake > self.now:
            wake = max(wake, math.ceil(wake / self._granularity_s) * self._granularity_s)
        return wake


def _never() -> bool:
    return False


@dataclass(slots=True)
class PortCounters:
    """Frames and Ethernet bytes of one port, seen from its owner."""

    sent_frames: int = 0
    sent_bytes: int = 0
    received_frames: int = 0
    received_bytes: int = 0
    dropped_full: int = 0
    """Frames for this port that came while its queue was full."""


class Network:
    """The switch. It knows no time: whoever owns a port is told by `MemoryLink.next_time` that frames wait."""

    def __init__(self) -> None:
        self._ports: list[MemoryLink] = []
        self._stations: dict[bytes, MemoryLink] = {}

    def port(self, *, mtu: int = 1500, limit_bytes: int = PORT_LIMIT_BYTES) -> MemoryLink:
        """A new port. Ports are served in the order they were made."""
        port = MemoryLink(self, mtu, limit_bytes)
        self._ports.append(port)
        return port

    def _forward(self, origin: MemoryLink, frames: Frames, size: int, now: float) -> None:
        destination, source = _addresses(frames)
        if not _is_group(source):
            self._stations[source] = origin
        target = None if _is_group(destination) else self._stations.get(destination)
        if target is None:
            for port in self._ports:
                if port is not origin:
                    port._take(frames, size, now)
        elif target is not origin:
            target._take(frames, size, now)

    def _remove(self, port: MemoryLink) -> None:
        if port in self._ports:
            self._ports.remove(port)
        self._stations = {mac: at for mac, at in self._stations.items() if at is not port}


class MemoryLink:
    """One port of a `Network`. A batch that is sent is handed over as it is, without a copy."""

    def __init__(self, network: Network, mtu: int, limit_bytes: int) -> None:
        self._network = network
        self._mtu = mtu
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[float, Frames, int]] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self.counted = PortCounters()

    @property
    def mtu(self) -> int:
        return self._mtu

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

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        if not self._waiting:
            return None
        _, frames, size = self._waiting.popleft()
        self._waiting_bytes -= size
        self.counted.received_frames += len(frames)
        self.counted.received_bytes += size
        return frames

    def advance(self, now: float) -> None:
        """Nothing is ever due in here."""

    def next_time(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def room(self, now: float) -> int:  # noqa: ARG002
        """Always a full queue's worth: like a switch, a full port drops; it cannot hold up the sender."""
        return self._limit_bytes

    def counters(self) -> dict[str, int]:
        return {f"link_{name}": value for name, value in asdict(self.counted).items()}

    def close(self) -> None:
        self._closed = True
        self._network._remove(self)
        self._waiting.clear()
        self._waiting_bytes = 0


def _addresses(frames: Frames) -> tuple[bytes, bytes]:
    """Destination and source MAC of a batch: of its first frame."""
    start = int(frames.offsets[0])
    both = frames.data[start : start + min(12, int(frames.lengths[0]))].tobytes()
    return both[:6], both[6:12]


def _is_group(mac: bytes) -> bool:
    """Broadcast, multicast or, from a frame too short to have an address, nothing."""
    return len(mac) < 6 or bool(mac[0] & 1)
