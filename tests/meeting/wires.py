"""A meeting server and nodes on loopback: the sockets of NICs without NICs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable

from softnic import underlay
from softnic.link.reach.client import MeetingClient
from softnic.link.reach.own_card import MeetingOptions
from softnic.link.reach.token import Grant, Token, admits_all
from softnic.meeting.service import MeetingService, MeetingSettings
from softnic.underlay import Address

SECRET = bytes(range(32))
LIMIT_S = 20.0


def token_for(port: int, nodes: int, relay_kbps: int = 0, secret: bytes = SECRET) -> Token:
    grant = Grant(os.urandom(16), nodes, int(time.time()) + 600, relay_kbps)
    return Token.make(secret, [("127.0.0.1", port)], grant, os.urandom(32))


class Wire:
    """The UDP socket of a node, and its client."""

    def __init__(self, token: Token, host: str = "127.0.0.1", servers: list[list[Address]] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.token = token
        self.socket = socket.socket(underlay.family(host), socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((host, 0))
        self.address: Address = self.socket.getsockname()[:2]
        self.key = os.urandom(32)
        options = MeetingOptions(started=time.time(), servers=servers)
        self.client = MeetingClient(token, self.key, [self.address], os.urandom, None, options)
        self.frames: list[tuple[Address, bytes]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.loop.add_reader(self.socket.fileno(), self.read)
        self.poll()

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, source = self.socket.recvfrom(65535)
                if data[:1] == b"\x13":
                    self.client.on_datagram(underlay.of_socket(source), data, time.monotonic())
                else:
                    self.frames.append((underlay.of_socket(source), data))
        self.poll()

    def poll(self) -> None:
        for address, data in self.client.poll(time.monotonic()):
            with contextlib.suppress(OSError):
                self.socket.sendto(data, underlay.socket_address(address, self.socket.family))
        if self.timer is not None:
            self.timer.cancel()
        delay = max(0.001, self.client.next_time() - time.monotonic())
        self.timer = self.loop.call_later(min(delay, 60.0), self.poll)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.loop.remove_reader(self.socket.fileno())
        self.socket.close()


def settings_for(host: str) -> MeetingSettings:
    """Return the settings of a server with a relay and a port for tunnels, which binds an address."""
    first_relay_port = 20_000 + os.getpid() % 10_000
    ports = range(first_relay_port, first_relay_port + 50)
    return MeetingSettings((host, 0), admits_all(SECRET), relay_ports=ports, tcp=[("127.0.0.1", 0)])


@contextlib.asynccontextmanager
async def serving(settings: MeetingSettings | None = None) -> AsyncIterator[tuple[MeetingService, list[str]]]:
    """Yield a running server, and the lines of its log."""
    lines: list[str] = []
    service = MeetingService(settings or settings_for("127.0.0.1"), lines.append)
    running = asyncio.ensure_future(service.run())
    await until(lambda: bool(lines) or running.done())
    try:
        yield service, lines
    finally:
        service.stop()
        await running


async def until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition holds. Fails after LIMIT_S, and says what there is instead."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.005)


def relayed(wire: Wire, other: Wire) -> list[Address]:
    node = wire.client.nodes.get(other.key)
    return [] if node is None else [each.address for each in node.candidates if each.relayed]


async def bound(a: Wire, b: Wire) -> tuple[Address, Address]:
    """Wait until two nodes have each other's relay ports. Returns B's as A has it, and A's as B has it."""
    await until(lambda: bool(relayed(a, b) and relayed(b, a)))
    for wire, other in ((a, b), (b, a)):
        await until(lambda wire=wire, other=other: wire.client.is_relay_bound(other.key))  # type: ignore[misc]
    return relayed(a, b)[0], relayed(b, a)[0]
