"""Round trips of small messages through two NICs: `python benchmarks/latency.py [--count 3000] [--json FILE]`.

A program sends 64 bytes and waits for 64 bytes of answer from another program: four processes, two of them NICs. What
the machine itself takes for that stands beside it, measured in the same run: the same four processes over the same
kinds of sockets, but the two in the middle only pass on what they read (`floor`).

Both are measured by turns, so that a neighbour's noise meets both. Times in microseconds, CPU of the middle processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import select
import socket as plain
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from softnic import socket
from softnic.cluster import Cluster, node_ip

SIZE = 64
WARM_UP = 200
"""Exchanges before the first that counts."""
BUFFER = 1 << 16

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Latency:
    """Round trips of one kind."""

    name: str
    p50_us: float
    p90_us: float
    p99_us: float
    worst_us: float
    middle_cpu_us: float
    """CPU time of the two processes in the middle, for one round trip."""


def exchange(connection: plain.socket, size: int, count: int) -> list[float]:
    """Seconds of each of `count` round trips. Raises EOFError if the peer goes."""
    message = bytes(size)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        connection.sendall(message)
        receive(connection, size)
        times.append(time.perf_counter() - started)
    return times


def receive(connection: plain.socket, size: int) -> None:
    left = size
    while left:
        got = len(connection.recv(left))
        if not got:
            raise EOFError("the peer ended the stream")
        left -= got


def answer(accept: Callable[[], plain.socket], size: int) -> None:
    """The other program: sends back as many bytes as it gets, until the stream ends."""
    message = bytes(size)
    with accept() as connection:
        try:
            while True:
                receive(connection, size)
                connection.sendall(message)
        except (EOFError, ConnectionError):
            return


def relay(stream: plain.socket, wire: plain.socket) -> None:
    """The least that a process in the middle does: waits for either side and passes on what it reads."""
    poller = select.epoll()
    poller.register(stream, select.EPOLLIN)
    poller.register(wire, select.EPOLLIN)
    from_program = stream.fileno()
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == from_program:
                data = stream.recv(BUFFER)
                if not data:
                    return
                wire.send(data)
            else:
                stream.send(wire.recv(BUFFER))


def cpu_s(pid: int) -> float:
    """CPU time of a living process, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def running(*children: BaseProcess) -> Iterator[None]:
    for child in children:
        child.start()
    try:
        yield
    finally:
        for child in children:
            child.terminate()
            child.join()


@dataclass(frozen=True)
class Way:
    """Something to send messages through."""

    name: str
    connection: plain.socket
    middle: list[int]
    """Processes between the programs."""


@contextmanager
def floor(size: int = SIZE) -> Iterator[Way]:
    """Program, relay, relay, program."""
    ours, near = plain.socketpair()
    far, theirs = plain.socketpair()
    wires = [plain.socket(plain.AF_INET, plain.SOCK_DGRAM) for _ in range(2)]
    for wire in wires:
        wire.bind(("127.0.0.1", 0))
    for wire, other in zip(wires, reversed(wires), strict=True):
        wire.connect(other.getsockname())
    relays = [_fork.Process(target=relay, args=(stream, wire)) for stream, wire in zip((near, far), wires, strict=True)]
    with running(*relays, _fork.Process(target=answer, args=(lambda: theirs, size))):
        for ended in (near, far, theirs, *wires):
            ended.close()
        with ours:
            yield Way("floor: two relays", ours, [child.pid or 0 for child in relays])


@contextmanager
def through_nics(cluster: Cluster, size: int = SIZE) -> Iterator[Way]:
    """Program, NIC, NIC, program."""
    near, far = cluster.controls[:2]
    with socket.create_server(("", 0), nic=far) as listening:
        address = (node_ip(1), listening.getsockname()[1])
        with running(_fork.Process(target=answer, args=(lambda: listening.accept()[0], size))):
            connection = socket.create_connection(address, nic=near)
            with connection:
                yield Way("two NICs", connection, [nic.pid for nic in cluster.nics])


def compare(paths: list[Way], size: int, count: int, turns: int) -> list[Latency]:
    """Latencies of each way, measured by turns."""
    times: list[list[float]] = [[] for _ in paths]
    cpu = [0.0 for _ in paths]
    for path in paths:
        exchange(path.connection, size, WARM_UP)
    for _ in range(turns):
        for index, path in enumerate(paths):
            before = sum(map(cpu_s, path.middle))
            times[index] += exchange(path.connection, size, count // turns)
            cpu[index] += sum(map(cpu_s, path.middle)) - before
    return [summary(path.name, taken, spent) for path, taken, spent in zip(paths, times, cpu, strict=True)]


def summary(name: str, times: list[float], cpu: float) -> Latency:
    ordered = [1e6 * taken for taken in sorted(times)]

    def percentile(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Latency(name, percentile(0.5), percentile(0.9), percentile(0.99), ordered[-1], 1e6 * cpu / len(ordered))


def measure(size: int = SIZE, count: int = 3000, turns: int = 10) -> list[Latency]:
    """The NICs' latency and the floor's. Raises ClusterError where NICs do not start."""
    with Cluster(nodes=2) as cluster, floor(size) as below, through_nics(cluster, size) as ours:
        return compare([below, ours], size, count, turns)


def table(results: list[Latency]) -> str:
    lines = [f"{'':20} {'p50 us':>8} {'p90 us':>8} {'p99 us':>8} {'worst':>8} {'CPU us':>8} {'p50/floor':>10}"]
    for result in results:
        lines.append(
            f"{result.name:20} {result.p50_us:8.0f} {result.p90_us:8.0f} {result.p99_us:8.0f} {result.worst_us:8.0f}"
            f" {result.middle_cpu_us:8.0f} {result.p50_us / results[0].p50_us:10.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--size", type=int, default=SIZE, help="bytes of a message")
    flags.add_argument("--count", type=int, default=3000, help="round trips of each kind")
    flags.add_argument("--turns", type=int, default=10, help="the two kinds change places so often")
    flags.add_argument("--json", type=Path, metavar="FILE")
    given = flags.parse_args()
    results = measure(given.size, given.count, given.turns)
    print(table(results))
    if given.json is not None:
        given.json.write_text(json.dumps({"size": given.size, "results": [asdict(result) for result in results]}))


if __name__ == "__main__":
    main()
