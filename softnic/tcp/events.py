"""Events of a node, in order, in `Host.events`."""

from __future__ import annotations

from dataclasses import dataclass

from softnic.tcp.connection import Closed, Established, Readable, Writable
from softnic.tcp.listener import AcceptReady
from softnic.tcp.liveness import PeerFound, PeerLost


@dataclass(frozen=True, slots=True)
class EchoReply:
    """A ping came back after `rtt_s`."""

    peer: int
    sequence: int
    rtt_s: float


Event = Established | AcceptReady | Readable | Writable | Closed | EchoReply | PeerLost | PeerFound
