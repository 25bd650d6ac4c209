"""Processes at both ends of many connections: `python -m softnic.bench.many_connections serve|open ...`.

`open` executes commands from its stdin (`talk BYTES`: a message and its answer on each connection in turn; `close`) and
reports the time of each. `serve` answers every message with the same number of bytes.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import sys
import time

from softnic import socket
from softnic.measure.child_process import report_json

_READ_BYTES = 1 << 18


def _allow_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(host: str, count: int) -> None:
    """Accept `count` connections, and answer until all are closed."""
    selector = selectors.DefaultSelector()
    with socket.create_server((host, 0), backlog=count) as server:
        report_json(port=server.getsockname()[1])
        for _ in range(count):
            selector.register(server.accept()[0], selectors.EVENT_READ)
    report_json(accepted=count)
    while selector.get_map():
        for key, _ in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(_READ_BYTES)
            if data:
                connection.sendall(data)
            else:
                selector.unregister(connection)
                connection.close()
    report_json(closed=count)


def open_many(to: str, count: int) -> None:
    host, _, port = to.rpartition(":")
    began = time.perf_counter()
    connections = [socket.create_connection((host, int(port))) for _ in range(count)]
    report_json(seconds=time.perf_counter() - began)
    for line in sys.stdin:
        began = time.perf_counter()
        what, _, size = line.strip().partition(" ")
        if what == "close":
            for connection in connections:
                connection.close()
        else:
            message = bytes(int(size))
            for connection in connections:
                _talk(connection, message)
        report_json(seconds=time.perf_counter() - began)


def _talk(connection: socket.socket, message: bytes) -> None:
    """Send the whole message, then receive the whole answer; the buffers of the NICs hold what is in flight."""
    connection.sendall(message)
    left = len(message)
    while left:
        count = len(connection.recv(left))
        if not count:
            raise EOFError("the peer ended the stream")
        left -= count


def main() -> int:
    parser = argparse.ArgumentParser(prog="softnic.bench.many_connections", description=__doc__)
    parser.add_argument("role", choices=["serve", "open"])
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--host", default="", help="to listen at")
    parser.add_argument("--to", default="", metavar="HOST:PORT")
    given = parser.parse_args()
    _allow_descriptors()
    if given.role == "serve":
        serve(given.host, given.count)
    else:
        open_many(given.to, given.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
