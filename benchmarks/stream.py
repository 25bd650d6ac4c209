"""One stream through two daemons on this machine: `python benchmarks/stream.py [--mb 512] [--json FILE]`.

Four processes: a writer, its NIC, the reader's NIC, and the reader. Measured: MB/s of original bytes from the first
byte to the last, CPU seconds per GB of each process (daemons apart from programs), and how that compares with a plain
Unix stream socket between writer and reader, measured in the same run. Untagged bytes, and floats tagged with
bounded:10 (Gaussian, sigma 0.01).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import select
import signal
import socket as plain
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from softnic import socket

CHUNK = 1 << 20
"""Of one write: a program that has much to say."""
READ = 1 << 18
CODEC = "bounded:10"


@dataclass(frozen=True)
class Result:
    name: str
    mb_per_s: float
    daemons_cpu_s_per_gb: float
    programs_cpu_s_per_gb: float
    wire_ratio: float = 1.0
    """Original bytes to wire bytes."""
    of_unix_socket: float = 1.0


def cpu_s(pid: int) -> float:
    """User and system time of a living process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def read(connection: plain.socket, size: int) -> None:
    buffer = bytearray(READ)
    left = size
    while left:
        count = connection.recv_into(buffer, min(left, READ))
        if not count:
            raise EOFError(f"the stream ended {left} bytes early")
        left -= count


def write(connection: plain.socket, data: memoryview, size: int) -> None:
    for offset in range(0, size, CHUNK):
        start = offset % len(data)
        connection.sendall(data[start : start + min(CHUNK, size - offset)])


def reader(results: Connection, size: int, accept: Callable[[], plain.socket]) -> None:
    """Child process: tells when it has everything, and what that cost."""
    with accept() as connection:
        before = own_cpu_s()
        read(connection, size)
        results.send((time.monotonic(), own_cpu_s() - before))


def measure(
    name: str,
    size: int,
    data: memoryview,
    connect: Callable[[], plain.socket],
    accept: Callable[[], plain.socket],
    daemons: list[int],
) -> tuple[Result, plain.socket]:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=reader, args=(theirs, size, accept))
    child.start()
    connection = connect()
    before, daemons_before, started = own_cpu_s(), sum(map(cpu_s, daemons)), time.monotonic()
    write(connection, data, size)
    ended, reader_cpu = ours.recv()
    child.join()
    programs = own_cpu_s() - before + reader_cpu
    gb = size / 1e9
    in_daemons = sum(map(cpu_s, daemons)) - daemons_before
    return Result(name, size / 1e6 / (ended - started), in_daemons / gb, programs / gb), connection


class Nics:
    """Two daemons on this machine, until `stop`."""

    def __init__(self, directory: str) -> None:
        self.paths = [f"{directory}/node{n}.sock" for n in range(2)]
        probes = [plain.socket(plain.AF_INET, plain.SOCK_DGRAM) for _ in range(2)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        self.processes = [self._start(number, ports) for number in range(2)]

    def _start(self, number: int, ports: list[int]) -> subprocess.Popen[bytes]:
        ready, theirs = os.pipe()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "softnicd", "--ip", f"10.77.0.{number + 1}", "--control", self.paths[number]),
                *("--wire", f"127.0.0.1:{ports[number]}", "--offload", f"0x28={CODEC}"),
                *("--peer", f"10.77.0.{2 - number}=127.0.0.1:{ports[1 - number]}", "--ready-fd", str(theirs)),
            ],
            pass_fds=[theirs],
        )
        os.close(theirs)
        if not select.select([ready], [], [], 20)[0] or not os.read(ready, 1):
            raise SystemExit("a daemon did not start")
        os.close(ready)
        return process

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            process.wait()


def through_unix_socket(size: int, data: memoryview) -> Result:
    ours, theirs = plain.socketpair()
    with theirs:
        result, connection = measure("unix socket", size, data, lambda: ours, lambda: theirs, [])
    connection.close()
    return result


def through_nics(name: str, size: int, data: memoryview, tos: int, nics: Nics) -> Result:
    with socket.create_server(("", 0), nic=nics.paths[1]) as listening:
        address = ("10.77.0.2", listening.getsockname()[1])

        def connect() -> plain.socket:
            connection = socket.create_connection(address, nic=nics.paths[0])
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            return connection

        result, connection = measure(name, size, data, connect, lambda: listening.accept()[0], nics.pids)
    with connection:
        wire_bytes = socket.info(connection).wire_bytes_sent
    return Result(**{**asdict(result), "wire_ratio": size / wire_bytes})


def best(runs: list[Result], unix: Result) -> Result:
    result = max(runs, key=lambda run: run.mb_per_s)
    return Result(**{**asdict(result), "of_unix_socket": result.mb_per_s / unix.mb_per_s})


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--mb", type=int, default=512, help="megabytes a run")
    flags.add_argument("--runs", type=int, default=3, help="the best of so many")
    flags.add_argument("--json", type=Path, metavar="FILE")
    given = flags.parse_args()
    size = given.mb * 10**6 // CHUNK * CHUNK
    gaussian = np.random.default_rng(1).normal(0, 0.01, 16 * CHUNK // 4).astype(np.float32)
    data = memoryview(gaussian.tobytes())
    with tempfile.TemporaryDirectory() as directory:
        nics = Nics(directory)
        try:
            unix = max((through_unix_socket(size, data) for _ in range(given.runs)), key=lambda run: run.mb_per_s)
            results = [unix]
            for name, tos in (("untagged", 0), (f"tagged, {CODEC}", 0x28)):
                runs = [through_nics(name, size, data, tos, nics) for _ in range(given.runs)]
                results.append(best(runs, unix))
        finally:
            nics.stop()
    print(f"{'':22} {'MB/s':>8} {'daemons s/GB':>13} {'programs s/GB':>14} {'ratio':>7} {'of unix':>8}")
    for result in results:
        print(
            f"{result.name:22} {result.mb_per_s:8.0f} {result.daemons_cpu_s_per_gb:13.2f}"
            f" {result.programs_cpu_s_per_gb:14.2f} {result.wire_ratio:7.2f} {result.of_unix_socket:8.2f}"
        )
    if given.json is not None:
        given.json.write_text(json.dumps({"mb": given.mb, "results": [asdict(result) for result in results]}, indent=2))


if __name__ == "__main__":
    main()
