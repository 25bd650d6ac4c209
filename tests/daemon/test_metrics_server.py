"""What clients of the metrics can cost a NIC and each other, in virtual time: a loop and transports made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from softnicd.event_log import EventLog
from softnicd.metrics_server import IDLE_S as METRICS_IDLE_S
from softnicd.metrics_server import MAX_CONNECTIONS as MAX_METRICS_CONNECTIONS
from softnicd.metrics_server import MAX_OF_ADDRESS as MAX_METRICS_OF_ADDRESS
from softnicd.metrics_server import MAX_PAUSE_S as MAX_METRICS_PAUSE_S
from softnicd.metrics_server import MIN_INTERVAL_S as MIN_METRICS_INTERVAL_S
from softnicd.metrics_server import REQUEST_S as METRICS_REQUEST_S
from softnicd.metrics_server import SHARE as METRICS_SHARE
from softnicd.metrics_server import MetricsConnection, MetricsServer

GET = b"GET /metrics HTTP/1.1\r\n\r\n"


class Handle:
    def __init__(self, loop: Loop, at: float, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.at, self.loop = at, loop
        self.run: Callable[[], object] = lambda: callback(*arguments)
        loop.handles.append(self)

    def cancel(self) -> None:
        if self in self.loop.handles:
            self.loop.handles.remove(self)


class Loop:
    """The clock and timers of an event loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        return Handle(self, at, callback, arguments)

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        return self.call_at(self.now + delay, callback, *arguments)

    def step(self) -> None:
        """Run the timer that is due first."""
        handle = min(self.handles, key=lambda each: each.at)
        self.handles.remove(handle)
        self.now = max(self.now, handle.at)
        handle.run()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.handles and min(each.at for each in self.handles) <= end:
            self.step()
        self.now = max(self.now, end)


class Transport(asyncio.Transport):
    """What a client sees; `stuck` is what it has not read of the replies."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.written: list[bytes] = []
        self.closed = self.paused = False
        self.stuck = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.stuck

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    @property
    def statuses(self) -> list[bytes]:
        return [reply[9:12] for reply in self.written]


class World:
    """A server whose snapshots take `cost_s`."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.loop, self.cost_s = Loop(), cost_s
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.server = MetricsServer(
            self._snapshot, lambda _stats, _is_open: ("text/plain", b"samples"), EventLog(), loop
        )

    def _snapshot(self) -> Any:
        self.loop.now += self.cost_s

    def open(self, address: str = "127.0.0.1", data: bytes = b"") -> tuple[MetricsConnection, Transport]:
        connection, transport = MetricsConnection(self.server), Transport(address)
        connection.connection_made(transport)
        if data and not transport.closed:
            connection.data_received(data)
        return connection, transport

    @property
    def counted(self) -> tuple[int, int]:
        return self.server.counters.metrics_scrapes, self.server.counters.metrics_refused


def open_ones(transports: Iterable[Transport]) -> int:
    return sum(not each.closed for each in transports)


def test_one_reply_a_callback_however_many_requests_arrive_at_once() -> None:
    world = World()
    _, transport = world.open(data=GET * 10_000)
    assert (transport.written, transport.paused) == ([], True)
    for replies in range(1, 4):
        world.loop.step()
        assert (len(transport.written), transport.paused) == (replies, True)
    assert world.loop.now - 100.0 == pytest.approx(2 * MIN_METRICS_INTERVAL_S)
    world.loop.run(1.0)
    assert len(transport.written) == 3 + int(1.0 / MIN_METRICS_INTERVAL_S)


def test_an_honest_pair_of_scrapes_does_not_wait() -> None:
    world = World()
    connection, transport = world.open(data=GET)
    world.loop.step()
    world.loop.run(15.0)
    connection.data_received(GET[:9])
    connection.data_received(GET[9:])
    began = world.loop.now
    world.loop.step()
    assert (world.loop.now, transport.statuses, world.counted) == (began, [b"200", b"200"], (2, 0))


@pytest.mark.parametrize("cost_s", [0.001, 0.04])
def test_replies_take_a_bounded_share_of_the_time(cost_s: float) -> None:
    world = World(cost_s)
    for number in range(2 * MAX_METRICS_CONNECTIONS):
        world.open(f"127.0.0.{number}", GET * 5000)
    began = world.loop.now
    world.loop.run(50.0)
    took = world.counted[0] * cost_s
    assert took <= METRICS_SHARE * (world.loop.now - began) + cost_s
    assert took >= METRICS_SHARE * (world.loop.now - began) / 2


def test_after_a_suspension_in_a_reply_the_next_one_waits_briefly() -> None:
    world = World(cost_s=60.0)
    world.open("127.0.0.1", GET)
    _, second = world.open("127.0.0.2", GET)
    world.loop.step()
    world.cost_s = 0.0
    world.loop.step()
    assert world.loop.now == pytest.approx(160.0 + MAX_METRICS_PAUSE_S)
    assert second.statuses == [b"200"]


@pytest.mark.parametrize("given", [b"", b"GET /met", GET], ids=["silent", "in part", "scraped once"])
def test_connections_that_wait_make_room(given: bytes) -> None:
    world = World()
    held = []
    for _ in range(3 * MAX_METRICS_OF_ADDRESS):
        held.append(world.open(data=given)[1])
        world.loop.run(0.1)
    assert [each.closed for each in held] == [True] * 2 * MAX_METRICS_OF_ADDRESS + [False] * MAX_METRICS_OF_ADDRESS
    _, honest = world.open(data=GET)
    world.loop.step()
    assert honest.statuses == [b"200"]
    assert world.counted[1] == 2 * MAX_METRICS_OF_ADDRESS + 1


def test_the_address_with_the_most_connections_makes_room() -> None:
    world = World()
    _, honest = world.open("10.0.0.1")
    greedy = [world.open(f"10.0.0.{2 + number % 2}")[1] for number in range(MAX_METRICS_CONNECTIONS - 1)]
    other = [world.open(f"10.0.1.{number}")[1] for number in range(5)]
    assert not honest.closed
    assert open_ones(other) == 5
    assert open_ones(greedy) == MAX_METRICS_CONNECTIONS - 6
    assert len(world.server.connections) == MAX_METRICS_CONNECTIONS


def test_of_connections_that_flood_the_one_with_the_most_replies_makes_room() -> None:
    world = World(cost_s=0.01)
    flooding = [world.open(data=GET * 1000) for _ in range(MAX_METRICS_OF_ADDRESS)]
    refused = world.open(data=GET)[1]
    assert refused.statuses == [b"503"], "nobody has had a reply yet"
    world.loop.run(3.0)
    most = max(connection.replies for connection, _ in flooding)
    _, honest = world.open(data=GET)
    closed = [connection.replies for connection, transport in flooding if transport.closed]
    assert closed == [most]
    world.loop.run(3.0)
    assert honest.statuses == [b"200"]


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    world = World()
    connection, transport = world.open(data=GET)
    world.loop.step()
    transport.stuck = 1000
    connection.data_received(GET)
    assert (transport.statuses, transport.closed) == ([b"200", b"429"], True)


@pytest.mark.parametrize(
    ("given", "limit_s", "refused"),
    [(b"", METRICS_REQUEST_S, 0), (b"GET", METRICS_REQUEST_S, 1), (GET, METRICS_IDLE_S, 0)],
)
def test_times(given: bytes, limit_s: float, refused: int) -> None:
    world = World()
    _, transport = world.open(data=given)
    world.loop.run(limit_s - 0.1)
    assert not transport.closed
    world.loop.run(0.2)
    assert transport.closed
    assert world.counted[1] == refused


def test_the_end_of_a_connection_ends_its_timers() -> None:
    world = World()
    for given in (b"", GET):
        connection, _ = world.open(data=given)
        connection.connection_lost(None)
    world.loop.run(1.0)
    assert (world.loop.handles, world.counted) == ([], (0, 0))
