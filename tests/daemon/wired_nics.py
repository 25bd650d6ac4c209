"""Two NICs over real sockets, on a clock of the test, whose turns are taken by turns."""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from softnic._native import lib
from softnic.ipc import control
from softnic.link.udp import VxlanLink
from softnicd.config import Config
from softnicd.daemon import Daemon
from softnicd.selector import Selector
from tests.nic.asked import count_calls
from tests.tcp.flow_state import state_of

IPS = ("10.77.0.1", "10.77.0.2")
PORT = 7000
TURN_S = 1e-3
TOS = 0x28
ELSEWHERE = ("rcv.buffer", "rcv.received", "snd.buffer._memory", "snd.buffer.memory_size", "nic.", "readable_notified")
"""Fields that say where bytes are kept."""
Mode = Literal["whole", "link", "python"]
"""Frames go from C to the kernel; they pass the link in Python; and TCP's decisions in Python take every segment."""
OFF = ("fast_path",)


class _Daemon(Daemon):
    time = 1000.0

    def now(self) -> float:
        return self.time


class WiredNics:
    """Two NICs, wired to each other, with one connection at first; `loopback`: of the first one to itself. `key`
    encrypts the wire."""

    def __init__(
        self,
        directory: Path,
        mode: Mode,
        emulation: Mapping[str, str] | None = None,
        *,
        loopback: bool = False,
        key: str = "",
    ) -> None:
        self._emulation, self._key = dict(emulation or {}), key
        self._nic_of = (0, 0) if loopback else (0, 1)
        """By side of the connection."""
        self.asked: Counter[str] = Counter()
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.daemons = [self._daemon(directory, index, mode) for index in range(2)]
        for index, daemon in enumerate(self.daemons):
            other = self.daemons[1 - index]._wire
            assert isinstance(other, VxlanLink)
            daemon.add_peer(self.daemons[1 - index].config.address, other.address)
            daemon.first.streams.table.numbers, daemon.regions._last = itertools.count(1), 0
        self.ends: list[socket.socket] = []
        self.read = [bytearray(), bytearray()]
        self.turns = 0
        self.streams = self.connect()

    @property
    def attended(self) -> int:
        """The number of turns in which Python served ports and collectives."""
        return self.asked["on_attend"]

    def _daemon(self, directory: Path, index: int, mode: Mode) -> _Daemon:
        control_at = str(directory / f"{index}{mode}")
        config = Config(
            ip=IPS[index], control=control_at, seed=index, wire="127.0.0.1:0", offloads={hex(TOS): "bounded:10"},
            emulation=self._emulation, key=self._key,
        )  # fmt: skip
        selector = Selector()
        self.loops.append(asyncio.SelectorEventLoop(selector))
        daemon = _Daemon(config, self.loops[-1], selector)
        tcp, turn = daemon.first.host.tcp, daemon.first.turn
        tcp.config = replace(tcp.config, fast_path=mode != "python")
        turn._direct = mode == "whole"
        turn.settle()
        count_calls(turn, self.asked, "on_attend")
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
        for _ in range(50):
            events = daemon._selector.epoll.poll(0)
            self._turn_with(daemon, events)
            if not events and lib.sn_turn_due(daemon.first.turn.c) > daemon.time:
                return

    def _turn_with(self, daemon: _Daemon, events: list[tuple[int, int]]) -> None:
        turn = daemon.first.turn
        for index, (fd, mask) in enumerate(events):
            turn.c.fds[index], turn.c.masks[index] = fd, mask
        turn.c.event_count = len(events)
        self.turns += 1
        turn.settle()
        lib.sn_turn_step(turn.c, daemon.time)
        left = [(turn.c.fds[index], turn.c.masks[index]) for index in range(turn.c.event_count)]
        turn.c.event_count = 0
        if left or turn.c.failed or turn.c.timers_at <= daemon.time:
            daemon.turn(left)

    def turn_with(self, index: int, events: list[tuple[int, int]]) -> None:
        """Take a turn of a NIC with these events."""
        self._turn_with(self.daemons[index], events)

    def call(self, side: int, request: control.Request, fd: int | None = None) -> control.Reply:
        reply = self.daemons[self._nic_of[side]].server._reply(memoryview(control.encode(request)), fd, 0, self)
        assert not isinstance(reply, control.Failed), reply.message
        return reply

    def _end(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.ends.append(ours)
        return theirs.detach()

    def connect(self, port: int = PORT) -> tuple[int, int]:
        """Connect the first side to the second one. Returns the numbers of the streams."""
        first = len(self.ends)
        bound = self.call(1, control.Bind("0.0.0.0", port), self._end())
        assert isinstance(bound, control.Opened)
        self.call(1, control.Listen(bound.stream, 5))
        opened = self.call(0, control.Connect(IPS[self._nic_of[1]], port), self._end())
        assert isinstance(opened, control.Opened)
        self.turn(20)
        listening = self.ends[first]
        _, rights, _, _ = listening.recvmsg(len(control.ACCEPT_MARK), socket.CMSG_LEN(4))
        accepted = socket.socket(fileno=array.array("i", rights[0][2])[0])
        accepted.setblocking(False)
        record = accepted.recv(control.ACCEPTED.size)
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
        self.call(index, control.SetOption(self.streams[index], level, name, value))

    def states(self) -> list[dict[str, str | int | None]]:
        """Return the fields of both ends of the connection."""
        found = []
        for daemon in self.daemons:
            flows = [state_of(flow) for flow in daemon.first.host.tcp.connections]
            found += [{path: value for path, value in flow.items() if not _is_elsewhere(path)} for flow in flows]
        return found

    def counters(self, index: int) -> dict[str, int]:
        counters = self.daemons[index].counters()
        return {name: value for name, value in counters.items() if not name.startswith(("fast_path", "requests"))}


def _is_elsewhere(path: str) -> bool:
    return path.startswith(ELSEWHERE) or path in OFF
