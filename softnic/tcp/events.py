"""What the stack tells its owner, in order, by `Host.events`.

Edge-triggered, one event a change: `Readable` comes again only after `consume`, `Writable` only after the send
buffer was found full, `Closed` once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection
    from softnic.tcp.listener import Listener


@dataclass(frozen=True, slots=True)
class Established:
    """A connection that this side opened stands."""

    connection: Connection


@dataclass(frozen=True, slots=True)
class AcceptReady:
    """A listener has a connection to accept."""

    listener: Listener


@dataclass(frozen=True, slots=True)
class Readable:
    """Bytes arrived, or the peer's FIN (`connection.eof`)."""

    connection: Connection


@dataclass(frozen=True, slots=True)
class Writable:
    """There is space in the send buffer again."""

    connection: Connection


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended: both directions finished (errno 0), aborted here (0), or failed.

    Bytes in `connection.received` can still be read.
    """

    connection: Connection
    errno: int


@dataclass(frozen=True, slots=True)
class EchoReply:
    """A ping came back after `rtt_s`."""

    peer: int
    sequence: int
    rtt_s: float


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A node has not answered for so long, and these connections to it have ended (liveness.py)."""

    peer: int
    silent_s: float
    connections: int


@dataclass(frozen=True, slots=True)
class PeerFound:
    """A node that was lost is there again."""

    peer: int


Event = Established | AcceptReady | Readable | Writable | Closed | EchoReply | PeerLost | PeerFound
