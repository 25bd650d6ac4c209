"""Processes of a chain for round trips of small messages: `python -m softnic.bench.pingpong ping|echo|relay ...`.

`ping` sends a message and waits for the answer, as many times as a line on its stdin says, and reports every round
trip; `echo` answers; `relay` does the least that a process between them can do: it forwards whatever arrives on either
side. The transport is that of softnic.bench.stream_endpoints.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
import time

from softnic.bench.stream_endpoints import meet, tag
from softnic.measure.child_process import report_json

WARM_UP = 200
"""Round trips before the first measured one."""
_READ_BYTES = 1 << 16


def receive(connection: socket.socket, size: int) -> None:
    left = size
    while left:
        count = len(connection.recv(left))
        if not count:
            raise EOFError("the peer ended the stream")
        left -= count


def ping(way: str, to: str, size: int, tos: int, codec: str) -> None:
    message = bytes(size)
    with meet(way, "", to) as connection:
        tag(connection, tos, codec)
        _go(connection, message, WARM_UP)
        report_json(ready=True)
        for line in sys.stdin:
            report_json(seconds=_go(connection, message, int(line)))


def _go(connection: socket.socket, message: bytes, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        connection.sendall(message)
        receive(connection, len(message))
        taken.append(time.perf_counter() - began)
    return taken


def echo(way: str, host: str, size: int, tos: int, codec: str) -> None:
    message = bytes(size)
    with meet(way, host, "") as connection:
        tag(connection, tos, codec)
        try:
            while True:
                receive(connection, size)
                connection.sendall(message)
        except (EOFError, ConnectionError):
            return


def relay(stream: socket.socket, wire: socket.socket) -> None:
    poller = select.epoll()
    poller.register(stream, select.EPOLLIN)
    poller.register(wire, select.EPOLLIN)
    from_program = stream.fileno()
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == from_program:
                data = stream.recv(_READ_BYTES)
                if not data:
                    return
                wire.send(data)
            else:
                stream.send(wire.recv(_READ_BYTES))


def main() -> int:
    parser = argparse.ArgumentParser(prog="softnic.bench.pingpong", description=__doc__)
    parser.add_argument("role", choices=["ping", "echo", "relay"])
    parser.add_argument("--way", default="nic")
    parser.add_argument("--host", default="", help="to listen at")
    parser.add_argument("--to", default="", metavar="HOST:PORT")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--tos", type=int, default=0)
    parser.add_argument("--codec", default="")
    given = parser.parse_args()
    if given.role == "ping":
        ping(given.way, given.to, given.size, given.tos, given.codec)
    elif given.role == "echo":
        echo(given.way, given.host, given.size, given.tos, given.codec)
    else:
        relay(socket.socket(fileno=3), socket.socket(fileno=4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
