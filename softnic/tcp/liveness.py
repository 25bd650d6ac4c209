"""Which peers live: connections to a node that has gone silent end in bounded time, and those to a node that has begun
anew at once.

TCP alone learns of a dead peer only while it sends, and after a minute; who only reads would wait for ever. So a node
asks each peer that it has connections to, and of which it has heard nothing for `QUIET_S`, whether it is there: by
ARP, put to its MAC address (RFC 1122, section 2.3.2.1, "unicast poll"), which whatever speaks IPv4 on Ethernet answers.
One question a peer does, however many connections there are. A peer that has been silent for `TcpConfig.peer_timeout_s` is
lost, and its connections end with ETIMEDOUT, a reset on the way for the case that it does hear us.

Silence is counted in steps of questions put: time in which this node stood still itself counts little. Questions come
closer after the first that is not answered, so that a link which loses some frames kills nothing.

A node that begins announces itself (RFC 5227, section 2.3). Whoever has connections to it from an earlier life probes
them, and the answers are resets.

Departures: RFC 1122, section 4.2.3.5, wants 100 s and more before a connection is given up, for networks on which
routes come back. Here a program would rather know; `peer_timeout_s = None` is the RFC's way, TCP_USER_TIMEOUT that of one
connection.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Protocol

from softnic.tcp.config import TcpConfig
from softnic.tcp.flow import EventQueue, Flow
from softnic.tcp.output import send_probe
from softnic.tcp.state import HANDSHAKE, State
from softnic.tcp.transitions import abort

QUIET_S = 1.0
"""A peer that was heard within this is not asked."""
EVERY_S = 0.25
"""Between questions that get no answer."""
ANNOUNCE_S = (0.0, 1.0, 3.0)
"""When a node announces itself, counted from its start: some of it may be lost."""
MAX_LOST = 1024
"""Peers remembered as lost, so that it can be told when they are back."""
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A node has not answered for `silent_s`, and this number of connections to it have ended."""

    peer: int
    silent_s: float
    connections: int


@dataclass(frozen=True, slots=True)
class PeerFound:
    """A node that was lost answers again."""

    peer: int


class FlowTable(Protocol):
    """The connections of a node; `TcpStack` provides them."""

    config: TcpConfig

    @property
    def events(self) -> EventQueue:
        """Events for the owner of the stack."""

    @property
    def keys(self) -> Sized:
        """As many as there are connections."""

    @property
    def connections(self) -> Sequence[Flow]:
        """All connections, TIME-WAIT included."""


@dataclass(slots=True)
class _Suspect:
    """A peer that owes an answer."""

    heard: float
    """The last time."""
    looked: float
    silent_s: float
    """Since it was last heard, as far as this node was awake."""
    next_ask: float


class Liveness:
    """Of the peers of one node. `ask(ip, now)` puts a question to a peer, `announce(now)` tells all of this node."""

    def __init__(self, tcp: FlowTable, ask: Callable[[int, float], None], announce: Callable[[float], None]) -> None:
        self._tcp = tcp
        self._peer_timeout_s = tcp.config.peer_timeout_s
        self._ask = ask
        self._announce = announce
        self._announcements: list[float] = []
        self._look_at = NEVER
        self._answered: dict[int, float] = {}
        self._suspects: dict[int, _Suspect] = {}
        self._lost: dict[int, None] = {}
        self._probed: dict[int, float] = {}

    def begin(self, now: float) -> None:
        """This node has just begun: whoever knew an earlier one at its address is to know."""
        self._announcements = [now + later for later in ANNOUNCE_S]

    def heard(self, ip: int, now: float) -> None:
        """Something came from this peer that is no segment of a connection."""
        if ip in self._suspects:
            self._answered[ip] = now
        if ip in self._lost:
            del self._lost[ip]
            self._tcp.events.append(PeerFound(ip))

    def announced(self, ip: int, now: float) -> None:
        """A node has begun at this address: connections to the one before are probed, which the new one resets."""
        if now < self._probed.get(ip, -NEVER) + EVERY_S:
            return
        connections = self._to(ip)
        if not connections:  # whoever invents addresses is not remembered
            return
        self._probed = {other: at for other, at in self._probed.items() if now < at + EVERY_S}
        self._probed[ip] = now
        for c in connections:
            if c.state not in HANDSHAKE:
                send_probe(c, now)

    def advance(self, now: float) -> None:
        """Does what is due."""
        while self._announcements and now >= self._announcements[0]:
            self._announcements.pop(0)
            self._announce(now)
        if now >= self._look_at:
            self._look(now)
        elif self._look_at == NEVER and self._peer_timeout_s is not None and self._tcp.keys:
            self._look_at = now + QUIET_S

    def next_time(self) -> float:
        """When `advance` is to be called at the latest, if it was called since the last connection was made."""
        return min(self._announcements[0], self._look_at) if self._announcements else self._look_at

    def _look(self, now: float) -> None:
        """Finds the silent ones among all peers."""
        last: dict[int, float] = {}
        for c in self._tcp.connections:
            if _counts(c):
                ip = c.peer[0]
                last[ip] = max(last.get(ip, 0.0), c.last_heard)
        self._look_at = NEVER
        for ip in [ip for ip in self._suspects if ip not in last]:
            self._forget(ip)
        for ip, heard in last.items():
            heard = max(heard, self._answered.get(ip, heard))
            self._look_at = min(self._look_at, self._judge(ip, heard, now))

    def _judge(self, ip: int, heard: float, now: float) -> float:
        """Returns when to look at this peer again."""
        suspect = self._suspects.get(ip)
        if suspect is not None and heard > suspect.heard:
            self._forget(ip)
            suspect = None
        if suspect is None:
            if now < heard + QUIET_S:
                return heard + QUIET_S
            suspect = self._suspects[ip] = _Suspect(heard, now, QUIET_S, now)
        suspect.silent_s += min(now - suspect.looked, 2 * EVERY_S)
        suspect.looked = now
        if self._peer_timeout_s is not None and suspect.silent_s >= self._peer_timeout_s:
            self._lose(ip, suspect.silent_s, now)
        if now >= suspect.next_ask:
            suspect.next_ask = now + EVERY_S
            self._ask(ip, now)
        return suspect.next_ask

    def _forget(self, ip: int) -> None:
        self._suspects.pop(ip, None)
        self._answered.pop(ip, None)

    def _lose(self, ip: int, silent_s: float, now: float) -> None:
        """Ends the connections whose patience this exceeds."""
        ended = 0
        for c in self._to(ip):
            if silent_s >= self._timeout_of(c):
                text = f"{c.peer_name} is lost: its node has not answered for {silent_s:.1f} s"
                abort(c, now, errno.ETIMEDOUT, text)
                ended += 1
        if ended:
            self._tcp.events.append(PeerLost(ip, silent_s, ended))
            self._lost[ip] = None
            if len(self._lost) > MAX_LOST:
                del self._lost[next(iter(self._lost))]

    def _timeout_of(self, c: Flow) -> float:
        """What the program has set by TCP_USER_TIMEOUT goes before the node's."""
        if c.user_timeout_s != self._tcp.config.user_timeout_s:
            return c.user_timeout_s
        return self._peer_timeout_s or NEVER

    def _to(self, ip: int) -> list[Flow]:
        return [c for c in self._tcp.connections if c.peer[0] == ip and _counts(c)]


def _counts(c: Flow) -> bool:
    """Whether somebody may wait for this connection's peer, who is another node."""
    return c.state is not State.TIME_WAIT and c.peer[0] != c.local[0]
