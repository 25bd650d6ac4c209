"""Nodes, NATs and meeting servers in virtual time: a network that delays, loses and reorders, from a seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from softnic.link.reach.client import MeetingClient
from softnic.link.reach.own_card import MeetingOptions
from softnic.link.reach.relay_table import RelayTable
from softnic.link.reach.server import OTHER, MeetingServer
from softnic.link.reach.token import Admit, Grant, Token, admits_all
from softnic.underlay import Address

SECRET = bytes(range(32))
UNIX_TIME = 1_800_000_000.0
PORT = 9470
SERVERS: tuple[Address, ...] = (("198.51.100.1", PORT), ("198.51.100.2", PORT))


def job_token(nodes: int, servers: int = 1, secret: bytes = SECRET, job: int = 1, **limits: int) -> Token:
    grant = Grant(job.to_bytes(16, "big"), nodes, int(UNIX_TIME) + 3600, **limits)
    return Token.make(secret, SERVERS[:servers], grant, bytes([job]) * 32)


def public_key(index: int) -> bytes:
    return random.Random(index).randbytes(32)


class Nat:
    """A NAT with one public address. `mapping` and `filtering`: by "endpoint", "address" or "port" (RFC 4787)."""

    def __init__(self, public: str, mapping: str = "endpoint", filtering: str = "port") -> None:
        self.public, self.mapping, self.filtering = public, mapping, filtering
        self._ports: dict[tuple[Address, object], int] = {}
        self._inside: dict[int, Address] = {}
        self._allowed: dict[int, set[object]] = {}

    def _part(self, remote: Address, how: str) -> object:
        return {"endpoint": None, "address": remote[0], "port": remote}[how]

    def out(self, source: Address, to: Address) -> Address:
        key = (source, self._part(to, self.mapping))
        port = self._ports.setdefault(key, 20_000 + len(self._ports))
        self._inside[port] = source
        self._allowed.setdefault(port, set()).add(self._part(to, self.filtering))
        return self.public, port

    def into(self, source: Address, to: Address) -> Address | None:
        if self._part(source, self.filtering) not in self._allowed.get(to[1], ()):
            return None
        return self._inside[to[1]]

    def rebind(self) -> None:
        """Forget all mappings, and use other ports for new ones."""
        used = len(self._ports)
        self._ports = {(("gone", number), None): number for number in range(used)}
        self._inside.clear()
        self._allowed.clear()


class World:
    """Hosts at addresses, whose datagrams cross in virtual time."""

    def __init__(self, seed: int = 1, delay: float = 0.01, loss: float = 0.0, jitter: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.delay, self.loss, self.jitter = delay, loss, jitter
        self.now = 1000.0
        self._order = itertools.count()
        self._flying: list[tuple[float, int, Address, Address, bytes]] = []
        self.servers: dict[str, Server] = {}
        self.nodes: dict[Address, Node] = {}
        self.watch: Callable[[Address, Address, bytes], None] = lambda _source, _to, _data: None

    @property
    def unix_time(self) -> float:
        return UNIX_TIME + self.now

    def send(self, source: Address, to: Address, data: bytes) -> None:
        self.watch(source, to, data)
        if self.random.random() >= self.loss:
            at = self.now + self.delay + self.random.random() * self.jitter
            heapq.heappush(self._flying, (at, next(self._order), source, to, data))

    def _arrive(self, source: Address, to: Address, data: bytes) -> None:
        server = self.servers.get(to[0])
        if server is not None:
            server.take(source, to, data)
            return
        for node in self.nodes.values():
            if node.nat is not None and node.nat.public == to[0]:
                inside = node.nat.into(source, to)
                if inside == node.address:
                    node.take(source, data)
            elif node.nat is None and node.address == to:
                node.take(source, data)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, until a condition holds. Returns whether it does."""
        end = self.now + seconds
        while self.now < end and not until():
            times = [self._flying[0][0]] if self._flying else []
            times += [node.client.next_time() for node in self.nodes.values()]
            times += [at - UNIX_TIME for each in self.servers.values() if (at := each.next_time()) is not None]
            self.now = max(self.now, min([end, *times]))
            while self._flying and self._flying[0][0] <= self.now:
                _, _, source, to, data = heapq.heappop(self._flying)
                self._arrive(source, to, data)
            for node in list(self.nodes.values()):
                node.poll()
            for each in list(self.servers.values()):
                each.poll()
        return until()


class Server:
    """A meeting server in a world, with a relay that forwards."""

    def __init__(
        self,
        world: World,
        address: Address = SERVERS[0],
        other: str = "",
        admit: Admit = admits_all(SECRET),  # noqa: B008
    ) -> None:
        self.world, self.address, self.other = world, address, other
        self.admit = admit
        self.start()
        world.servers[address[0]] = self
        if other:
            world.servers[other] = self

    def start(self) -> None:
        """Begin with an empty memory, as after a restart."""
        self.relay = RelayTable(range(9500, 9600), 1e9, lambda _port: True, lambda _port: None)
        make = random.Random(self.world.random.random()).randbytes
        self.server = MeetingServer(self.admit, make, self.relay, port=self.address[1], has_other=bool(self.other))

    def stop(self) -> None:
        for host in (self.address[0], self.other):
            self.world.servers.pop(host, None)

    def take(self, source: Address, to: Address, data: bytes) -> None:
        if data[:1] != b"\x13":
            if (route := self.relay.route(to[1], source, self.world.unix_time)) is not None:
                self.world.send((self.address[0], route[0].port), route[1], data)
            return
        port = OTHER if to[0] == self.other else to[1]
        self._send(self.server.on_datagram(port, source, data, self.world.unix_time))

    def _send(self, out: list[tuple[int, Address, bytes]]) -> None:
        for port, to, data in out:
            source = (self.other, self.address[1]) if port == OTHER else (self.address[0], port)
            self.world.send(source, to, data)

    def next_time(self) -> float | None:
        return self.server.next_time()

    def poll(self) -> None:
        self._send(self.server.poll(self.world.unix_time))


class Node:
    """A node in a world, behind a NAT or not."""

    def __init__(
        self,
        world: World,
        token: Token,
        index: int,
        nat: Nat | None = None,
        number: int | None = None,
        options: MeetingOptions | None = None,
    ) -> None:
        self.world, self.nat = world, nat
        self.key = public_key(index)
        self.address: Address = (f"{'10.0' if nat else '203.0'}.{113 + index // 250}.{index % 250 + 1}", 4789)
        options = MeetingOptions(started=world.unix_time) if options is None else options
        make = random.Random(index).randbytes
        self.client = MeetingClient(token, self.key, [self.address], make, number, options)
        self.frames: list[tuple[Address, bytes]] = []
        world.nodes[self.address] = self

    def send(self, to: Address, data: bytes) -> None:
        self.world.send(self.address if self.nat is None else self.nat.out(self.address, to), to, data)

    def take(self, source: Address, data: bytes) -> None:
        if data[:1] == b"\x13":
            self.client.on_datagram(source, data, self.world.now)
        else:
            self.frames.append((source, data))

    def poll(self) -> None:
        if self.client.next_time() <= self.world.now:
            for to, data in self.client.poll(self.world.now):
                self.send(to, data)

    def stop(self) -> None:
        del self.world.nodes[self.address]
