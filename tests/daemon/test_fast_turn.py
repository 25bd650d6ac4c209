"""Turns in C do what Python's turns do: the same numbers in every flow, over real sockets, on a clock of the test."""

from __future__ import annotations

import array
import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.facades.daemon import (
    AT_ONCE,
    Config,
    Daemon,
    Selector,
    break_continuation,
    cut_only,
    fast_turn_of,
    poller_of,
    reply_to,
    restart_numbers,
    segments_in_c,
    wire_of,
)
from tests.facades.flow_state import differences, state_of
from tests.facades.ipc import control
from tests.facades.link import VxlanLink

IPS = ("10.77.0.1", "10.77.0.2")
PORT = 7000
TURN_S = 1e-3
TOS = 0x28
ELSEWHERE = ("rcv.received", "rcv._chunk", "snd.buffer._memory", "snd.buffer.memory_size", "nic.", "readable_notified")
"""Fields that say where bytes are kept, or that only Python's turns use."""
Mode = Literal["whole", "steps", "cuts", "python"]
"""Turns in C; turns of Python with the steps of C; the same for a link that is not the plain wire; Python alone."""
OFF = ("fast_path", "rcv._chunk_used")


class _Daemon(Daemon):
    time = 1000.0

    def now(self) -> float:
        return self.time


class WiredNics:
    """Two NICs, wired to each other, with one connection."""

    def __init__(self, directory: Path, mode: Mode, rate: str | None = None) -> None:
        self._rate = rate
        self._whole = mode == "whole"
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.daemons = [self._daemon(directory, index, mode) for index in range(2)]
        for index, daemon in enumerate(self.daemons):
            other = wire_of(self.daemons[1 - index])
            assert isinstance(other, VxlanLink)
            daemon.add_peer(self.daemons[1 - index].config.address, other.address)
            restart_numbers(daemon)
        self.ends: list[socket.socket] = []
        self.read = [bytearray(), bytearray()]
        self.streams = self._connect()

    def _daemon(self, directory: Path, index: int, mode: Mode) -> _Daemon:
        control_at = str(directory / f"{index}{mode}")
        config = Config(
            ip=IPS[index], control=control_at, seed=index, wire="127.0.0.1:0", offloads={hex(TOS): "bounded:10"},
            fast_path=mode != "python", emulation={"rate": self._rate} if self._rate else {},
        )  # fmt: skip
        selector = Selector()
        self.loops.append(asyncio.SelectorEventLoop(selector))
        daemon = _Daemon(config, self.loops[-1], selector)
        if mode == "cuts":
            cut_only(daemon)
        return daemon

    def close(self) -> None:
        for end in self.ends:
            end.close()
        for daemon, loop in zip(self.daemons, self.loops, strict=True):
            daemon.close()
            loop.close()

    def turn(self, count: int = 1) -> None:
        """Take turns of both NICs by turns, each until nothing is left to do."""
        for _ in range(count):
            for daemon in (*self.daemons, *self.daemons):
                self._turn(daemon)
            for daemon in self.daemons:
                daemon.time += TURN_S

    def _turn(self, daemon: _Daemon) -> None:
        fast, poller = fast_turn_of(daemon), poller_of(daemon)
        for _ in range(50):
            events, due = poller.poll(0), AT_ONCE
            if fast is not None and self._whole and fast.can_run:
                left, due = fast.step(events)
                if not left and due > daemon.time:
                    if not events:
                        return
                    continue
                events = left
            if daemon.turn(events) > daemon.time and not poller.poll(0):
                return

    def _call(self, index: int, request: control.Request, fd: int | None = None) -> control.Reply:
        reply = reply_to(self.daemons[index], control.encode(request), fd, self)
        assert not isinstance(reply, control.Failed), reply.message
        return reply

    def _end(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.ends.append(ours)
        return theirs.detach()

    def _connect(self) -> tuple[int, int]:
        bound = self._call(1, control.Bind("0.0.0.0", PORT), self._end())
        assert isinstance(bound, control.Opened)
        self._call(1, control.Listen(bound.stream, 5))
        opened = self._call(0, control.Connect(IPS[1], PORT), self._end())
        assert isinstance(opened, control.Opened)
        self.turn(20)
        listening = self.ends[0]
        record, rights, _, _ = listening.recvmsg(control.ACCEPTED.size, socket.CMSG_LEN(4))
        accepted = socket.socket(fileno=array.array("i", rights[0][2])[0])
        accepted.setblocking(False)
        assert accepted.recv(1) == control.ACCEPT_MARK
        self.ends.append(accepted)
        self.turn(5)
        return opened.stream, control.ACCEPTED.unpack(record)[0]

    # What applications do

    def write(self, index: int, data: bytes) -> int:
        """Write as much as the stream takes."""
        with contextlib.suppress(BlockingIOError):
            return self.ends[1 + index].send(data)
        return 0

    def receive(self, index: int, most: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self.read[index] += self.ends[1 + index].recv(most)

    def option(self, index: int, level: int, name: int, value: int | str) -> None:
        self._call(index, control.SetOption(self.streams[index], level, name, value))

    def states(self) -> list[dict[str, str | int | None]]:
        """Return the fields of both ends of the connection."""
        found = []
        for daemon in self.daemons:
            flows = [state_of(flow) for flow in daemon.host.tcp.connections]
            found += [{path: value for path, value in flow.items() if not _is_elsewhere(path)} for flow in flows]
        return found

    def counters(self, index: int) -> dict[str, int]:
        counters = self.daemons[index].counters()
        return {name: value for name, value in counters.items() if not name.startswith(("fast_path", "requests"))}


def _is_elsewhere(path: str) -> bool:
    return path.startswith(ELSEWHERE) or path in OFF


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[Callable[..., tuple[WiredNics, WiredNics]]]:
    """Make two pairs, one with turns in C of a mode and one with turns in Python alone."""
    made: list[WiredNics] = []

    def make(mode: Mode = "whole", rate: str | None = None) -> tuple[WiredNics, WiredNics]:
        made.extend((WiredNics(tmp_path, mode, rate), WiredNics(tmp_path, "python", rate)))
        return made[0], made[1]

    yield make
    for pair in made:
        pair.close()


def both(pairs: tuple[WiredNics, WiredNics], action: Callable[..., object], *args: object) -> None:
    """Do the same in both, and compare."""
    results = [action(pair, *args) for pair in pairs]
    assert results[0] == results[1]
    assert pairs[0].read == pairs[1].read
    for fast, slow in zip(pairs[0].states(), pairs[1].states(), strict=True):
        assert differences(fast, slow) == []


def each(pairs: tuple[WiredNics, WiredNics], action: Callable[..., object], *args: object) -> None:
    """Do the same in both."""
    for pair in pairs:
        action(pair, *args)


def floats(rng: random.Random, count: int) -> bytes:
    return struct.pack(f"{count}f", *(rng.gauss(0, 0.01) for _ in range(count)))


def talk(two: tuple[WiredNics, WiredNics], do: Callable[..., None], rng: random.Random) -> list[int]:
    """Have the applications of both write, read and tag at random. Return how many bytes each side wrote."""
    written = [0, 0]
    for _ in range(120):
        side, choice = rng.randrange(2), rng.random()
        if choice < 0.45:
            data = floats(rng, rng.choice((1, 16, 1000, 30_000)))
            counts = [pair.write(side, data) for pair in two]
            if counts[0] != counts[1]:
                each(two, WiredNics.turn, 400)
                counts = [count + pair.write(side, data[count:]) for pair, count in zip(two, counts, strict=True)]
            assert counts[0] == counts[1]
            written[side] += counts[0]
        elif choice < 0.8:
            do(two, WiredNics.receive, side, rng.choice((64, 5000, 1 << 20)))
        elif choice < 0.83 and written[side] % 4 == 0:
            do(two, WiredNics.option, side, socket.IPPROTO_IP, socket.IP_TOS, rng.choice((0, TOS)))
        do(two, WiredNics.turn, rng.choice((1, 1, 3, 60)))
    return written


@pytest.mark.parametrize("mode", ["whole", "steps", "cuts"])
@pytest.mark.parametrize("seed", range(6))
def test_turns_in_c_leave_the_same_flows(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], seed: int, mode: Mode
) -> None:
    two = pairs(mode)
    written = talk(two, both, random.Random(seed))
    for _ in range(60):
        for side in range(2):
            both(two, WiredNics.receive, side, 1 << 20)
        both(two, WiredNics.turn, 3)
    assert [len(two[0].read[1 - side]) for side in range(2)] == written
    assert all(segments_in_c(daemon) > 10 for daemon in two[0].daemons)
    assert two[0].counters(0) == two[1].counters(0)
    assert two[0].counters(1) == two[1].counters(1)


@pytest.mark.parametrize("mode", ["whole", "steps"])
@pytest.mark.parametrize("seed", range(4))
def test_turns_through_an_emulated_link_lose_nothing(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], seed: int, mode: Mode
) -> None:
    """A turn that C hands to Python asks the link for space again, so super-segments may end elsewhere."""
    two = pairs(mode, "50mbit")
    written = talk(two, each, random.Random(seed))
    for _ in range(150):
        for side in range(2):
            each(two, WiredNics.receive, side, 1 << 20)
        each(two, WiredNics.turn, 3)
    assert [len(two[0].read[1 - side]) for side in range(2)] == written
    assert two[0].read == two[1].read
    assert all(segments_in_c(daemon) > 10 for daemon in two[0].daemons)
    for pair in two:
        for index in range(2):
            counters = pair.counters(index)
            assert counters["emulated_dropped_full"] == counters["link_dropped_full"] == 0
            assert counters["emulated_sent"] == counters["link_sent_frames"]


def test_an_application_that_closes_its_end_ends_the_stream(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        pair.write(0, bytes(100_000))
    both(two, WiredNics.turn, 5)
    for pair in two:
        pair.ends[1].close()
    both(two, WiredNics.turn, 5)
    for _ in range(3):
        both(two, WiredNics.receive, 1, 1 << 20)
        both(two, WiredNics.turn, 5)
    assert len(two[0].read[1]) == 100_000


def test_a_slow_reader_sees_the_end_behind_the_last_byte(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        for _ in range(20):
            pair.write(0, bytes(100_000))
            pair.turn()
        pair.ends[1].shutdown(socket.SHUT_WR)
        pair.turn(20)
    assert two[0].states()[1]["rcv.eof"]
    for pair in two:
        for _ in range(200):
            pair.receive(1, 1 << 20)
            pair.turn()
        assert pair.ends[2].recv(1) == b""
    assert len(two[0].read[1]) == len(two[1].read[1]) > 500_000


def test_a_reader_that_is_gone_resets_the_connection(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    for pair in two:
        pair.write(0, bytes(100_000))
        pair.turn(2)
        pair.ends[2].close()
    both(two, WiredNics.turn, 5)
    for pair in two:
        with contextlib.suppress(ConnectionError):
            pair.write(0, bytes(1000))
    both(two, WiredNics.turn, 10)


def test_an_error_between_two_turns_ends_nothing(
    pairs: Callable[..., tuple[WiredNics, WiredNics]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs()[0]
    with monkeypatch.context() as broken:
        break_continuation(broken)
        for _ in range(5):
            pair.write(0, bytes(50_000))
            pair.turn(2)
            pair.receive(1, 1 << 20)
    for _ in range(20):
        pair.turn(2)
        pair.receive(1, 1 << 20)
    assert len(pair.read[1]) == 250_000
    assert sum(pair.daemons[index].counters()["failures"] for index in range(2)) > 0


def test_strangers_and_malformed_datagrams_are_counted(pairs: Callable[..., tuple[WiredNics, WiredNics]]) -> None:
    two = pairs()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for pair in two:
            wire = wire_of(pair.daemons[1])
            assert isinstance(wire, VxlanLink)
            stranger.sendto(b"nothing of ours", wire.address)
            pair.write(0, bytes(5000))
            pair.turn(3)
            pair.receive(1, 1 << 20)
    for pair in two:
        assert pair.counters(1)["link_dropped_unknown_source"] == 1
        assert len(pair.read[1]) == 5000
