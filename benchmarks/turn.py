"""What a segment costs in turns in C: CPU microseconds at both ends, without system calls.

python -m benchmarks.turn [--segments 400] [--rounds 9] [--json FILE]

Two NICs in one process, on a clock of the benchmark. A block of a collective crosses one connection, so that no program
reads or writes; frames are copied from one NIC's memory to the other's instead of being sent. Sent: what to send is
decided, its frames are encoded and cut. Taken: the frames are checked, the segment is processed, its bytes are put in
their place. A NIC sleeps until something arrives, so its turns begin with cold caches: "slept" is a turn after 0.5 ms
in epoll, as at 1 Gbit/s, "evicted" one after 8 MiB of other memory were written. The frames of a turn are copied after
that, as the kernel does. Medians; rounds of the states alternate. Copy: of the segment's bytes; empty call: of a
function of C from here, which each figure includes, "taken" twice.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import select
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from softnic._native import ffi, lib
from softnic.ipc import work_queue
from softnic.ipc.work_queue import WorkRequest
from softnic.link.udp import VxlanLink
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.tcp.connection import Connection
from softnic.tcp.flow import NEVER
from softnicd.config import Config
from softnicd.daemon import Daemon
from softnicd.selector import Selector
from softnicd.streams import Stream
from softnicd.turn import NicTurn

IPS = ("10.77.0.1", "10.77.0.2")
PORT, TURN_S, WARM_UP = 7000, 50e-6, 200
CODECS = ("", "bounded:10")
SIZES = (1, 12, 90)
"""Frames of a segment."""
EVICTED_BYTES = 8 << 20
SLEEP_NS = 500_000
KINDS = ("send_data", "take_data", "send_ack", "take_ack", "call")
STATES = ("hot", "slept", "evicted")


@dataclass(frozen=True)
class SegmentRow:
    """Microseconds of CPU."""

    codec: str = column("floats")
    kbytes: float = column("KB a segment", ".1f")
    frames: float = column("frames", ".0f")
    caches: str = column("caches")
    send_data: float = column("sent", ".2f")
    take_data: float = column("taken", ".2f")
    send_ack: float = column("ACK sent", ".2f")
    take_ack: float = column("taken", ".2f")
    turn: float = column("a turn, both ends", ".2f")
    of_hot: float = column("of hot", ".2f")
    call: float = column("empty call", ".2f")
    copy: float = column("copy", ".2f")


class _Daemon(Daemon):
    time = 1000.0

    def now(self) -> float:
        return self.time


class Pair:
    """Two NICs with a communicator of two ranks."""

    def __init__(self, directory: str) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.programs: list[socket.socket] = []
        """The other ends of streams, which stay open."""
        self.daemons = [self._daemon(Path(directory), index) for index in range(2)]
        for index, daemon in enumerate(self.daemons):
            other = self.daemons[1 - index]
            wire = other._wire
            assert isinstance(wire, VxlanLink)
            daemon.add_peer(other.config.address, wire.address)
        control, data = self._connect(PORT), self._connect(PORT + 1)
        self.data = data
        self.queues = [self._join(rank, control[rank], data[rank]) for rank in range(2)]

    def _daemon(self, directory: Path, index: int) -> _Daemon:
        config = Config(ip=IPS[index], control=str(directory / str(index)), seed=index, wire="127.0.0.1:0")
        selector = Selector()
        self.loops.append(asyncio.SelectorEventLoop(selector))
        return _Daemon(config, self.loops[-1], selector)

    def close(self) -> None:
        for end in (*self.queues, *self.programs):
            end.close()
        self.turns(5)  # the communicators end
        for daemon, loop in zip(self.daemons, self.loops, strict=True):
            daemon.close()
            loop.close()

    def turns(self, count: int) -> None:
        """Take turns of both NICs in Python, over their sockets."""
        for _ in range(count):
            for daemon in self.daemons:
                daemon.turn(daemon._selector.epoll.poll(0))
                daemon.time += TURN_S

    def _connect(self, port: int) -> list[Stream]:
        first, second = self.daemons
        listener = second.first.host.listen(0, port, 5, second.time)
        ends = [first.first.host.connect(second.config.address, port, first.time)]
        while not listener.queue:
            self.turns(1)
        accepted = listener.accept()
        assert accepted is not None
        ends.append(accepted)
        return [self._stream(daemon, end) for daemon, end in zip(self.daemons, ends, strict=True)]

    def _stream(self, daemon: _Daemon, connection: Connection) -> Stream:
        ours, theirs = socket.socketpair()
        self.programs.append(theirs)
        stream = daemon.first.streams.table.add(ours.detach())
        daemon.first.streams.table.attach(stream, connection)
        return stream

    def _join(self, rank: int, control: Stream, data: Stream) -> socket.socket:
        """Have a NIC execute collectives. Returns the process' end of the work queue."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        streams: list[list[Stream | None]] = [[control], [data]]
        for side in streams:
            side.insert(rank, None)
        self.daemons[rank].first.streams.join(theirs.detach(), rank, streams)
        return ours

    def of(self, index: int) -> NicTurn:
        return self.daemons[index].first.turn

    def post(self, number: int, codec: str, nbytes: int, staged: bool) -> None:
        """Have the second rank receive a block from the first one; `staged`: `release` says when."""
        words = nbytes // 4
        for rank, daemon in enumerate(self.daemons):
            fd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 4 * words)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            region = daemon.regions.add(fd, self), 0
            os.close(fd)
            memory = daemon.regions.get(region[0])
            assert memory is not None
            values = np.random.default_rng(0).normal(0, 0.01, words) if rank == 0 else np.zeros(words)
            np.frombuffer(memory, np.float32)[:] = values  # so that no page is touched for the first time later
            fields = ("Ibcast", "bcast", "ring", "float32", (words,), region, region)
            request = WorkRequest(number, *fields, root=0, codec=codec, staged=staged)
            self.queues[rank].send(work_queue.encode(request))
        self.turns(40)

    def release(self) -> None:
        """Hand what the first rank sends to its stream, as far as it takes that."""
        stream = self.data[0]
        connection = stream.connection
        assert connection is not None
        steps = connection.steps
        if steps.outgoing == ffi.NULL:
            return
        source = steps.outgoing.source
        if source.kind == lib.SN_STEP_ROUND:
            source = source.before
        source.ready = source.size
        if lib.sn_step_queue_send(steps) & lib.SN_QUEUE_WAKE:
            connection.tcp.wake(connection)


class Times:
    """Seconds of calls, by kind; `before` precedes each turn."""

    def __init__(self, before: Callable[[], object] | None) -> None:
        self._before = before
        self.spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.sizes: list[tuple[int, int]] = []

    def begin(self, turn: Any) -> None:
        """Begin a turn of one end."""
        if self._before is not None:
            self._before()
        self.call("call", lib.sn_schedule_next, turn.schedule)

    def call(self, kind: str, function: Callable[..., Any], *args: Any) -> Any:
        began = perf_counter()
        result = function(*args)
        self.spent[kind].append(perf_counter() - began)
        return result


def carry(sender: Any, receiver: Any) -> None:
    """Copy the frames of the latest cut into the receiver's memory."""
    tx, rx = sender.tx, receiver.rx
    count = tx.result.frames
    end = tx.offsets[count - 1] + tx.lengths[count - 1]
    ffi.memmove(rx.data, tx.data, end)
    ffi.memmove(rx.offsets, tx.offsets, 4 * count)
    ffi.memmove(rx.lengths, tx.lengths, 4 * count)
    batch = receiver.batch
    batch.data, batch.size, batch.is_looped = rx.data, rx.size, False
    batch.offsets, batch.lengths = rx.offsets, rx.lengths


def turn(pair: Pair, index: int, space: int, times: Times) -> None:
    """Take the turn of one end: it takes what the other end has sent, and sends up to `space` bytes of frames."""
    ours, theirs = pair.of(index).c, pair.of(1 - index).c
    sends, takes = ("send_ack", "take_data") if index else ("send_data", "take_ack")
    now = pair.daemons[index].time
    times.begin(ours)
    if theirs.tx.result.frames:
        carry(theirs, ours)
        times.call(takes, lib.sn_turn_take_batch, ours, theirs.tx.result.frames, now)
        theirs.tx.result.frames = 0
    if not ours.schedule.ready.first:
        return
    times.call(sends, lib.sn_turn_serve, ours, ffi.addressof(ours.schedule[0], "ready"), space, now)
    if not ours.tx.result.frames:
        times.spent[sends].pop()
    elif not index:
        times.sizes.append((ours.tx.result.consumed, ours.tx.result.frames))


def round_trip(pair: Pair, frames: int, times: Times) -> None:
    """One turn of each end: a segment, and its acknowledgement."""
    pair.release()
    turn(pair, 0, frames * 1500 - 1, times)
    turn(pair, 1, 1 << 16, times)
    for daemon in pair.daemons:
        daemon.time += TURN_S


def measure(codec: str, frames: int, segments: int, before: Callable[[], object] | None) -> Times:
    """Send segments of about this many frames."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        pair = Pair(directory)
        stack.callback(pair.close)
        pair.post(1, codec, 1 << 20, False)  # the NICs learn the path and choose the codec
        pair.post(2, codec, (segments + 2 * WARM_UP) * frames * 1448 * (6 if codec else 1), True)
        for index, stream in enumerate(pair.data):
            assert stream.connection is not None
            stream.connection.receive_tuning.round_ends = NEVER  # Python makes buffers grow
            pair.of(index).c.wire = -1  # frames stay where they were cut
            pair.of(index).c.tx.result.frames = 0
        for _ in range(WARM_UP):
            round_trip(pair, frames, Times(None))
        times = Times(before)
        for _ in range(segments):
            round_trip(pair, frames, times)
        return times


@contextmanager
def preparations() -> Iterator[dict[str, Callable[[], object] | None]]:
    """Yield what precedes a turn in each state."""
    memory = np.zeros(EVICTED_BYTES // 8)
    fds, masks = ffi.new("int32_t[1]"), ffi.new("uint32_t[1]")
    with select.epoll() as epoll:
        yield {
            "hot": None,
            "slept": lambda: lib.sn_epoll_wait(epoll.fileno(), SLEEP_NS, fds, masks, 1),
            "evicted": lambda: np.add(memory, 1, out=memory),
        }


def copy_us(nbytes: int) -> float:
    """Return how long a copy takes."""
    source, target = np.ones(nbytes, np.uint8), np.empty(nbytes, np.uint8)
    copies = []
    for _ in range(101):
        began = perf_counter()
        np.copyto(target, source)
        copies.append(perf_counter() - began)
    return median(copies) * 1e6


def rows(codec: str, frames: int, given: argparse.Namespace) -> list[SegmentRow]:
    """Measure segments of about this many frames in every state."""
    found: dict[str, dict[str, list[float]]] = {state: {kind: [] for kind in KINDS} for state in STATES}
    sizes: list[tuple[int, int]] = []
    with preparations() as before:
        for _ in range(given.rounds):
            for state in STATES:
                times = measure(codec, frames, given.segments, before[state])
                sizes += times.sizes
                for kind, spent in times.spent.items():
                    found[state][kind].append(median(spent) * 1e6 if spent else 0.0)
    nbytes, count = int(median(size for size, _ in sizes)), median(count for _, count in sizes)
    us = {state: {kind: median(values) for kind, values in found[state].items()} for state in STATES}
    turns = {state: sum(value for kind, value in us[state].items() if kind != "call") for state in STATES}
    return [
        SegmentRow(
            codec or "untagged", nbytes / 1000, count, state, **us[state],
            turn=turns[state], of_hot=turns[state] / turns["hot"], copy=copy_us(nbytes),
        )
        for state in STATES
    ]  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--segments", type=int, default=400, help="in each round (400)")
    harness.add_rounds(parser, 9)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[SegmentRow]]:
    results = []
    for codec in CODECS:
        for frames in SIZES:
            progress(f"{codec or 'untagged'}, {frames} frames")
            results += as_measured(rows(codec, frames, given), columns(SegmentRow), progress)
    settings = {"segments": given.segments, "rounds": given.rounds}
    return [
        MeasurementReport(
            "benchmarks.turn", "Turns in C, two ends in one process", columns(SegmentRow), results, settings
        )
    ]


if __name__ == "__main__":
    sys.exit(harness.main("turn", __doc__, measured, add_options))
