"""Processes at the ends of a measured stream: `python -m softnic.bench.stream_endpoints read|write|hold ...`.

The transport is an argument: `nic` (a softnic socket), `kernel` (the kernel's TCP), or the number of a file descriptor
that both have. Either side connects (`--to`), and the other listens. They make large reads and writes in one thread.
Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import contextlib
import socket as plain
import sys
import time

from softnic import socket
from softnic.bench import inputs
from softnic.measure.child_process import report_json
from softnic.measure.timing import machine_cpu_s, own_cpu_s

CHUNK_BYTES = 1 << 20
"""Size of one write."""
READ_BYTES = 1 << 18
DATA_BYTES = 16 * CHUNK_BYTES
"""Size of the array that is written repeatedly."""


def listen(way: str, host: str) -> plain.socket:
    module = socket if way == "nic" else plain
    listening: plain.socket = module.create_server((host, 0))
    return listening


def connect(way: str, to: str) -> plain.socket:
    host, _, port = to.rpartition(":")
    module = socket if way == "nic" else plain
    connection: plain.socket = module.create_connection((host, int(port)))
    return connection


def control(connection: plain.socket, congestion: str) -> None:
    """Set the congestion control algorithm, unless it is empty."""
    if congestion:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())


def tag(connection: plain.socket, tos: int, codec: str) -> None:
    if tos:
        if codec:
            connection.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, codec.encode())
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


def meet(way: str, host: str, to: str) -> plain.socket:
    """Return a connection: the given file descriptor, one to `to`, or an accepted one after reporting the port."""
    if way.isdigit():
        return plain.socket(fileno=int(way))
    if to:
        return connect(way, to)
    with listen(way, host) as listening:
        report_json(port=listening.getsockname()[1])
        return listening.accept()[0]


def read(connection: plain.socket, size: int) -> None:
    before = own_cpu_s()
    buffer, left = bytearray(READ_BYTES), size
    while left:
        count = connection.recv_into(buffer, min(left, READ_BYTES))
        if not count:
            raise EOFError(f"the stream ended {left} bytes early")
        left -= count
    report_json(ended=time.monotonic(), cpu_s=own_cpu_s() - before, machine_cpu_s=machine_cpu_s())


def write(connection: plain.socket, size: int, given: memoryview) -> None:
    busy, started, before = machine_cpu_s(), time.monotonic(), own_cpu_s()
    for offset in range(0, size, CHUNK_BYTES):
        start = offset % DATA_BYTES
        connection.sendall(given[start : start + min(CHUNK_BYTES, size - offset)])
    report_json(started=started, cpu_s=own_cpu_s() - before, machine_cpu_s=busy)
    connection.recv(1)  # until the reader has received everything and closes
    info = socket.info(connection) if isinstance(connection, socket.socket) else None
    auto = info.auto.why if info is not None and info.auto is not None else ""
    report_json(wire_bytes=None if info is None else info.wire_bytes_sent, auto=auto)


def hold(way: str, host: str, to: str, count: int) -> None:
    """Hold one side of `count` idle streams until the process is killed."""
    with contextlib.ExitStack() as stack:
        if to:
            held = [stack.enter_context(connect(way, to)) for _ in range(count)]
            report_json(held=len(held))
        else:
            listening = stack.enter_context(listen(way, host))
            report_json(port=listening.getsockname()[1])
            held = [stack.enter_context(listening.accept()[0]) for _ in range(count)]
            report_json(held=len(held))
        time.sleep(3600)


def main() -> int:
    parser = argparse.ArgumentParser(prog="softnic.bench.stream_endpoints", description=__doc__)
    parser.add_argument("role", choices=["read", "write", "hold"])
    parser.add_argument("--way", default="nic")
    parser.add_argument("--host", default="", help="to listen at")
    parser.add_argument("--to", default="", metavar="HOST:PORT")
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--data", default="gaussian:0.01")
    parser.add_argument("--tos", type=int, default=0)
    parser.add_argument("--codec", default="")
    parser.add_argument("--congestion", default="", help="algorithm of the writer")
    given = parser.parse_args()
    if given.role == "hold":
        hold(given.way, given.host, given.to, given.count)
        return 0
    floats = inputs.floats(given.data, DATA_BYTES // 4) if given.role == "write" else None
    with meet(given.way, given.host, given.to) as connection:
        if floats is None:
            read(connection, given.bytes)
        else:
            control(connection, given.congestion)
            tag(connection, given.tos, given.codec)
            write(connection, given.bytes, memoryview(floats.tobytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
