"""Another rank of a communicator, and what is known of it."""

from __future__ import annotations

import select
import socket

from softnic.comm import messages
from softnic.comm.zerocopy_channel import ZeroCopyChannel

Connections = tuple[socket.socket, ...]
"""CONTROL, PLAIN, TAGGED, ENGINE_CONTROL and DATA (messages.py), to one rank."""
Mesh = dict[int, Connections]
CREDIT_BYTES = 512 << 10
"""Limit of inline messages that one rank has sent to another and that were not received."""


class Peer:
    """Another rank. `channels` carry its messages, plain and compressed, once the NICs have joined."""

    __slots__ = (
        "channels",
        "control",
        "credit",
        "credit_due",
        "events",
        "gone",
        "joined",
        "left",
        "rank",
        "reader",
        "unsent",
        "waiting",
        "why",
    )

    def __init__(self, rank: int, connections: Connections) -> None:
        self.rank = rank
        self.control = connections[messages.CONTROL]
        self.channels: tuple[ZeroCopyChannel, ...] = ()
        self.reader = messages.Reader()
        self.unsent = bytearray()
        self.credit = CREDIT_BYTES
        """Bytes of inline messages that may be sent to it."""
        self.credit_due = 0
        """Bytes of inline messages received, to be reported to it."""
        self.waiting: messages.Waiting | None = None
        """The collective call that it waits in, if it does so for long."""
        self.joined = False
        """Its NIC has joined."""
        self.left: int | None = None
        """Its number of collective calls, once it has sent Leave."""
        self.why = ""
        """Why it has left."""
        self.gone: str | OSError = ""
        """Why it closed its connection, if it sent no Leave."""
        self.events = 0
        """Polled for."""

    @property
    def absent(self) -> bool:
        """Whether nothing new can come from it."""
        return self.left is not None or bool(self.gone)

    def channel(self, compressed: bool) -> ZeroCopyChannel:
        return self.channels[compressed]

    @property
    def poll_events(self) -> int:
        """The events to poll for."""
        return select.POLLIN | select.POLLOUT if self.unsent else select.POLLIN
