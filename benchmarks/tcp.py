"""What TCP alone costs: CPU microseconds of a segment and of an acknowledgement, at both ends.

python -m benchmarks.tcp [--turns 2000] [--rounds 15] [--json FILE]

Two stacks in one process and virtual time, with no NIC or link: a segment is handed over as it is, some turns later,
in the form in which a NIC passes and takes it.
Every round is the same again, and of each single time the quickest counts, so that what else the machine does matters
little.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from softnic._native import ffi
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.packet.ethernet import mac_of
from softnic.packet.segment import Segment, Transmitted
from softnic.tcp.connection import Connection
from softnic.tcp.fast_path import segment_of
from softnic.tcp.flow import Flow
from softnic.tcp.host import Host

A, B = 0x0A4D0001, 0x0A4D0002
KINDS = ("send_data", "take_data", "send_ack", "take_ack", "timers")
MSS = 1448
HEADERS = 66
Times = dict[str, npt.NDArray[np.float64]]
WARM_UP = 400
"""Turns before those that are measured."""


@dataclass(frozen=True)
class Pattern:
    """What is said over a connection, in turns of virtual time."""

    name: str
    forth: int
    """Bytes that A writes each turn, as far as there is space."""
    back: int = 0
    """That B writes each turn, or as its answer to each `forth`."""
    answers: bool = False
    """B speaks when it has heard, and A only when it was answered."""
    turn_s: float = 50e-6
    delay: int = 4
    """Turns that a segment is on its way."""
    lost: float = 0.0
    """Share of A's segments from which a frame is lost."""
    congestion: str = "cubic"
    """A's congestion control algorithm."""


PATTERNS = (
    Pattern("stream", 128 << 10),
    Pattern("stream, paced", 128 << 10, turn_s=0.002),
    Pattern("stream, 1 in 50 loses a frame", 128 << 10, lost=0.02),
    Pattern("stream, BBR", 128 << 10, congestion="bbr"),
    Pattern("both ways", 128 << 10, 128 << 10),
    Pattern("question and answer", 64, 64, answers=True, delay=1),
)


@dataclass
class Cost:
    """Microseconds of CPU each; None: that does not happen."""

    pattern: str = column("microseconds of CPU")
    send_data: float | None = column("data sent", ".1f")
    take_data: float | None = column("taken", ".1f")
    send_ack: float | None = column("ACK sent", ".1f")
    take_ack: float | None = column("taken", ".1f")
    timers: float | None = column("timers, a look", ".1f")
    turn: float = column("a turn in all", ".1f")
    """All of a turn, at both ends."""


Output = tuple[Flow, bytes, int, int]
"""Of the fast path: a flow, its `sn_output`, the bytes and the frames sent of it."""


class End:
    """One stack. It stands in for its NIC: what it sends waits in `sent`."""

    def __init__(self, ip: int) -> None:
        self.ip = ip
        self.sent: list[Segment | Output | bytes] = []
        self.room_left = 0
        self.host = Host(ip, mac_of(ip), transmitter=self, send_frame=self._send_frame, rng=Random(ip))

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:  # noqa: ARG002
        taken = min(len(segment.payload), max_frames * MSS)
        if taken < len(segment.payload):
            segment.payload = segment.payload[:taken]
        self.sent.append(segment)
        frames = segment.frames = -(-taken // MSS) or 1
        return Transmitted(taken, frames, taken + HEADERS * frames)

    def transmit_output(self, flow: Flow, out: Any, destination: bytes, now: float) -> Transmitted:  # noqa: ARG002
        taken = min(out.end - out.start, out.frames * MSS)
        frames = -(-taken // MSS) or 1
        self.sent.append((flow, ffi.buffer(out)[:], taken, frames))
        return Transmitted(taken, frames, taken + HEADERS * frames)

    def _send_frame(self, frame: bytes, now: float) -> None:  # noqa: ARG002
        self.sent.append(frame)

    def take_sent(self) -> list[Segment | bytes]:
        """What was sent, as it arrives at the other end."""
        sent, self.sent = self.sent, []
        return [item if isinstance(item, bytes) else _arriving(item) for item in sent]


def _arriving(sent: Segment | Output) -> Segment:
    """A segment as it was sent, without the sender's flow: the receiver looks up its own."""
    if isinstance(sent, Segment):
        return replace(sent, flow=None)
    flow, out, taken, frames = sent
    segment = segment_of(flow, ffi.from_buffer("sn_output *", out))
    return replace(segment, payload=segment.payload[:taken], frames=frames, flow=None)


class Run:
    """A connection from A to B and what is said over it."""

    def __init__(self, pattern: Pattern, seed: int = 1) -> None:
        self.pattern = pattern
        self.now = 0.0
        self.rng = Random(seed)
        self.ends = End(A), End(B)
        self.on_way: deque[tuple[list[Segment | bytes], list[Segment | bytes]]] = deque(
            ([], []) for _ in range(pattern.delay)
        )
        self.spent: dict[str, list[float]] = {name: [] for name in KINDS}
        """Seconds, each time."""
        a, b = self.ends
        listener = b.host.listen(0, 80, 1, 0.0)
        client = a.host.connect(B, 80, 0.0)
        client.set_congestion(pattern.congestion)
        self.connections: list[Connection] = [client]
        while not listener.queue:
            self.turn()
        server = listener.accept()
        assert server is not None
        self.connections.append(server)
        for connection in self.connections:
            connection.set_nodelay(True)
        self._speaks = [True, not pattern.answers]

    def turn(self) -> None:
        """What happens at one instant."""
        self.now += self.pattern.turn_s
        arriving = self.on_way.popleft()
        for index, end in enumerate(self.ends):
            self._take(end, arriving[index])
            if len(self.connections) == len(self.ends):
                self._talk(index)
            self._send(end)
        sent = [end.take_sent() for end in self.ends]
        self.on_way.append((sent[1], self._damaged(sent[0])))

    def _take(self, end: End, arriving: list[Segment | bytes]) -> None:
        host, now = end.host, self.now
        for item in arriving:
            if isinstance(item, bytes):
                host.receive_frame(item, now)
                continue
            kind = "take_data" if item.payload else "take_ack"
            began = perf_counter()
            item.flow = host.tcp.lookup((item.src, item.sport, item.dport))  # as the NIC passes it on
            host.receive_segment(item, now)
            self._spend(kind, began)
        began = perf_counter()
        host.advance(now)
        self._spend("timers", began)

    def _talk(self, index: int) -> None:
        """The program reads all there is and writes its part; what it writes has no content here."""
        pattern, connection = self.pattern, self.connections[index]
        if unread := connection.rcv.unread:
            connection.consume(unread)
            self._speaks[index] = True
        size = pattern.back if index else pattern.forth
        if size and self._speaks[index]:
            connection.wrote(min(size, len(connection.write_space())))
            self._speaks[index] = not pattern.answers
        self.ends[index].host.events.clear()

    def _send(self, end: End) -> None:
        host, sent = end.host, end.sent
        before = len(sent)
        began = perf_counter()
        while host.wants_output():
            host.output(self.now, 1 << 20)
        host.next_time()
        taken = perf_counter() - began
        sizes = [_size(item) for item in sent[before:] if not isinstance(item, bytes)]
        for size in sizes:  # sent in one go: each its part
            self.spent["send_data" if size else "send_ack"].append(taken / len(sizes))

    def _spend(self, kind: str, began: float) -> None:
        self.spent[kind].append(perf_counter() - began)

    def _damaged(self, sent: list[Segment | bytes]) -> list[Segment | bytes]:
        """What arrives of it."""
        if not self.pattern.lost:
            return sent
        arrives: list[Segment | bytes] = []
        for item in sent:
            if isinstance(item, bytes) or not item.payload or self.rng.random() >= self.pattern.lost:
                arrives.append(item)
                continue
            gap = self.rng.randrange(item.frames) * MSS
            for start, stop in ((0, gap), (gap + MSS, len(item.payload))):
                if start < stop:
                    payload = item.payload[start:stop]
                    number = (item.seq + start) & 0xFFFFFFFF
                    arrives.append(replace(item, seq=number, payload=payload, frames=-(-len(payload) // MSS)))
        return arrives


def _size(sent: Segment | Output) -> int:
    return len(sent.payload) if isinstance(sent, Segment) else sent[2]


def spent(pattern: Pattern, turns: int) -> Times:
    """Run one round. Returns the seconds of every call by its kind."""
    run = Run(pattern)
    for _ in range(WARM_UP):
        run.turn()
    run.spent = {name: [] for name in KINDS}
    for _ in range(turns):
        run.turn()
    return {name: np.array(times) for name, times in run.spent.items()}


def cost(pattern: Pattern, turns: int, rounds: Sequence[Times]) -> Cost:
    """Every round is the same again, so of each single time the quickest counts."""
    times = {name: np.min([each[name] for each in rounds], axis=0) for name in KINDS}
    us = {name: float(each.mean()) * 1e6 if len(each) else None for name, each in times.items()}
    turn_us = sum(float(each.sum()) for each in times.values()) / turns * 1e6
    return Cost(pattern.name, us["send_data"], us["take_data"], us["send_ack"], us["take_ack"], us["timers"], turn_us)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=2000, help="of virtual time, in each round (2000)")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds; the quickest counts (15)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Cost]]:
    turns, rounds = given.turns, range(given.rounds)
    measured_costs = (cost(pattern, turns, [spent(pattern, turns) for _ in rounds]) for pattern in PATTERNS)
    costs = as_measured(measured_costs, columns(Cost), progress)
    settings = {"turns": given.turns, "rounds": given.rounds}
    return [MeasurementReport("benchmarks.tcp", "TCP alone, two ends in one process", columns(Cost), costs, settings)]


if __name__ == "__main__":
    sys.exit(harness.main("tcp", __doc__, measured, add_options))
