"""Another rank of a communicator, and what is known of it."""

from __future__ import annotations

import select
import socket
from typing import Protocol

from softnic.comm import messages
from softnic.comm.inbox import Inbox
from softnic.comm.outbox import Outbox
from softnic.comm.zerocopy_channel import RecvOp, SendOp, ZeroCopyChannel

Connections = tuple[socket.socket, ...]
"""CONTROL, PLAIN, TAGGED, ENGINE_CONTROL and DATA (messages.py), to one rank."""
Mesh = dict[int, Connections]


class Peer:
    """Another rank. `channels` carry its messages, plain and compressed, once the NICs have joined."""

    __slots__ = (
        "channels",
        "control",
        "credit_due",
        "events",
        "gone",
        "inbox",
        "joined",
        "left",
        "outbox",
        "rank",
        "reports",
        "waiting",
        "why",
    )

    def __init__(self, rank: int, buffer: memoryview | None = None) -> None:
        self.rank = rank
        self.control: socket.socket | None = None
        """Its CONTROL connection; None: not yet."""
        self.channels: tuple[ZeroCopyChannel, ...] = ()
        self.inbox = Inbox(buffer)
        self.outbox = Outbox(-1, self._request)
        self.credit_due = 0
        """Bytes of inline messages received, to be reported to it."""
        self.waiting: messages.Waiting | None = None
        """The collective call that it waits in, if it does so for long."""
        self.joined = False
        """Its NIC has the connections to this rank."""
        self.reports: dict[int, messages.Paths] = {}
        """What its NIC has measured, by number: those that this rank has not used."""
        self.left: int | None = None
        """Its number of collective calls, once it has sent Leave."""
        self.why = ""
        """Why it has left."""
        self.gone: str | OSError = ""
        """Why it closed its connection, if it sent no Leave."""
        self.events = 0
        """Polled for."""

    def connect(self, control: socket.socket) -> None:
        """Exchange frames over this connection, which begins with what waits to be written."""
        self.control = control
        self.outbox.connect(control.fileno())

    @property
    def absent(self) -> bool:
        """Whether nothing new can come from it."""
        return self.left is not None or bool(self.gone)

    def channel(self, compressed: bool) -> ZeroCopyChannel:
        return self.channels[compressed]

    def _request(self, announce: messages.Announce, message: SendOp) -> None:
        self.channel(announce.compressed).send(message)

    @property
    def poll_events(self) -> int:
        """The events to poll for."""
        return select.POLLIN | select.POLLOUT if self.outbox else select.POLLIN


class FrameListener(Protocol):
    """Interprets frames about messages."""

    def announced(self, peer: Peer, announce: messages.Announce) -> None:
        """A message is about to arrive from the peer."""

    def started(self, peer: Peer, announce: messages.Announce) -> RecvOp:
        """A message arrives from the peer by and by: return where to put it."""

    def taken(self, number: int) -> None:
        """A receive of the peer has taken a synchronous message."""
