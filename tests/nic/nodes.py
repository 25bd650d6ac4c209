"""Two nodes on an emulated link under a virtual clock, and an application that sends from one to the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.segment import Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.connection import Connection

from .harness import IP_A, IP_B, TOS, roundtrip

TxPart = tuple[Tag, bytes]
"""What is sent under one tag."""


def two_nodes(seed: int, *, mtu: int = 1500, link: dict[str, Any] | None = None, **node: Any) -> tuple[Node, Node]:
    """Returns two nodes; `link` configures both directions of their link (EmulationSpec)."""
    network = MemoryNetwork()
    spec = EmulationSpec(**(link or {}))
    options = {"offloads": {TOS: "bounded:10"}, **node}
    nodes = [
        Node(
            ip,
            EmulatedLink(network.port(mtu=mtu), spec, seed=2 * seed + index),
            rng=random.Random(2 * seed + index),
            name=f"node{index}",
            **options,
        )
        for index, ip in enumerate((IP_A, IP_B))
    ]
    return nodes[0], nodes[1]


class Transfer:
    """Connects, sends tagged parts, and ends its direction; `got` holds the bytes read at the other side."""

    def __init__(
        self, sender: Node, receiver: Node, parts: Sequence[TxPart], *, port: int = 80, now: float = 0.0
    ) -> None:
        self.sender = sender
        self.parts = list(parts)
        self.got = bytearray()
        self.done = False
        self._sent = 0
        self._listener = receiver.host.listen(0, port, 5, now)
        self.connection: Connection = sender.host.connect(receiver.nic.ip, port, now)
        self.accepted: Connection | None = None

    def advance(self, now: float) -> None:  # noqa: ARG002
        self.sender.host.events.clear()
        assert not self.connection.error, self.connection.error_message
        self._send()
        if self.accepted is None:
            self.accepted = self._listener.accept()
        if self.accepted is not None:
            self._read(self.accepted)

    def _send(self) -> None:
        while self.parts:
            tag, data = self.parts[0]
            if not self._sent:
                self.connection.tag(tag)
            self._sent += self.connection.send(memoryview(data)[self._sent :])
            if self._sent < len(data):
                return
            self._sent = 0
            self.parts.pop(0)
            if not self.parts:
                self.connection.shutdown_write()

    def _read(self, connection: Connection) -> None:
        count = 0
        for view in connection.received:
            self.got += view
            count += len(view)
        if count:
            connection.consume(count)
        self.done = connection.eof

    def next_time(self) -> float | None:
        """It acts whenever the nodes do."""
        return None


def expected(parts: Sequence[TxPart], default: str = "bounded:10") -> bytes:
    """Returns the bytes that must arrive."""
    return b"".join(roundtrip(tag.codec or default, data) if tag.tos == TOS else data for tag, data in parts)


def introduced(a: Node, b: Node) -> VirtualClock:
    """A clock at a time when each knows the other's MAC. ARP asks three times only, which a bad link may well lose."""
    clock = VirtualClock()
    while not a.host.events:
        a.host.ping(b.nic.ip, clock.now)
        clock.run_for([a, b], 5.0)
    return clock


def transfer(
    sender: Node, receiver: Node, parts: Sequence[TxPart], *, limit_s: float = 600.0, clock: VirtualClock | None = None
) -> tuple[Transfer, VirtualClock]:
    """Runs a transfer to completion."""
    clock = clock or VirtualClock()
    program = Transfer(sender, receiver, parts, now=clock.now)
    clock.run([program, sender, receiver], lambda: program.done, limit_s)
    return program, clock
