"""Metrics over HTTP, as Prometheus scrapes them: `GET /metrics` and nothing else, on the daemon's own loop.

A request is answered in one piece between two turns of the NIC; no thread takes the interpreter from a turn. Whoever
reaches the address may read the metrics, so it should be a loopback address or one of a trusted network. Connections,
the length of requests and the time for them are bounded.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from softnic.ipc.control import NicStats
from softnicd.event_log import EventLog
from softnicd.metrics import OPENMETRICS, Exposition

PATH = b"/metrics"
MAX_CONNECTIONS = 16
MAX_REQUEST = 8 << 10
REQUEST_S = 5.0
"""Time for a request to arrive."""
IDLE_S = 300.0
"""A connection is kept for the next scrape for this time."""
_CLOSE = b"Connection: close\r\n"


@dataclass(slots=True)
class MetricsCounters:
    metrics_scrapes: int = 0
    metrics_refused: int = 0
    """Connections beyond the limit, and requests answered with an error or not in time."""


class MetricsServer:
    """Serves what `snapshot` returns. `open` raises OSError if the address cannot be used.

    Raises ValueError if prometheus-client is not installed.
    """

    def __init__(self, snapshot: Callable[[], NicStats], event_log: EventLog) -> None:
        self.counters = MetricsCounters()
        self.connections: set[MetricsConnection] = set()
        self._snapshot = snapshot
        self._event_log = event_log
        self._exposition = Exposition()
        self._server: asyncio.Server | None = None

    async def open(self, address: tuple[str, int]) -> tuple[str, int]:
        """Listens at an address; port 0: any. Returns the address."""
        host, port = address
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: MetricsConnection(self), host, port, family=socket.AF_INET
            )
        except OSError as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise OSError(error.errno, f"cannot serve metrics at {host}:{port}: {reason}") from error
        own: tuple[str, int] = self._server.sockets[0].getsockname()
        return own

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()

    def scrape(self, is_openmetrics: bool) -> tuple[str, bytes] | None:
        """Content type and metrics; None after an internal error, which is recorded."""
        try:
            found = self._exposition.text(self._snapshot(), is_openmetrics)
        except Exception:
            self._event_log.internal_error("internal error in a scrape of metrics")
            return None
        self.counters.metrics_scrapes += 1
        return found


class MetricsConnection(asyncio.Protocol):
    """A connection of a scraper: requests and replies in turn."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._server.connections) >= MAX_CONNECTIONS:
            self._refuse(b"503 Service Unavailable")
            return
        self._server.connections.add(self)
        self._expect(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        transport = self._transport
        while transport is not None and not transport.is_closing():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if len(head) > MAX_REQUEST:
                self._refuse(b"431 Request Header Fields Too Large")
            elif not end:
                return
            elif transport.get_write_buffer_size():
                self._refuse(b"429 Too Many Requests")  # the last reply was not read
            else:
                self._received = rest
                self._reply(head)

    def _reply(self, head: bytes) -> None:
        line, *headers = head.split(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._refuse(b"400 Bad Request")
        elif words[0] != b"GET":
            self._refuse(b"405 Method Not Allowed")
        elif words[1].partition(b"?")[0] != PATH:
            self._refuse(b"404 Not Found")
        elif (found := self._server.scrape(OPENMETRICS in head)) is None:
            self._refuse(b"500 Internal Server Error")
        else:
            kind, body = found
            keep = words[2] == b"HTTP/1.1" and b"connection: close" not in map(bytes.lower, headers)
            self._send(b"200 OK", kind.encode(), body, keep)

    def _refuse(self, status: bytes) -> None:
        self._server.counters.metrics_refused += 1
        self._send(status, b"text/plain", status.partition(b" ")[2] + b"\n", keep=False)

    def _send(self, status: bytes, kind: bytes, body: bytes, keep: bool) -> None:
        assert self._transport is not None
        length = len(body)
        self._transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b"
            % (status, kind, length, b"" if keep else _CLOSE, body)
        )
        if keep:
            self._expect(IDLE_S)
        else:
            self._transport.close()
            self._expect(REQUEST_S)

    def _expect(self, time_s: float) -> None:
        """Ends the connection unless a request or the end comes in this time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(time_s, self._give_up)

    def _give_up(self) -> None:
        if self._received:
            self._server.counters.metrics_refused += 1
        self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
