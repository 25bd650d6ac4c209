"""Messages on their way, and the connections that they travel on.

A data connection (`Channel`) has two queues, in the order in which the bytes travel: `Outgoing`, each with a mark up
to which it may be sent yet, and `Incoming`, each with a place for it or, still without one, holding the connection
back. What is read goes from the socket straight to its place. Nothing here waits.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import TYPE_CHECKING

from softnic.comm import messages

if TYPE_CHECKING:
    from softnic.comm.registered import Direct

Connections = tuple[socket.socket, ...]
"""CONTROL, PLAIN, TAGGED, WORDS and DATA (wire.py), to one rank."""
Mesh = dict[int, Connections]

READ_BYTES = 1 << 20
"""Taken from or given to one socket at a time, so that the others get their turn."""
_ZEROS = memoryview(bytes(messages.UNIT))
BROKEN = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Outgoing:
    """A message on its way out: `data`, of which the first `ready` bytes may go, then padding."""

    __slots__ = ("data", "home", "lent", "pad", "ready", "sent", "tell")

    def __init__(self, data: memoryview, pad: int, *, ready: bool = True) -> None:
        self.data = data
        self.pad = pad
        self.ready = data.nbytes if ready else 0
        self.sent = 0
        self.home: tuple[int, int] | None = None
        """In registered mode: the region and offset that the data has, if it goes from there (registered.py)."""
        self.lent = 0
        """Of `sent`: what the NIC has yet to read from there."""
        self.tell = True
        """Its memory is waited for."""

    @property
    def posted(self) -> bool:
        return self.sent == self.data.nbytes + self.pad

    @property
    def complete(self) -> bool:
        return self.posted and not self.lent

    @property
    def sendable(self) -> bool:
        return self.sent < self.ready or (self.ready == self.data.nbytes and not self.posted)

    def push(self, connection: socket.socket) -> None:
        if self.sent < self.ready:
            self.sent += connection.send(self.data[self.sent : min(self.ready, self.sent + READ_BYTES)])
        else:
            self.sent += connection.send(_ZEROS[: self.data.nbytes + self.pad - self.sent])


class Incoming:
    """A message on its way in. Without a place, it and what is behind it stay with the sender."""

    __slots__ = ("asked", "pad", "place", "received", "size")

    def __init__(self, size: int, pad: int, place: memoryview | None = None) -> None:
        self.size = size
        self.pad = pad
        self.place = place
        self.received = 0
        self.asked = 0
        """In registered mode: bytes that the NIC was asked for."""

    @property
    def complete(self) -> bool:
        return self.received == self.size + self.pad

    @property
    def open(self) -> bool:
        """Whether there is room now for what comes next."""
        return self.place is not None

    def pull(self, connection: socket.socket) -> int:
        """Reads once. Returns the bytes, 0 at the end of the stream."""
        if self.received < self.size:
            count = connection.recv_into(self.window())
        else:
            count = connection.recv_into(bytearray(self.size + self.pad - self.received))
        self.arrived(count)
        return count

    def arrived(self, count: int) -> None:
        """So many bytes more are in their place, or were padding."""
        self.received += count

    def window(self) -> memoryview:
        """Where the next bytes go."""
        assert self.place is not None
        return self.place[self.received : self.received + READ_BYTES]

    def window_to_ask(self) -> memoryview:
        """Where the next bytes go that the NIC was not asked for yet; empty if they cannot go anywhere now."""
        assert self.place is not None
        return self.place[self.asked : self.size]

    @property
    def step(self) -> int:
        """After how many bytes, at most, the NIC should tell. 0: when it has all that it was asked for."""
        return 0


class Channel:
    """A data connection to one rank."""

    __slots__ = ("codec", "connection", "direct", "ended", "incoming", "mask", "outgoing", "peer")

    def __init__(self, peer: Peer, connection: socket.socket) -> None:
        self.peer = peer
        self.connection = connection
        self.outgoing: deque[Outgoing] = deque()
        self.incoming: deque[Incoming] = deque()
        self.direct: Direct | None = None
        """The registered mode, once something registered has come this way."""
        self.codec = ""
        """Set on the connection, for what is queued from now on."""
        self.ended: OSError | None = None
        """Why what should come or go cannot."""
        self.mask = -1
        """The events polled for; -1: it is not polled."""

    def send(self, message: Outgoing) -> None:
        """Queues a message."""
        if self.direct is not None:
            self.direct.adopt(message)
        self.outgoing.append(message)

    def wants(self) -> int:
        """The events to poll for. An empty message is over as soon as it is at the head."""
        if self.direct is not None:
            return self.direct.wants(self.incoming, self.outgoing)
        incoming, outgoing = self.incoming, self.outgoing
        while incoming and incoming[0].complete:
            incoming.popleft()
        while outgoing and outgoing[0].complete:
            outgoing.popleft()
        mask = select.POLLIN if incoming and incoming[0].open else 0
        return mask | select.POLLOUT if outgoing and outgoing[0].sendable else mask

    def handle(self, events: int) -> None:
        if self.direct is not None:
            self.direct.handle(events, self.outgoing)
            return
        if (
            events & (select.POLLIN | BROKEN)
            and self.wants() & select.POLLIN
            and not self.incoming[0].pull(self.connection)
        ):
            raise ConnectionResetError("it closed the connection")
        if events & select.POLLOUT and self.wants() & select.POLLOUT:
            self.outgoing[0].push(self.connection)


class Peer:
    """Another rank, and what is known of it."""

    __slots__ = ("channels", "control", "gone", "heads", "joined", "left", "mask", "rank", "reader", "unsent", "why")

    def __init__(self, rank: int, connections: Connections) -> None:
        self.rank = rank
        self.control = connections[messages.CONTROL]
        self.channels = (Channel(self, connections[messages.PLAIN]), Channel(self, connections[messages.TAGGED]))
        self.reader = messages.Reader()
        self.unsent = bytearray()
        self.heads: deque[messages.Head] = deque()
        """Collective calls that it has entered and this rank has not."""
        self.joined = False
        """Its NIC takes part in what NICs execute."""
        self.left: int | None = None
        self.why = ""
        """Its number of collective calls, once it has said Leave."""
        self.gone: str | OSError = ""
        """Why there is no connection any more, if it closed without a Leave."""
        self.mask = 0

    @property
    def absent(self) -> bool:
        """Nothing new can come from it."""
        return self.left is not None or bool(self.gone)

    def channel(self, tagged: bool) -> Channel:
        return self.channels[tagged]

    def wants(self) -> int:
        return select.POLLIN | select.POLLOUT if self.unsent else select.POLLIN
