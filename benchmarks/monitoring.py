"""What watching costs: a scrape of metrics, and `softnic top` once a second.

Two NICs have open connections that carry nothing, so that the rest of their CPU time is small; it is subtracted.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import pty
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from softnic import socket
from softnic.ipc.client import Client
from softnic.ipc.control import AddPeer
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.measure.timing import median

ACCEPT = {"Accept": "application/openmetrics-text; version=1.0.0"}
SETTLE_S = 3.0


@dataclass(frozen=True)
class ScrapeRow:
    connections: int = column("connections")
    nic_ms: float = column("CPU of the NIC, ms a scrape", ".2f")
    wall_ms: float = column("until the scraper has it, ms", ".2f")
    kilobytes: float = column("KB", ".1f")


@dataclass(frozen=True)
class TopRow:
    connections: int = column("connections")
    top: float = column("top, % of a core", ".2f")
    nics: float = column("both NICs with it, %", ".2f")
    nics_alone: float = column("without it, %", ".2f")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flows", type=int, action="append", metavar="N", help="connections at a scrape (10, 1000)")
    parser.add_argument("--scrapes", type=int, default=200, metavar="N", help="in a round (200)")
    parser.add_argument("--top-flows", type=int, default=100, metavar="N", help="connections for top (100)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="N", help="to watch top (20)")
    harness.add_rounds(parser, 5)


def measured(
    given: argparse.Namespace, progress: Progress
) -> list[MeasurementReport[ScrapeRow] | MeasurementReport[TopRow]]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    scrapes: list[ScrapeRow] = []
    for flows in given.flows or [10, 1000]:
        progress(f"scrapes with {flows} connections")
        with _nics(flows) as paths:
            scrape = _scrapes(paths[0], flows, given.scrapes, given.rounds)
            scrapes += as_measured([scrape], columns(ScrapeRow), progress)
    progress("top")
    with _nics(given.top_flows) as paths:
        top = _top(paths, given.top_flows, given.seconds)
    settings = {name: getattr(given, name) for name in ("scrapes", "seconds", "rounds")}
    return [
        MeasurementReport("scrape", "A scrape of metrics", columns(ScrapeRow), scrapes, settings),
        MeasurementReport("top", "softnic top at 1 Hz", columns(TopRow), [top], settings),
    ]


@contextlib.contextmanager
def _nics(flows: int) -> Iterator[list[str]]:
    """Two NICs with so many connections between them: their control sockets."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = [str(directory / f"node{number}.sock") for number in range(2)]
        wires: list[tuple[str, int]] = []
        for number, path in enumerate(paths):
            peer = [f"--peer=10.77.0.1={wires[0][0]}:{wires[0][1]}"] if wires else []
            stack.callback(_end, _started(number, path, peer))
            with contextlib.closing(Client(path)) as client:
                wires.append(client.info().wire)
        with socket.create_server(("10.77.0.2", 5000), backlog=flows, nic=paths[1]) as listening:
            _introduce(paths[0], wires[1])
            for _ in range(flows):
                stack.enter_context(socket.create_connection(("10.77.0.2", 5000), nic=paths[0]))
                stack.enter_context(listening.accept()[0])
        time.sleep(SETTLE_S)
        yield paths


def _started(number: int, path: str, flags: list[str]) -> subprocess.Popen[bytes]:
    ready, ready_write = os.pipe()
    command = [sys.executable, "-m", "softnicd", "--name", f"node{number}", "--ip", f"10.77.0.{number + 1}"]
    command += ["--control", path, "--wire", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *flags]
    process = subprocess.Popen([*command, "--ready-fd", str(ready_write)], pass_fds=[ready_write])
    os.close(ready_write)
    os.read(ready, 1)
    os.close(ready)
    return process


def _introduce(path: str, wire: tuple[str, int]) -> None:
    with contextlib.closing(Client(path)) as client:
        client.call(AddPeer("10.77.0.2", *wire))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process, to the nanosecond (proc(5), schedstat)."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _scrapes(path: str, flows: int, scrapes: int, rounds: int) -> ScrapeRow:
    with contextlib.closing(Client(path)) as client:
        info = client.info()
    connection = http.client.HTTPConnection(*info.metrics)
    cpu, wall, size = [], [], 0
    for _ in range(rounds):
        began, used = time.perf_counter(), _cpu_s(info.pid)
        for _ in range(scrapes):
            connection.request("GET", "/metrics", headers=ACCEPT)
            size = len(connection.getresponse().read())
        passed, used = time.perf_counter() - began, _cpu_s(info.pid) - used
        idle = _cpu_s(info.pid)
        time.sleep(passed)
        idle = _cpu_s(info.pid) - idle
        cpu.append((used - idle) / scrapes * 1e3)
        wall.append(passed / scrapes * 1e3)
    connection.close()
    return ScrapeRow(flows, median(cpu), median(wall), size / 1e3)


def _top(paths: list[str], flows: int, seconds: float) -> TopRow:
    pids = []
    for path in paths:
        with contextlib.closing(Client(path)) as client:
            pids.append(client.info().pid)
    alone = _share(pids, seconds)
    end, theirs = pty.openpty()
    command = [sys.executable, "-m", "softnic", "top", *(f"--nic={path}" for path in paths)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}
    top = subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment)
    os.close(theirs)
    try:
        _read_for(end, SETTLE_S)
        used = [_cpu_s(pid) for pid in (top.pid, *pids)]
        _read_for(end, seconds)
        shares = [(_cpu_s(pid) - before) / seconds * 100 for pid, before in zip((top.pid, *pids), used, strict=True)]
    finally:
        top.terminate()
        top.wait()
        os.close(end)
    return TopRow(flows, shares[0], sum(shares[1:]), alone)


def _share(pids: list[int], seconds: float) -> float:
    used = sum(map(_cpu_s, pids))
    time.sleep(seconds)
    return (sum(map(_cpu_s, pids)) - used) / seconds * 100


def _read_for(fd: int, seconds: float) -> None:
    """Takes what a terminal shows for this time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            os.read(fd, 1 << 16)


if __name__ == "__main__":
    sys.exit(harness.main("monitoring", __doc__, measured, add_options))
