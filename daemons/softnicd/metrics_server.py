"""Metrics over HTTP, as Prometheus scrapes them: `GET /metrics` and nothing else, on the daemon's own loop.

A request is answered in one piece between two turns of the NIC; no thread takes the interpreter from a turn. Whoever
reaches the address may read the metrics, so it should be a loopback address or one of a trusted network.

Clients cannot keep the NIC from its turns: a callback writes one reply, at most SHARE of the loop's time goes into
replies, and a connection is read no further while its request waits. Clients cannot keep others out: where there are
too many connections, one that waits for its next request, or that has had the most replies, makes room.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from softnic import underlay
from softnic.ipc.control import NicStats
from softnic.link.sockets import bind_reason, own_address
from softnic.underlay import Address
from softnicd.event_log import EventLog
from softnicd.metrics import OPENMETRICS

PATH = b"/metrics"
MAX_CONNECTIONS = 16
MAX_OF_ADDRESS = 8
"""Connections from one address."""
MIN_INTERVAL_S = 0.1
"""Between two replies on a connection; a request that comes earlier waits."""
SHARE = 0.05
"""Of the loop's time, for replies: the next one waits 19 times as long as the last one took."""
MAX_PAUSE_S = 1.0
"""Limit of that wait: the last reply may have taken long because the host was suspended."""
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
    """Connections closed for others or beyond the limit, and requests answered with an error or not in time."""


class MetricsServer:
    """Serves what `snapshot` returns, as `text` writes it. `open` raises OSError if the address cannot be used."""

    def __init__(
        self,
        snapshot: Callable[[], NicStats],
        text: Callable[[NicStats, bool], tuple[str, bytes]],
        event_log: EventLog,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.counters = MetricsCounters()
        self.connections: set[MetricsConnection] = set()
        self.loop = loop
        self._snapshot = snapshot
        self._event_log = event_log
        self._text = text
        self._server: asyncio.Server | None = None
        self._free_at = 0.0
        """When the next reply may be made."""
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, address: Address) -> Address:
        """Listens at an address; port 0: any. Returns the address."""
        try:
            host, port = own_address(address)
            family = underlay.family(host)
            self._server = await self.loop.create_server(
                lambda: MetricsConnection(self), host, port, family=family, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            text = f"cannot serve metrics at {underlay.text(address)}: {bind_reason(error)}"
            raise OSError(error.errno, text) from error
        return underlay.of_socket(self._server.sockets[0].getsockname())

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.close()

    def admit(self, connection: MetricsConnection) -> bool:
        """Add a connection, and close another one if there are too many. Returns whether it was added."""
        same = [each for each in self.connections if each.address == connection.address]
        if len(same) >= MAX_OF_ADDRESS:
            others = same
        elif len(self.connections) >= MAX_CONNECTIONS:
            counts = Counter(each.address for each in self.connections)
            others = [each for each in self.connections if counts[each.address] == max(counts.values())]
        else:
            others = []
        if others:
            last = min(others, key=lambda each: (each.is_waiting, -each.replies * each.is_waiting, each.active_at))
            if last.is_waiting and not last.replies:
                return False
            self.counters.metrics_refused += 1
            self.connections.remove(last)
            last.close()
        self.connections.add(connection)
        return True

    def schedule(self) -> None:
        """Have the request that is due first answered."""
        due = min((each.due_at for each in self.connections if each.is_waiting), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self.loop.call_at(max(due, self._free_at), self._answer_one)

    def _answer_one(self) -> None:
        waiting = [each for each in self.connections if each.is_waiting]
        if waiting:
            began = self.loop.time()
            min(waiting, key=lambda each: each.due_at).reply()
            now = self.loop.time()
            self._free_at = now + min(MAX_PAUSE_S, (now - began) * (1 / SHARE - 1))
        self.schedule()

    def scrape(self, is_openmetrics: bool) -> tuple[str, bytes] | None:
        """Content type and metrics; None after an internal error, which is recorded."""
        try:
            found = self._text(self._snapshot(), is_openmetrics)
        except Exception:
            self._event_log.internal_error("internal error in a scrape of metrics")
            return None
        self.counters.metrics_scrapes += 1
        return found


class MetricsConnection(asyncio.Protocol):
    """A connection of a scraper: requests and replies in turn."""

    def __init__(self, server: MetricsServer) -> None:
        self.address = ""
        self.active_at = server.loop.time()
        """When it was opened, or had its last reply."""
        self.due_at = 0.0
        """When the request that waits may be answered."""
        self.replies = 0
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._head: bytes | None = None
        """The request that waits for its reply."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for its reply."""
        return self._head is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        if not self._server.admit(self):
            self._refuse(b"503 Service Unavailable")
            return
        self._expect(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.connections.discard(self)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._take_request()

    def _take_request(self) -> None:
        """Have the next request answered once all of it is there, and read no further until then."""
        assert self._transport is not None
        if self._transport.is_closing() or self.is_waiting:
            return
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_REQUEST:
            self._refuse(b"431 Request Header Fields Too Large")
        elif not end:
            return
        elif self._transport.get_write_buffer_size():
            self._refuse(b"429 Too Many Requests")  # the last reply was not read
        else:
            self._head, self._received = head, rest
            now = self._server.loop.time()
            self.due_at = max(now, self.active_at + MIN_INTERVAL_S) if self.replies else now
            self._transport.pause_reading()
            self._stop_timer()
            self._server.schedule()

    def reply(self) -> None:
        """Answer the request that waits."""
        assert self._head is not None
        assert self._transport is not None
        head, self._head = self._head, None
        self.replies += 1
        self.active_at = self._server.loop.time()
        self._reply(head)
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._take_request()

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
        self._stop_timer()
        self._timer = self._server.loop.call_later(time_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self._received:
            self._server.counters.metrics_refused += 1
        self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
