"""A whole daemon in this process, on a wire that leads nowhere and a clock of its own, for programs that misbehave.

Streams to its own address turn round in its NIC, so both ends of a connection are there. One daemon serves input after
input: `clean` ends what an input began, looks whether anything is left of it, and makes numbers start again.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import gc
import itertools
import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from softnic._native import ffi, lib
from softnic.ipc import control
from softnic.link.forwarding import PeerPath
from softnic.link.memory import MemoryLink, MemoryNetwork
from softnic.link.rate_limited_log import Log
from softnicd import link_setup
from softnicd.config import Config
from softnicd.daemon import Daemon
from softnicd.selector import AT_ONCE, Selector

IP = "10.77.0.1"
REGION = 1 << 16
"""Bytes of a region."""
_TURNS = 6
_TURN_S = 1e-3
_LATER_S = 10_000.0


def unreleased(daemon: Daemon) -> dict[str, int]:
    """Return the number of each kind of resource that a daemon still holds for programs."""
    held = {
        "streams": len(daemon.first.streams.table.streams),
        "streams by fd": len(daemon.first.streams.table.by_fd),
        "lingering streams": len(daemon.first.streams.table._lingering),
        "communicators": int(bool(daemon.first.streams.offloaded)),
        "regions": len(daemon.regions._memory),
        "region bytes": daemon.regions.counters.region_bytes,
        "connections": len(daemon.first.host.tcp.connections),
        "connections with steps": sum(bool(each.steps) for each in daemon.first.host.tcp.connections),
    }
    return {kind: count for kind, count in held.items() if count}


class _Nowhere(MemoryLink):
    """Stands for the wire: frames that leave are gone."""

    def __init__(self, *_: object, mtu: int, **__: object) -> None:
        super().__init__(MemoryNetwork(), mtu, 1 << 30)
        self.readable: bool | None = None
        self.address = ("127.0.0.1", 0)
        self.peer_count = self.path_changes = 0
        self.reached: dict[bytes, PeerPath] = {}
        self.channel = None
        self.encrypts = self.is_waiting = False
        self._eventfd = os.eventfd(0)

    def fileno(self) -> int:
        return self._eventfd

    def sender_macs(self) -> list[int]:
        return []

    def add_peer(self, *_: object) -> None:
        self.peer_count += 1

    def offer(self, *_: object) -> None:
        self.peer_count += 1

    def sorted_peers(self) -> tuple[list[object], object]:
        return [], ffi.NULL

    def take_moved(self) -> tuple[()]:
        """Nobody moves."""
        return ()

    def lend(self, turn: Any) -> None:
        """Give it no wire: what it sends stays where it was cut."""

    def count_batches(self, counts: Any) -> None:
        """Nothing was received, and what was sent is gone."""


def _nowhere(config: Config, say: Log) -> _Nowhere:  # noqa: ARG001
    return _Nowhere(mtu=config.mtu)


class _Broken(logging.Handler):
    """Remembers what the daemon calls a failure of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


class _Daemon(Daemon):
    time = 1000.0

    def now(self) -> float:
        return self.time


class Lab:
    """The daemon, and what programs hold of it."""

    def __init__(self) -> None:
        directory = tempfile.mkdtemp(prefix="softnic-fuzz-")
        config = Config(ip=IP, control=str(Path(directory) / "n"), seed=1, offloads={"0x28": "bounded:10"})
        selector = Selector()
        self._poller = selector.epoll
        with mock.patch.object(link_setup, "open_wire", _nowhere):
            self.daemon = _Daemon(config, asyncio.SelectorEventLoop(selector), selector)
        wire: object = self.daemon._wire
        assert isinstance(wire, _Nowhere), "frames would leave for addresses that the input names"
        Path(config.control).unlink()
        Path(directory).rmdir()
        self._broken = _Broken()
        logging.getLogger("softnicd").addHandler(self._broken)
        self.ends: list[socket.socket] = []
        """The programs' ends of all descriptors that were handed over, in order."""
        gc.collect()  # what tests before this one left closes its descriptors now, not in the middle
        self._idle = _descriptors()
        self._begin()

    def _begin(self) -> None:
        self.daemon.first.streams.table.numbers, self.daemon.regions._last = itertools.count(1), 0

    def turn(self, count: int = 1) -> None:
        """So many, a millisecond each; those in which it would sleep are passed over."""
        end, due = self.daemon.time + count * _TURN_S, AT_ONCE
        while self.daemon.time < end and ((seen := self._poller.poll(0)) or due < end):
            self.daemon.turn(seen)
            due = lib.sn_turn_due(self.daemon.first.turn.c)
            self.daemon.time += _TURN_S
        self.daemon.time = end

    # -- descriptors that programs hand over

    def stream(self) -> int:
        return self._pair(socket.SOCK_STREAM)

    def packets(self) -> int:
        return self._pair(socket.SOCK_SEQPACKET)

    def _pair(self, kind: int) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)
        self.ends.append(ours)
        return theirs.detach()

    @staticmethod
    def region(*, sealed: bool = True) -> int:
        descriptor = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, REGION)
        if sealed:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return descriptor

    # -- requests

    def packet(self, data: bytes, descriptor: int | None = None) -> control.Reply:
        """A packet at the control socket, whatever it holds."""
        reply = self.daemon.server._reply(memoryview(data), descriptor, 0, self)
        control.decode_reply(control.encode(reply))
        self._check()
        return reply

    def call(self, request: control.Request, descriptor: int | None = None) -> control.Reply:
        reply = self.packet(control.encode(request), descriptor)
        assert not isinstance(reply, control.Failed), reply.message
        return reply

    def connected(self, port: int) -> tuple[int, int, socket.socket, socket.socket]:
        """A connection of the NIC with itself: the streams' numbers, and the programs' ends."""
        bound = self.call(control.Bind("0.0.0.0", port), self.stream())
        assert isinstance(bound, control.Opened)
        listening = self.ends[-1]
        self.call(control.Listen(bound.stream, 5))
        opened = self.call(control.Connect(IP, port), self.stream())
        assert isinstance(opened, control.Opened)
        connecting = self.ends[-1]
        self.turn(_TURNS)
        _, rights, _, _ = listening.recvmsg(len(control.ACCEPT_MARK), socket.CMSG_LEN(4))
        accepted = socket.socket(fileno=array.array("i", rights[0][2])[0])
        accepted.setblocking(False)
        record = accepted.recv(control.ACCEPTED.size)
        self.ends.append(accepted)
        return opened.stream, control.ACCEPTED.unpack(record)[0], connecting, accepted

    # -- the end of an input

    def clean(self) -> None:
        """Programs let go of everything, and time passes. Nothing may be left."""
        self._check()
        for end in self.ends:
            end.close()
        self.ends.clear()
        self.daemon.regions.leave(self)
        self.turn(_TURNS)
        daemon, node = self.daemon, self.daemon.first.node
        daemon._links[0].capture.poll(daemon.time)
        end_of_time = daemon.time + _LATER_S
        while (due := node.next_time()) is not None and due < end_of_time:
            daemon.time = max(due, daemon.time + 1e-3)
            self.turn()
        self._check()
        assert not unreleased(daemon)
        assert _descriptors() == self._idle
        daemon.first.streams.table._closed.clear()
        daemon.first.node.link.receive(daemon.time)
        self._begin()

    def _check(self) -> None:
        assert not self._broken.said, self._broken.said[0]


def _descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208  # ten times as fast


def read_all(end: socket.socket, limit: int = 1 << 20) -> bytes:
    """What waits in a descriptor."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError):
        while (part := end.recv(limit)) and sum(map(len, parts)) < limit:
            parts.append(part)
    return b"".join(parts)


def write(end: socket.socket, data: bytes) -> int:
    """As much as the descriptor takes."""
    with contextlib.suppress(OSError):
        return end.send(data, socket.MSG_NOSIGNAL)
    return 0
