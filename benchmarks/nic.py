"""What the NIC costs: a super-segment down and up, and a stream between two nodes in one process.

python -m benchmarks.nic [--megabytes 200] [--json FILE]

Everything runs on one core, without sockets: the wire is memory. A stream's rate is for both of its ends together.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import harness
from softnic.bench import inputs
from softnic.link.memory import MemoryNetwork
from softnic.link.null import NullLink
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.nic.flows import DetachedFlow
from softnic.nic.nic import Nic
from softnic.nic.node import Node
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import PLAIN, Segment, Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener

A, B = 0x0A4D0001, 0x0A4D0002
TOS = 0x28
SIZES = (64, 1448, 65_536, 262_144)
CODECS = (None, "raw", "inceptionn:10", "bounded:10")


@dataclass
class SegmentCost:
    codec: str = column("codec")
    size: int = column("bytes")
    frames: int = column("frames")
    wire_bytes: int = column("on the wire")
    transmit_us: float = column("down us", ".1f")
    receive_us: float = column("up us", ".1f")


@dataclass
class StreamRate:
    codec: str = column("codec")
    mtu: int = column("MTU")
    mb_per_s: float = column("MB/s", ".0f")
    frames: int = column("frames")


class Wire(NullLink):
    """Keeps what was sent last, and gives it back as often as it is asked."""

    last: Frames | None = None

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self.last = frames

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return self.last


def gradient(count: int) -> memoryview:
    """Floats as gradients are, as bytes."""
    return memoryview(inputs.floats("gaussian:0.01", count).tobytes())


def median_us(call: Callable[[], object], calls: int) -> float:
    """Of seven rounds of so many calls."""

    def round_() -> None:
        for _ in range(calls):
            call()

    return timing.median(timing.alternate({"": round_}, 7, 0, timing.ONE_CORE)[""]) / calls * 1e6


def connected_nics() -> tuple[Nic, Nic]:
    """Two NICs on one wire that have agreed to compress."""
    wire = Wire()
    a, b = Nic(wire, mac_of(A), A), Nic(wire, mac_of(B), B)
    b.lookup = {(A, 4000, 80): DetachedFlow(a.codecs)}.get
    return a, b


def received(nic: Nic) -> list[Segment | bytes]:
    """Receive what has arrived, run by run, without a turn."""
    frames = nic.link.receive(0.0)
    runs = 0 if frames is None else nic.rx.parse(frames)
    return [item for index in range(runs) for item in nic.receive_run(index, loopback=False)]


def segment_cost(codec: str | None, size: int) -> SegmentCost:
    a, b = connected_nics()
    payload = gradient(size // 4)[:size]
    tos = 0 if codec is None else TOS
    flow = DetachedFlow(b.codecs)
    segment = Segment(
        *(A, B, 4000, 80, 100, 500, 0x18, 512, tos), timestamps=(5, 6), payload=payload, flow=flow, codec=codec
    )
    calls = max(50, 2000 // (1 + size // 4096))
    transmit_us = median_us(lambda: a.transmit(segment, b.mac, 1000, 0.0), calls)
    sent = a.transmit(segment, b.mac, 1000, 0.0)
    receive_us = median_us(lambda: received(b), calls)
    return SegmentCost(codec or "-", size, sent.frames, sent.wire_bytes, transmit_us, receive_us)


class Stream:
    """Writes as much as fits and reads all there is, without looking at it."""

    def __init__(self, connection: Connection, listener: Listener, total: int) -> None:
        self.left_to_write = self.left_to_read = total
        self._connection = connection
        self._listener = listener
        self._accepted: Connection | None = None
        self._data = gradient(1 << 20)

    def advance(self, now: float) -> None:  # noqa: ARG002
        while self.left_to_write and (space := self._connection.write_space()):
            count = min(len(space), self.left_to_write, len(self._data))
            space[:count] = self._data[:count]
            self._connection.wrote(count)
            self.left_to_write -= count
        self._accepted = self._accepted or self._listener.accept()
        if self._accepted is not None and (count := self._accepted.rcv.unread):
            self._accepted.consume(count)
            self.left_to_read -= count

    def next_time(self) -> float | None:
        return None


def stream_rate(codec: str | None, mtu: int, total: int) -> StreamRate:
    network = MemoryNetwork()
    a, b = (Node(ip, network.port(mtu=mtu), rng=random.Random(ip)) for ip in (A, B))
    listener = b.host.listen(0, 80, 5, 0.0)
    connection = a.host.connect(B, 80, 0.0)
    connection.tag(PLAIN if codec is None else Tag(TOS, codec))
    stream = Stream(connection, listener, total)
    before = timing.own_cpu_s()
    VirtualClock().run([stream, a, b], lambda: not stream.left_to_read)
    used = max(timing.own_cpu_s() - before, timing.TICK_S)
    return StreamRate(codec or "-", mtu, total / used / 1e6, a.nic.counters.tx_frames)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=200, help="length of a stream (200)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    settings = {"megabytes": given.megabytes}
    segments = (segment_cost(codec, size) for codec in CODECS for size in SIZES)
    costs = as_measured(segments, columns(SegmentCost), progress)
    streams = (stream_rate(codec, mtu, given.megabytes * 10**6) for codec in CODECS for mtu in (1500, 9000))
    rates = as_measured(streams, columns(StreamRate), progress)
    return [
        MeasurementReport(
            "benchmarks.nic: segments", "One super-segment down and up the NIC", columns(SegmentCost), costs, settings
        ),
        MeasurementReport(
            "benchmarks.nic: streams", "Both ends of a stream, in one process", columns(StreamRate), rates, settings
        ),
    ]


if __name__ == "__main__":
    sys.exit(harness.main("nic", __doc__, measured, add_options))
