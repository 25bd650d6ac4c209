"""Batches of runs that the fast path and Python process by turns: each run sees what those before it have done."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.frames import Frames
from softnic.packet.headers import pack_headers
from softnic.packet.segment import Flags, Segment
from softnic.sim.clock import VirtualClock
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.tcp.flows import flow

from .harness import IP_A, IP_B, MAC_A, MAC_B, cut

SIZE = 1000
DELAY_S = 0.01
DATA, RESET, END = Flags.PSH | Flags.ACK, Flags.RST | Flags.ACK, Flags.FIN | Flags.ACK
Item = tuple[int, Flags, int]
"""Number of the connection, flags, and offset of the data behind what was received so far."""


class Batch:
    """Two connections between two nodes, one of which then receives a batch with frames that look like its peer's."""

    def __init__(self, fast_path: bool) -> None:
        network = MemoryNetwork()
        self.ports = [network.port(), network.port()]
        self.a, self.b = (
            Node(
                ip,
                EmulatedLink(port, EmulationSpec(delay_s=DELAY_S), seed=ip),
                rng=random.Random(ip),
                config=TcpConfig(fast_path=fast_path),
            )
            for ip, port in zip((IP_A, IP_B), self.ports, strict=True)
        )
        listener = self.b.host.listen(0, 80, 5, 0.0)
        self.clients = [self.a.host.connect(IP_B, 80, 0.0) for _ in range(2)]
        self.clock = VirtualClock()
        self.clock.run([self.a, self.b], lambda: len(listener.queue) == 2)
        accepted = [listener.accept() for _ in range(2)]
        by_port = {each.peer[1]: each for each in accepted if each is not None}
        self.servers: list[Connection] = [by_port[client.local[1]] for client in self.clients]
        for _ in range(5):  # round trips, which both sides measure
            for client, server in zip(self.clients, self.servers, strict=True):
                client.send(bytes(SIZE))
                server.recv(SIZE)
            self.clock.run_for([self.a, self.b], 4 * DELAY_S)
        self.b.host.events.clear()

    def receive(self, items: list[Item]) -> list[bytes]:
        """Passes the items to b as one batch. Returns the frames that b sends."""
        now = self.clock.now
        frames = [frame for item in items for frame in self._frames(*item)]
        self.ports[0].send(Frames.of(frames), now)
        self.b.advance(now)
        self.b.link.advance(now + DELAY_S)
        answers: list[bytes] = []
        while (batch := self.ports[0].receive(now)) is not None:
            answers += [bytes(frame) for frame in batch]
        return answers

    def _frames(self, number: int, flags: Flags, offset: int) -> list[bytes]:
        server, client = self.servers[number], self.clients[number]
        port, view = client.local[1], flow(client)
        seq = (view.iss + view.snd_nxt + offset) & 0xFFFFFFFF
        ack = (flow(server).iss + flow(server).snd_nxt) & 0xFFFFFFFF
        stamps = client.timestamps.value(self.clock.now), client.timestamps.ts_recent
        segment = Segment(IP_A, IP_B, port, 80, seq, ack, flags, 512, timestamps=stamps)
        payload = bytes([number]) * SIZE if flags == DATA else b""
        made = cut(pack_headers(segment, MAC_B, MAC_A, 0), payload, max_payload=1448, codec=-1)
        assert made is not None
        return made[0]

    def results(self) -> list[object]:
        """The state of b after the batch."""
        counters = asdict(self.b.host.counters) | asdict(self.b.nic.counters)
        ends = [
            (end.state.name, end.error_message, end.eof, flow(end).unread, hash(b"".join(map(bytes, end.received))))
            for end in self.servers
        ]
        counted = {name: value for name, value in counters.items() if not name.startswith("fast_path")}
        return [ends, [type(event).__name__ for event in self.b.host.events], counted]


@pytest.mark.parametrize(
    ("items", "fast"),
    [
        ([(0, DATA, 0), (0, DATA, SIZE), (0, RESET, 2 * SIZE), (0, DATA, 2 * SIZE)], 2),
        ([(0, DATA, 0), (0, RESET, SIZE), (1, DATA, 0), (0, DATA, SIZE), (1, DATA, SIZE)], 3),
        ([(0, DATA, 0), (0, END, SIZE), (1, DATA, 0), (0, DATA, SIZE), (1, DATA, SIZE)], 3),
        ([(0, DATA, SIZE), (0, DATA, 0), (0, DATA, 2 * SIZE), (1, DATA, 0)], 2),
        ([(0, RESET, 0), (1, RESET, 0), (0, DATA, 0), (1, DATA, 0)], 0),
    ],
    ids=["closed", "closed beside another", "ended", "gap", "both closed"],
)
def test_a_run_behind_the_end_of_its_connection_is_processed_as_by_python(items: list[Item], fast: int) -> None:
    """C takes at least `fast` of the runs."""
    off, on = Batch(fast_path=False), Batch(fast_path=True)
    before = on.b.host.counters.fast_path_received
    assert on.receive(items) == off.receive(items)
    assert on.results() == off.results()
    assert on.b.host.counters.fast_path_received - before >= fast
