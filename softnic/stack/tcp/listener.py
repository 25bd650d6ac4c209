"""LISTEN: a port that waits for connections, and those that wait to be accepted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.stack.tcp.connection import Connection
    from softnic.stack.tcp.layer import Tcp


class Listener:
    """Like Linux, `backlog` bounds the connections not yet accepted (one more fits), and those half open apart.

    A connection that fails before it is accepted stays in the queue, with its `error`.
    """

    def __init__(self, tcp: Tcp, ip: int, port: int, backlog: int) -> None:
        self._tcp = tcp
        self.ip = ip
        """The local address, 0 for any."""
        self.port = port
        self.backlog = max(0, backlog)
        self.half_open: set[Connection] = set()
        self.queue: deque[Connection] = deque()
        self.closed = False

    @property
    def full(self) -> bool:
        """Whether another SYN has to be dropped."""
        limit = max(self.backlog, self._tcp.config.half_open_limit)
        return len(self.queue) > self.backlog or len(self.half_open) >= limit

    def accept(self) -> Connection | None:
        """The next established connection, or None. Bytes may have arrived on it already."""
        return self.queue.popleft() if self.queue else None

    def close(self, now: float) -> None:
        """Stops listening; connections nobody accepted are reset."""
        if self.closed:
            return
        self.closed = True
        self._tcp.remove_listener(self)
        for connection in [*self.half_open, *self.queue]:
            connection.abort(now)
        self.queue.clear()
