"""Two or more hosts on a network in virtual time; a fake NIC cuts segments into frames.

The fake NIC obeys the Transmitter's contract (budget, cuts, PSH and FIN) and checks that TCP obeys its own: phases,
whole words, no segment across a tag change.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from softnic.packet import ipv4
from softnic.packet.segment import Flags, Segment, Transmitted
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.events import Event
from softnic.tcp.host import Host
from softnic.tcp.listener import Listener
from softnic.tcp.state import State

TAGGED = 0x28
CODECS = 0b111
"""Bit set of the codecs that the peer's NIC decodes."""
START = 2.0**16
"""Initial time of the clock; not 0, so that code that assumes a start at 0 fails."""
ENDING = int(Flags.PSH | Flags.FIN)
Filter = Callable[[Segment], bool]


@dataclass
class Wire:
    """The network's treatment of frames: one-way delay, and probabilities of impairments."""

    delay_s: float = 0.001
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    ratio: int = 1
    """Original bytes of a tagged stream to one byte on the wire."""
    room: int = 1 << 20
    """Bytes that a host may send in one call."""


class Node:
    """A host, its fake NIC, and a log of the frames it sent."""

    def __init__(self, lab: Lab, number: int, config: TcpConfig) -> None:
        self.lab = lab
        self.ip = ipv4.address(f"10.77.0.{number}")
        self.mac = bytes([2, 0x53, 0x4E]) + (self.ip & 0xFFFFFF).to_bytes(3, "big")
        self.config = config
        self.host = Host(
            self.ip,
            self.mac,
            transmitter=self,
            send_frame=self.send_frame,
            rng=Random(number),
            config=config,
            relay_of=lambda ip: lab.relays.get(ip, ""),
        )
        self.sent: list[Segment] = []
        self.ethernet_frames = 0
        """Number of ARP and ICMP frames sent."""
        self.drop: Filter | None = None
        """Predicate of outgoing frames that are lost."""
        self.deaf = False
        """Incoming frames are dropped."""
        self.events: list[Event] = []

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        assert now == self.lab.now
        payload, start, taken, frames, wire = segment.payload, 0, 0, 0, 0
        mss = self.config.mtu - 40 - (12 if segment.timestamps else 0)
        tagged = segment.tos == TAGGED
        assert max_frames > 0
        if segment.options is not None:
            segment.options.codecs = CODECS
        while frames < max_frames and (start < len(payload) or not frames):
            size = mss * self.lab.wire.ratio if tagged else mss
            if tagged and len(payload) - start > size:
                size -= (size + segment.block_offset + start) % 64
            end = min(start + size, len(payload))
            flags = segment.flags if end == len(payload) else segment.flags & ~ENDING
            number = (segment.seq + start) & 0xFFFFFFFF
            piece = memoryview(bytes(payload[start:end]))
            frame = replace(segment, seq=number, flags=flags, payload=piece)
            size = 66 + (-(-(end - start) // self.lab.wire.ratio) if tagged else end - start)
            self.sent.append(frame)
            if self.drop is None or not self.drop(frame):
                self.lab.deliver(destination, frame)
            frames, wire, start, taken = frames + 1, wire + size, end, end
        return Transmitted(taken, frames, wire)

    def send_frame(self, frame: bytes, now: float) -> None:
        assert now == self.lab.now
        self.ethernet_frames += 1
        self.lab.deliver(frame[:6], (self.mac, frame))

    def take_events(self) -> list[Event]:
        """Returns the events since the last call."""
        taken = self.events + list(self.host.events)
        self.events = []
        self.host.events.clear()
        return taken


class Lab:
    """Nodes 1..n at 10.77.0.n, and the clock."""

    def __init__(
        self, wire: Wire | None = None, seed: int = 1, nodes: int = 2, config: TcpConfig | None = None
    ) -> None:
        self.wire = wire or Wire()
        self.rng = Random(seed)
        self.now = START
        self.relays: dict[int, str] = {}
        """Addresses of relays, by that of the node that is reached by one."""
        self._queue: list[tuple[float, int, bytes, Segment | tuple[bytes, bytes]]] = []
        self._order = itertools.count()
        self.nodes = [Node(self, number + 1, config or TcpConfig()) for number in range(nodes)]

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        return self.now - START

    @property
    def a(self) -> Node:
        return self.nodes[0]

    @property
    def b(self) -> Node:
        return self.nodes[1]

    def deliver(self, mac: bytes, frame: Segment | tuple[bytes, bytes]) -> None:
        wire, rng = self.wire, self.rng
        if wire.loss and rng.random() < wire.loss:
            return
        at = self.now + wire.delay_s
        if wire.reorder and rng.random() < wire.reorder:
            at += wire.delay_s * rng.random() * 2
        heapq.heappush(self._queue, (at, next(self._order), mac, frame))
        if wire.duplicate and rng.random() < wire.duplicate:
            heapq.heappush(self._queue, (at + wire.delay_s * rng.random(), next(self._order), mac, frame))

    def _arrive(self) -> None:
        while self._queue and self._queue[0][0] <= self.now:
            _, _, mac, frame = heapq.heappop(self._queue)
            for node in self.nodes:
                if node.deaf or (mac != node.mac and mac != b"\xff" * 6):
                    continue
                if isinstance(frame, Segment):
                    node.host.receive_segment(replace(frame, flow=None), self.now)
                elif frame[0] != node.mac:
                    node.host.receive_frame(frame[1], self.now)

    def step(self) -> None:
        """Processes everything that is due at the current instant."""
        self._arrive()
        for node in self.nodes:
            node.host.advance(self.now)
            node.host.output_loopback(self.now)
            node.host.output(self.now, self.wire.room)

    def next_time(self) -> float | None:
        times = [node.host.next_time() for node in self.nodes]
        times += [self._queue[0][0]] if self._queue else []
        if any(node.host.wants_output() or node.host.wants_output_loopback() for node in self.nodes):
            times.append(self.now)
        return min((time for time in times if time is not None), default=None)

    def run(self, until: Callable[[], bool] = lambda: False, limit_s: float = 60.0) -> bool:
        """Runs until the condition holds (True), nothing is left to happen, or `limit_s` seconds have passed."""
        end = self.now + limit_s
        self.step()
        while not until():
            time = self.next_time()
            if time is None or time > end:
                self.now = max(self.now, end)
                return until()
            self.now = max(self.now, time)
            self.step()
        return True

    def pair(self, port: int = 5000, backlog: int = 8) -> tuple[Connection, Connection]:
        """An established connection from a to b: (a's end, b's end)."""
        listener = self.b.host.listen(0, port, backlog, self.now)
        client = self.a.host.connect(self.b.ip, port, self.now)
        assert self.run(lambda: bool(listener.queue) and client.state is State.ESTABLISHED)
        server = listener.accept()
        assert server is not None
        listener.close(self.now)
        self.a.take_events()
        self.b.take_events()
        for node in self.nodes:
            node.sent.clear()
        return client, server


def accept(listener: Listener) -> Connection:
    connection = listener.accept()
    assert connection is not None
    return connection


class Pump:
    """Writes `data` as space permits, then a FIN; reads everything at the other end."""

    def __init__(self, source: Connection, sink: Connection, data: bytes, close: bool = True) -> None:
        self.source, self.sink, self.data, self.close = source, sink, memoryview(data), close
        self.written = 0
        self.got = bytearray()

    def __call__(self) -> bool:
        """Takes one turn; returns whether the transfer is complete."""
        if self.written < len(self.data):
            self.written += self.source.send(self.data[self.written :])
        elif self.close:
            self.source.shutdown_write()
        self.got += self.sink.recv(1 << 30)
        return len(self.got) == len(self.data) and (self.sink.eof or not self.close)
