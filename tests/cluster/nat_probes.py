"""Probes of NATs by plain UDP sockets: what a server sees of a host, who may answer it, and hole punching of pairs."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from softnic.cluster.netns_lab.host import NetnsHost

ANSWER_S = 20.0
"""Time limit for a datagram that must arrive."""
QUIET_S = 0.02
"""A round of hole punching ends when nothing arrives for this time."""
LEAST_ROUNDS, MOST_ROUNDS = 8, 200
Address = tuple[Any, ...]


def udp(host: NetnsHost, address: str = "", port: int = 0) -> socket.socket:
    """Return a UDP socket of a host, of the family of the address."""
    with host.entered():
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    made.settimeout(ANSWER_S)
    return made


def seen(probe: socket.socket, server: socket.socket) -> Address:
    """Return the address and port that a server sees of a probe."""
    probe.sendto(b"who am I", server.getsockname())
    address: Address = server.recvfrom(100)[1]
    return address


def admitted(probe: socket.socket, senders: Iterable[tuple[str, socket.socket]], to: Address, last: str) -> set[str]:
    """Return the names of the senders whose datagrams reach a probe at its external address. That of the sender named
    `last` must, and shows by its arrival that those before it do not come any more."""
    named = dict(senders)
    for name in [*(each for each in named if each != last), last]:
        named[name].sendto(name.encode(), to)
    arrived: set[str] = set()
    while last not in arrived:
        arrived.add(probe.recv(100).decode())
    return arrived - {last}


@dataclass
class Puncher:
    """One side of a pair: it sends to all addresses at which its peer may be."""

    socket: socket.socket
    targets: set[Address] = field(default_factory=set)
    heard: bool = False
    """Whether something of the peer has come."""
    connected: bool = False
    """Whether the peer has also heard from this side."""

    def send(self) -> None:
        for target in self.targets:
            self.socket.sendto(b"heard" if self.heard else b"hello", target)

    def receive(self) -> None:
        text, source = self.socket.recvfrom(100)
        self.targets.add(source)
        self.heard = True
        self.connected |= text == b"heard"


def register(punchers: Sequence[Puncher], server: socket.socket, expected: int) -> dict[int, Address]:
    """Let all sides send to a server, until it has heard from as many as `expected`, and return what it has seen of
    each, by its index."""
    found: dict[int, Address] = {}
    server.settimeout(QUIET_S)
    for _ in range(MOST_ROUNDS):
        for number, puncher in enumerate(punchers):
            if number not in found:
                puncher.socket.sendto(str(number).encode(), server.getsockname())
        try:
            while True:
                text, source = server.recvfrom(100)
                found[int(text)] = source
        except TimeoutError:
            if len(found) >= expected:
                break
    return found


def punch(pairs: Sequence[tuple[Puncher, Puncher]], expected: int) -> list[bool]:
    """Let both sides of all pairs send at the same time, several times and until as many pairs as `expected` are
    connected, and return which are."""
    punchers = [each for pair in pairs for each in pair]
    with selectors.DefaultSelector() as selector:
        for puncher in punchers:
            puncher.socket.setblocking(False)
            selector.register(puncher.socket, selectors.EVENT_READ, puncher)
        for number in range(MOST_ROUNDS):
            connected = [left.connected and right.connected for left, right in pairs]
            if number >= LEAST_ROUNDS and sum(connected) >= expected:
                break
            for puncher in punchers:
                puncher.send()
            while events := selector.select(QUIET_S):
                for key, _ in events:
                    key.data.receive()
    return [left.connected and right.connected for left, right in pairs]
