"""Two NICs over real sockets, on a clock of the test, whose turns are taken by turns."""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Literal

from tests.facades.daemon import (
    AT_ONCE,
    Config,
    Daemon,
    Selector,
    cut_only,
    fast_turn_of,
    poller_of,
    reply_to,
    restart_numbers,
    wire_of,
)
from tests.facades.flow_state import state_of
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
    """Two NICs, wired to each other, with one connection at first; `loopback`: of the first one to itself."""

    def __init__(self, directory: Path, mode: Mode, rate: str | None = None, *, loopback: bool = False) -> None:
        self._rate = rate
        self._nic_of = (0, 0) if loopback else (0, 1)
        """By side of the connection."""
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
        self.turns_in_c = self.turns_in_python = 0
        self.streams = self.connect()

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
                self.turns_in_c += 1
                left, due = fast.step(events)
                if not left and due > daemon.time:
                    if not events:
                        return
                    continue
                events = left
            self.turns_in_python += 1
            if daemon.turn(events) > daemon.time and not poller.poll(0):
                return

    def turn_with(self, index: int, events: list[tuple[int, int]]) -> None:
        """Take a turn of a NIC with these events: in C first, in mode "whole"."""
        daemon = self.daemons[index]
        fast = fast_turn_of(daemon)
        if fast is not None and self._whole and fast.can_run:
            events, _ = fast.step(events)
        daemon.turn(events)

    def call(self, side: int, request: control.Request, fd: int | None = None) -> control.Reply:
        reply = reply_to(self.daemons[self._nic_of[side]], control.encode(request), fd, self)
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
        self.call(index, control.SetOption(self.streams[index], level, name, value))

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
