"""A machine's way onto the network: an emulated link whose properties change, and that may be cut.

The network lives in the world's time, nodes in their own (clock.py): `LocalLink` stands between the two.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from tests.facades.link import EmulatedLink, EmulationSpec
from tests.facades.packet import Frames
from tests.facades.sim import MemoryLink
from tests.simulation.local_clock import Clock

LATE_S = 25.0
"""How late a ghost may come: a segment lives no longer than 30 s (TcpConfig.time_wait_s)."""
Seen = Callable[[Frames, bool], None]
"""Is shown every batch that leaves (True) or arrives (False)."""


class FilteredPort:
    """A port that is deaf to some. `hears` is asked of each batch's sender MAC."""

    def __init__(self, port: MemoryLink, hears: Callable[[bytes], bool]) -> None:
        self._port = port
        self._hears = hears
        self.unheard = 0

    @property
    def mtu(self) -> int:
        return self._port.mtu

    def send(self, frames: Frames, now: float) -> None:
        self._port.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        while (frames := self._port.receive(now)) is not None:
            start = int(frames.offsets[0]) + 6
            if self._hears(frames.data[start : start + 6].tobytes()):
                return frames
            self.unheard += len(frames)
        return None

    def advance(self, now: float) -> None:
        self._port.advance(now)

    def next_time(self) -> float | None:
        return self._port.next_time()

    def tx_space(self, now: float) -> int:
        return self._port.tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._port.counters()

    def close(self) -> None:
        self._port.close()


class SimLink:
    """A link in the world's time. `seed` decides the fates of frames; `ghosts` of all batches come again much later."""

    def __init__(
        self,
        port: MemoryLink,
        spec: EmulationSpec,
        seed: int,
        hears: Callable[[bytes], bool],
        seen: Seen,
        ghosts: float = 0.0,
    ) -> None:
        self._ear = FilteredPort(port, hears)
        self._seed = seed
        self._seen = seen
        self._random = random.Random(seed)
        self._ghosts = ghosts
        self._late: list[tuple[float, int, Frames]] = []
        """A heap of what comes again, with numbers that keep it in order."""
        self._links = [EmulatedLink(self._ear, spec, seed=seed)]
        """The last one takes what is sent; in those before it something may still be on its way."""

    def change(self, spec: EmulationSpec) -> None:
        """What is sent from now on goes by this."""
        self._seed += 1
        self._links.append(EmulatedLink(self._ear, spec, seed=self._seed))

    def forget(self, now: float) -> None:
        """Whoever listened is gone, with all that waits at the port."""
        while self._ear.receive(now) is not None:
            pass

    @property
    def mtu(self) -> int:
        return self._ear.mtu

    def send(self, frames: Frames, now: float) -> None:
        self._seen(frames, True)
        if self._ghosts and self._random.random() < self._ghosts:
            again = now + LATE_S * self._random.random()
            heapq.heappush(self._late, (again, self._random.getrandbits(64), frames))
        self._links[-1].send(frames, now)

    def receive(self, now: float) -> Frames | None:
        frames = self._ear.receive(now)
        if frames is not None:
            self._seen(frames, False)
        return frames

    def advance(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            self._ear.send(heapq.heappop(self._late)[2], now)
        for link in self._links:
            link.advance(now)
        if len(self._links) > 1:
            self._links = [link for link in self._links[:-1] if link.in_transit] + self._links[-1:]

    def next_time(self) -> float | None:
        times = [time for link in self._links if (time := link.next_time()) is not None]
        if self._late:
            times.append(self._late[0][0])
        return min(times, default=None)

    def tx_space(self, now: float) -> int:
        return self._links[-1].tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._links[-1].counters()

    def close(self) -> None:
        self._ear.close()


class LocalLink:
    """A way for a node that has a clock of its own. `world_now` tells the world's time."""

    def __init__(self, way: SimLink, clock: Clock, world_now: Callable[[], float]) -> None:
        self._way = way
        self._clock = clock
        self._world_now = world_now

    @property
    def mtu(self) -> int:
        return self._way.mtu

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self._way.send(frames, self._world_now())

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return self._way.receive(self._world_now())

    def advance(self, now: float) -> None:  # noqa: ARG002
        self._way.advance(self._world_now())

    def next_time(self) -> float | None:
        time = self._way.next_time()
        return None if time is None else self._clock.local_of(time)

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        return self._way.tx_space(self._world_now())

    def counters(self) -> dict[str, int]:
        return self._way.counters()

    def close(self) -> None:
        self._way.close()
