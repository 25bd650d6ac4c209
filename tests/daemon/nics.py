"""Real NICs for the tests: softnicd processes on this machine, each a peer of the others."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket as plain
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from softnic import socket
from softnic.ipc import control
from softnic.ipc import regions as memory
from softnic.ipc.client import Client

LINKS = {
    "loopback": (),
    "delay": ("--delay", "100ms"),
    "rate": ("--rate", "8mbit"),
    "queues": ("--queues", "3"),
}
"""Links that tests run on: loopback, 100 ms one-way delay, or 1 MB/s; and NICs with several queues, over loopback.
Loopback never has data in flight for long."""
START_S = 60.0
WAIT_S = 60.0
"""Limit for hangs, far longer than any step takes."""
TOLD_S = 5.0 + 10.0
"""Limit for the notification of a fault: the documented 5 s, and 10 s for a loaded machine. Tests in virtual time check
the 5 s themselves."""


def free_port() -> int:
    with plain.socket(plain.AF_INET, plain.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Nic:
    """One daemon. Node n has 10.77.0.(n+1)."""

    def __init__(self, directory: Path, number: int, ports: Sequence[int], *flags: str) -> None:
        others = {other: f"127.0.0.1:{port}" for other, port in enumerate(ports) if other != number}
        self.set_up(directory, number, f"127.0.0.1:{ports[number]}", others, flags)

    def set_up(self, directory: Path, number: int, wire: str, others: Mapping[int, str], flags: Sequence[str]) -> None:
        self.ip = f"10.77.0.{number + 1}"
        self.path = str(directory / f"node{number}.sock")
        self.command = [sys.executable, "-m", "softnicd", "--name", f"node{number}", "--ip", self.ip]
        self.command += ["--control", self.path, "--wire", wire, *flags]
        for other, address in others.items():
            self.command += ["--peer", f"10.77.0.{other + 1}={address}"]
        self.log = directory / f"node{number}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self) -> int:
        """Starts the daemon; returns the descriptor that becomes readable when it is ready."""
        ours, theirs = os.pipe()
        with self.log.open("ab") as log:
            command = [*self.command, "--ready-fd", str(theirs)]
            self.process = subprocess.Popen(command, pass_fds=[theirs], stderr=log)
        os.close(theirs)
        return ours

    def wait_ready(self, descriptor: int) -> None:
        try:
            ready = select.select([descriptor], [], [], START_S)[0]
            assert ready, "the NIC did not get ready"
            assert os.read(descriptor, 1), self.log.read_text() if self.log.is_file() else ""  # not /dev/full's zeros
        finally:
            os.close(descriptor)

    def start(self) -> None:
        self.wait_ready(self.launch())

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops the daemon; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def descriptors(self) -> dict[int, str]:
        """Targets of the daemon's file descriptors, as named in /proc."""
        found = {}
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found[int(entry.name)] = str(entry.readlink())
        return found

    def client(self) -> contextlib.closing[Client]:
        return contextlib.closing(Client(self.path))

    def counters(self) -> dict[str, int]:
        with self.client() as client:
            stats = client.call(control.QueryStats())
        assert isinstance(stats, control.NicStats)
        return stats.counters

    def held(self) -> Counter[str]:
        """Returns the NIC's resources of processes: descriptors by kind, streams by state, regions, groups."""
        streams: list[control.StreamInfo] = []
        more = True
        with self.client() as client:
            while more:
                page = client.call(control.QueryStats(streams[-1].stream if streams else 0))
                streams += page.streams
                more = page.more
            descriptors = self.descriptors()  # while the NIC has this client
        held = Counter({name: page.counters[name] for name in ("regions", "region_bytes", "communicators")})
        held.update(f"stream {info.state} at port {info.local[1]}" for info in streams)
        held.update(f"descriptor of {name.partition(':')[0]}" for name in descriptors.values())
        return held

    def server(self, backlog: int = 128) -> socket.socket:
        listening = socket.create_server((self.ip, 0), backlog=backlog, nic=self.path)
        listening.settimeout(WAIT_S)
        return listening

    def connect(self, address: tuple[str, int]) -> socket.socket:
        return socket.create_connection(address, timeout=WAIT_S, nic=self.path)


_serving: list[Nic] = []
"""NICs that must be running now."""


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """Checks that every running NIC holds the same resources before and after; waits for delayed closes."""
    before = {}
    for nic in _serving:
        if nic.alive:
            meet(nic)
            before[nic] = nic.pid, nic.held()
    yield
    deadline = time.monotonic() + WAIT_S
    for nic, (pid, held) in before.items():
        while nic in _serving and nic.alive and nic.pid == pid and (now := nic.held()) != held:
            assert time.monotonic() < deadline, f"{nic.ip} still holds {now - held}, and no longer {held - now}"
            gc.collect()  # arrays stay registered until they are collected
            select.select([], [], [], 0.01)


@contextlib.contextmanager
def running(count: int, *flags: str) -> Iterator[list[Nic]]:
    """Yields `count` NICs; then stops them and checks their exit, except of those that the test stopped."""
    with tempfile.TemporaryDirectory() as directory:
        ports = [free_port() for _ in range(count)]
        nics = [Nic(Path(directory), number, ports, *flags) for number in range(count)]
        with serving(nics):
            yield nics


@contextlib.contextmanager
def serving(nics: Sequence[Nic]) -> Iterator[None]:
    """As `running`, for NICs that exist but are not started."""
    try:
        for nic, ready in [(nic, nic.launch()) for nic in nics]:
            nic.wait_ready(ready)
        _serving.extend(nics)
        yield
        for nic in nics:
            if nic.alive:
                assert nic.stop() == 0, nic.log.read_text()
            assert "of ours" not in nic.log.read_text(), nic.log.read_text()
    finally:
        for nic in nics:
            if nic in _serving:
                _serving.remove(nic)
            if nic.alive and nic.process is not None:
                nic.process.kill()
                nic.process.wait()


@contextlib.contextmanager
def paused(nic: Nic) -> Iterator[None]:
    """Suspends the daemon during the block, so that it sees all events of the block at once."""
    os.kill(nic.pid, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{nic.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(nic.pid, signal.SIGCONT)


def meet(nic: Nic) -> None:
    """Opens the control connections that a process keeps: one for its sockets, one for registered memory."""
    with socket.socket(nic=nic.path) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    array = memory.empty(1, np.uint8)
    place = memory.find(array.data)
    assert place is not None
    memory.number(place.region, nic.path)


def pair(nics: Sequence[Nic]) -> tuple[socket.socket, socket.socket]:
    """Returns both ends of a connection between the first two nodes, the client's first."""
    with nics[1].server() as listening:
        opened = nics[0].connect(listening.getsockname())
        accepted, _ = listening.accept()
        accepted.settimeout(WAIT_S)
        return opened, accepted


def read_all(connection: plain.socket, size: int | None = None) -> bytes:
    """Reads `size` bytes, or to the end of the stream."""
    parts: list[bytes] = []
    left = 1 << 62 if size is None else size
    while left:
        part = connection.recv(min(left, 1 << 18))
        if not part:
            assert size is None, f"the stream ended {left} bytes early"
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def until(condition: Callable[[], bool]) -> None:
    """Waits for an asynchronous condition; fails after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not true within {WAIT_S} s"
