"""Liveness of peers: connections to a node that went silent end in bounded time, those to a restarted one at once.

TCP alone detects a dead peer only while it sends, and after a minute; a process that only reads would wait for ever. So
a node polls each peer with connections that it has not heard for `QUIET_S`, by a unicast ARP request (RFC 1122, section
2.3.2.1), which every IPv4 host on Ethernet answers: one request per peer, however many connections there are. A peer
that stays silent for `TcpConfig.peer_timeout_s` is lost: its connections end with ETIMEDOUT, and a reset is sent in
case it does hear us.

Silence is counted in steps between requests, so time during which this node itself stood still counts little. Requests
follow more quickly after the first one without an answer, so that a lossy link ends no connection.

A node announces itself when it starts (RFC 5227, section 2.3). Nodes with connections to its predecessor then probe
them, and the answers are resets.

Departures: RFC 1122, section 4.2.3.5, requires at least 100 s before a connection is given up, for networks whose
routes recover. Training prefers to know. `peer_timeout_s = None` follows the RFC; TCP_USER_TIMEOUT sets the time of one
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
"""A peer heard within this time is not polled."""
EVERY_S = 0.25
"""Interval of requests without an answer."""
ANNOUNCE_S = (0.0, 1.0, 3.0)
"""Times of a node's announcements after its start: some may be lost."""
MAX_LOST = 1024
"""Limit of the lost peers remembered, to report their return."""
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A node has not answered for `silent_s`, and this number of connections to it have ended."""

    peer: int
    silent_s: float
    connections: int
    relay: str = ""
    """Address of the relay by which it was reached; empty: by none."""


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

    opened: int
    """Number of connections so far."""

    @property
    def keys(self) -> Sized:
        """As many as there are connections."""

    @property
    def connections(self) -> Sequence[Flow]:
        """All connections, TIME-WAIT included."""


@dataclass(slots=True)
class _Suspect:
    """A peer that has not answered."""

    heard: float
    """When the peer was last heard."""
    looked: float
    silent_s: float
    """Time since then during which this node was running."""
    next_ask: float


class Liveness:
    """Liveness of a node's peers.

    Parameters
    ----------
    tcp : FlowTable
        The connections of the node.
    ask : callable
        Polls a peer, at a time.
    announce : callable
        Announces this node, at a time.
    relay_of : callable
        Returns the address of the relay that a peer is reached by, for errors; empty: it is reached directly.
    """

    def __init__(
        self,
        tcp: FlowTable,
        ask: Callable[[int, float], None],
        announce: Callable[[float], None],
        relay_of: Callable[[int], str] = lambda _ip: "",
    ) -> None:
        self._tcp = tcp
        self._relay_of = relay_of
        self._peer_timeout_s = tcp.config.peer_timeout_s
        self._ask = ask
        self._announce = announce
        self._announcements: list[float] = []
        self._look_at = NEVER
        self._seen = 0
        """Connections that there had been when it last looked, or began to."""
        self._answered: dict[int, float] = {}
        self._suspects: dict[int, _Suspect] = {}
        self._lost: dict[int, None] = {}
        self._probed: dict[int, float] = {}

    def begin(self, now: float) -> None:
        """Announces this node to peers of a predecessor at its address."""
        self._announcements = [now + later for later in ANNOUNCE_S]

    def heard(self, ip: int, now: float) -> None:
        """Notes a packet of a peer that is not a segment of a connection."""
        if ip in self._suspects:
            self._answered[ip] = now
        if ip in self._lost:
            del self._lost[ip]
            self._tcp.events.append(PeerFound(ip))

    def announced(self, ip: int, now: float) -> None:
        """Probes connections to a node that has restarted, which resets them."""
        if now < self._probed.get(ip, -NEVER) + EVERY_S:
            return
        connections = self._to(ip)
        if not connections:  # forged addresses are not remembered
            return
        self._probed = {other: at for other, at in self._probed.items() if now < at + EVERY_S}
        self._probed[ip] = now
        for c in connections:
            if c.state not in HANDSHAKE:
                send_probe(c, now)

    def advance(self, now: float) -> None:
        """Sends the announcements and requests that are due."""
        while self._announcements and now >= self._announcements[0]:
            self._announcements.pop(0)
            self._announce(now)
        self._seen = self._tcp.opened
        if now >= self._look_at:
            self._look(now)
        elif self._look_at == NEVER and self._peer_timeout_s is not None and self._tcp.keys:
            self._look_at = now + QUIET_S

    def next_time(self) -> float:
        """When `advance` is to be called at the latest; -infinity: at once, for connections that it has not seen."""
        if self._look_at == NEVER and self._peer_timeout_s is not None and self._tcp.opened != self._seen:
            return -NEVER
        return min(self._announcements[0], self._look_at) if self._announcements else self._look_at

    def _look(self, now: float) -> None:
        """Finds silent peers."""
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
        """Polls a silent peer, or ends its connections. Returns when to check it again."""
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
        """Ends the connections whose timeout has passed."""
        ended, relay = 0, self._relay_of(ip)
        for c in self._to(ip):
            if silent_s >= self._timeout_of(c):
                text = f"{c.peer_name} is lost: its node has not answered for {silent_s:.1f} s{relayed(relay)}"
                abort(c, now, errno.ETIMEDOUT, text)
                ended += 1
        if ended:
            self._tcp.events.append(PeerLost(ip, silent_s, ended, relay))
            self._lost[ip] = None
            if len(self._lost) > MAX_LOST:
                del self._lost[next(iter(self._lost))]

    def end(self, ip: int, number: int, text: str, now: float) -> None:
        """Ends all connections to a node with this errno and text."""
        for c in self._to(ip):
            abort(c, now, number, f"{c.peer_name}: {text}")

    def _timeout_of(self, c: Flow) -> float:
        """Returns the timeout of a connection: TCP_USER_TIMEOUT if set, or the node's."""
        if c.user_timeout_s != self._tcp.config.user_timeout_s:
            return c.user_timeout_s
        return self._peer_timeout_s or NEVER

    def _to(self, ip: int) -> list[Flow]:
        return [c for c in self._tcp.connections if c.peer[0] == ip and _counts(c)]


def relayed(relay: str) -> str:
    """Return what an error adds for a peer that was reached by a relay at this address; empty: by none."""
    return f", relayed by {relay}" if relay else ""


def _counts(c: Flow) -> bool:
    """Whether the connection depends on another node."""
    return c.state is not State.TIME_WAIT and c.peer[0] != c.local[0]
