"""A node's connection to the network: an emulated link whose properties change, and that may be cut.

The network is in the world's time, nodes are in their own (local_clock.py): `LocalLink` is between the two.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryLink
from softnic.packet.frames import Frames

LATE_S = 25.0
"""Longest delay of a stale duplicate: a segment lives no longer than 30 s (TcpConfig.time_wait_s)."""
Observer = Callable[[Frames, bool], None]
"""Called with every batch that leaves (True) or arrives (False)."""


class _Wrapper:
    """A link around another one, to which everything passes unchanged."""

    def __init__(self, inner: Link) -> None:
        self._inner = inner

    @property
    def mtu(self) -> int:
        return self._inner.mtu

    def send(self, frames: Frames, now: float) -> None:
        self._inner.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        return self._inner.receive(now)

    def advance(self, now: float) -> None:
        self._inner.advance(now)

    def next_time(self) -> float | None:
        return self._inner.next_time()

    def tx_space(self, now: float) -> int:
        return self._inner.tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._inner.counters()

    def close(self) -> None:
        self._inner.close()


class FilteredPort(_Wrapper):
    """A port that drops batches whose sender's MAC `accepts` rejects."""

    def __init__(self, port: MemoryLink, accepts: Callable[[bytes], bool]) -> None:
        super().__init__(port)
        self._accepts = accepts

    def receive(self, now: float) -> Frames | None:
        while (frames := self._inner.receive(now)) is not None:
            start = int(frames.offsets[0]) + 6
            if self._accepts(frames.data[start : start + 6].tobytes()):
                return frames
        return None


class SimLink(_Wrapper):
    """A link in the world's time.

    Parameters
    ----------
    seed : int
        Decides which frames are lost, delayed, damaged and duplicated.
    accepts : Callable[[bytes], bool]
        Whether frames from a MAC arrive.
    stale_duplicates : float
        The fraction of batches that arrive a second time, up to LATE_S later.
    """

    def __init__(
        self,
        port: MemoryLink,
        spec: EmulationSpec,
        seed: int,
        accepts: Callable[[bytes], bool],
        observer: Observer,
        stale_duplicates: float = 0.0,
    ) -> None:
        self._port = FilteredPort(port, accepts)
        self._emulated = EmulatedLink(self._port, spec, seed=seed)
        super().__init__(self._emulated)
        self._draining: list[EmulatedLink] = []
        """Links of earlier properties that still have frames in transit."""
        self._seed = seed
        self._observer = observer
        self._random = random.Random(seed)
        self._stale_duplicates = stale_duplicates
        self._late: list[tuple[float, int, Frames]] = []
        """A heap of duplicates by their time, with a number that breaks ties."""

    def change(self, spec: EmulationSpec) -> None:
        """Give the link other properties, for what is sent from now on."""
        self._seed += 1
        self._draining.append(self._emulated)
        self._inner = self._emulated = EmulatedLink(self._port, spec, seed=self._seed)

    def discard_waiting(self, now: float) -> None:
        """Drop what waits at the port: the NIC that would have received it is gone."""
        while self._port.receive(now) is not None:
            pass

    def send(self, frames: Frames, now: float) -> None:
        self._observer(frames, True)
        if self._stale_duplicates and self._random.random() < self._stale_duplicates:
            again = now + LATE_S * self._random.random()
            heapq.heappush(self._late, (again, self._random.getrandbits(64), frames))
        self._emulated.send(frames, now)

    def receive(self, now: float) -> Frames | None:
        frames = self._port.receive(now)
        if frames is not None:
            self._observer(frames, False)
        return frames

    def advance(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            self._port.send(heapq.heappop(self._late)[2], now)
        for link in (*self._draining, self._emulated):
            link.advance(now)
        if self._draining:
            self._draining = [link for link in self._draining if link.in_transit]

    def next_time(self) -> float | None:
        times = [time for link in (*self._draining, self._emulated) if (time := link.next_time()) is not None]
        if self._late:
            times.append(self._late[0][0])
        return min(times, default=None)


class LocalLink(_Wrapper):
    """The link of a node that has a clock of its own. `time` returns the world's time."""

    def __init__(self, link: Link, time: Callable[[], float]) -> None:
        super().__init__(link)
        self._time = time

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self._inner.send(frames, self._time())

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return self._inner.receive(self._time())

    def advance(self, now: float) -> None:  # noqa: ARG002
        self._inner.advance(self._time())

    def next_time(self) -> None:
        """None: the owner asks the inner link, in the world's time."""

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        return self._inner.tx_space(self._time())


class QueueLink(_Wrapper):
    """One queue's side of a link that several queues share: it receives what has `arrived` there."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.arrived: deque[Frames] = deque()

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return self.arrived.popleft() if self.arrived else None
