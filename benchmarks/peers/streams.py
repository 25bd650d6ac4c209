"""One stream: softnic's, the kernel's, and those of user-space network stacks, by the same two programs.

slirp4netns and pasta connect a namespace to the loopback of a host; the host is one of the star's here, and the two
programs are in it and in the namespace. Their directions differ, so both are measured. Nothing is shaped.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.namespaces import GATEWAY, Nics, Star
from softnic.bench.stream import TOS, Run, StreamRoute, flood, one_stream
from softnic.cluster.netns_lab.host import WIRE_MTU, NetnsHost
from softnic.cluster.nic_process import node_ip
from softnic.cluster.supervisor import SupervisedProcess
from softnic.measure import timing
from softnic.measure.child_process import Start
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, Progress, column, columns, share

CODEC = "bounded:10"
DATA = "gaussian:0.01"
LIMIT_S = 30.0
"""A stream that takes longer has stalled."""
UP_S = 10.0
_HOST = 0
"""Of the star, for slirp4netns and pasta."""
_GUEST = "/proc/self/fd/0"
"""The guest's namespace: their stdin. pasta gives up the right to open what another process holds."""


@dataclass(frozen=True)
class StreamRow:
    who: str = column("one stream")
    mb_per_s: float | None = column("MB/s", ".0f", default=None)
    """None: `why` tells why not."""
    of_kernel: float | None = column("of kernel TCP", share, default=None)
    """Part of what the kernel's TCP does over the same links."""
    machine_cpu_s_per_gb: float | None = column("CPU s/GB, machine", default=None)
    """Of everything that ran, the kernel's own work included."""
    why: str = column("", default="")


KERNEL = "kernel TCP"


@dataclass(frozen=True)
class Case:
    who: str
    run: Callable[[], Run]


def measure_streams(star: Star, nics: Nics, megabytes: int, rounds: int, progress: Progress) -> list[StreamRow]:
    size = megabytes * 10**6
    star.shape(None)
    rows: list[StreamRow] = []
    found: dict[str, list[Run]] = {}

    def add(row: StreamRow) -> None:
        rows.extend(as_measured([row], columns(StreamRow), progress))

    for group in (_across(nics, star, size), _slirp(star, size), _pasta(star, size)):
        for case in group:
            if isinstance(case, StreamRow):
                add(case)
                continue
            try:
                for number in range(rounds):
                    progress(f"{case.who}, round {number + 1} of {rounds}")
                    found.setdefault(case.who, []).append(case.run())
                add(_row(case.who, found))
            except MeasurementError as error:
                add(StreamRow(case.who, why=f"failed: {error}"))
    return rows


def _row(who: str, found: dict[str, list[Run]]) -> StreamRow:
    rate = timing.median(run.mb_per_s for run in found[who])
    kernel = [run.mb_per_s for run in found.get(KERNEL, [])]
    cpu = [run.machine_cpu_s / run.size * 1e9 for run in found[who] if run.machine_cpu_s is not None]
    return StreamRow(who, rate, rate / timing.median(kernel) if kernel else None, timing.median(cpu) if cpu else None)


def _across(nics: Nics, star: Star, size: int) -> Iterator[Case]:
    """From host 0 to host 1."""
    start, there = nics.spawn, star.hosts[1].address
    yield Case(KERNEL, lambda: one_stream(start, size, DATA, StreamRoute(there, "kernel", there, limit_s=LIMIT_S)))
    yield Case("UDP flood, GSO and GRO", lambda: flood(start, 1.0, to=there, datagram=WIRE_MTU - 28))
    way = StreamRoute(node_ip(1), limit_s=LIMIT_S)
    yield Case("softnic, untagged", lambda: one_stream(start, size, DATA, way))
    yield Case(f"softnic, tagged {CODEC}", lambda: one_stream(start, size, DATA, way, tos=TOS, codec=CODEC))


def _slirp(star: Star, size: int) -> Iterator[Case | StreamRow]:
    yield from _user_space(
        star,
        size,
        "slirp4netns",
        ["slirp4netns", "-c", f"--mtu={WIRE_MTU}", "--netns-type=path", _GUEST, "tap0"],
        "10.0.2.2",
    )


def _pasta(star: Star, size: int) -> Iterator[Case | StreamRow]:
    options = ["-f", "-q", "--runas", "0", "--config-net", "-4", "-m", str(WIRE_MTU)]
    ports = ["-T", "none", "-t", "none", "-u", "none", "-U", "none"]
    argv = ["pasta", *options, *ports, "--netns", _GUEST]
    yield from _user_space(star, size, "pasta", argv, GATEWAY)


def _user_space(star: Star, size: int, who: str, argv: list[str], host: str) -> Iterator[Case | StreamRow]:
    """Both directions of a stack that shows its host to the guest at an address."""
    if shutil.which(who) is None:
        yield StreamRow(who, why="not installed")
        return
    try:
        with _running(star, argv):
            loopback = "127.0.0.1"
            out = _between(star, star.guest, star.hosts[_HOST])
            into = _between(star, star.hosts[_HOST], star.guest)
            yield Case(
                f"{who}, namespace to host",
                lambda: one_stream(out, size, DATA, StreamRoute(host, "kernel", loopback, limit_s=LIMIT_S)),
            )
            yield Case(
                f"{who}, host to namespace",
                lambda: one_stream(
                    into, size, DATA, StreamRoute(host, "kernel", loopback, listener=0, limit_s=LIMIT_S)
                ),
            )
    except MeasurementError as error:
        yield StreamRow(who, why=f"failed: {error}")


def _between(star: Star, writer: NetnsHost, reader: NetnsHost) -> Start:
    """Starts node 0's programs on one host and node 1's on another."""

    def start(node: int, argv: Sequence[str], descriptors: Sequence[int]) -> SupervisedProcess:
        return star.spawn((writer, reader)[node], argv, descriptors)

    return start


@contextmanager
def _running(star: Star, argv: list[str]) -> Iterator[None]:
    """The stack, once it has given the guest a default route."""
    null, guest = os.open(os.devnull, os.O_RDWR), os.open(star.guest.path, os.O_RDONLY)
    process = star.spawn(star.hosts[_HOST], argv, [guest, null, null])
    os.close(null)
    os.close(guest)
    try:
        deadline = time.monotonic() + UP_S
        while not _has_route(star.guest):
            code = process.wait(0.1)
            if code is not None:
                raise MeasurementError(f"{argv[0]} ended with exit code {code}")
            if time.monotonic() > deadline:
                raise MeasurementError(f"{argv[0]} gave its namespace no route within {UP_S:.0f} s")
        yield
    finally:
        if process.wait(0) is None:
            process.signal(signal.SIGTERM)
            if process.wait(5.0) is None:
                process.signal(signal.SIGKILL)
                process.wait(5.0)


def _has_route(host: NetnsHost) -> bool:
    return bool(host.run("ip", "route", "show", "default").strip())
