"""TCP of one node: who gets a segment, whose turn it is to send, whose timer is due, which ports are taken."""

from __future__ import annotations

import errno
import heapq
import itertools
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, KeysView
from random import Random

from softnic.packet import ipv4
from softnic.packet.segment import Flags, Segment, Transmitted
from softnic.tcp import isn, seq
from softnic.tcp.arm_timers import arm
from softnic.tcp.budget import Budget
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import LEAST_TURN_BYTES, TURN_BYTES, Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.events import Event
from softnic.tcp.input import process_segment
from softnic.tcp.listener import Listener, may_reuse_time_wait
from softnic.tcp.output import output
from softnic.tcp.path_mtu import PathMtus
from softnic.tcp.state import State
from softnic.tcp.syn_cookies import SynCookies
from softnic.tcp.timers import on_timer

FIN, SYN, RST, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.ACK))
_SPARE_TIMERS = 64
_ISN_DISTANCE = 0x10000
_EPHEMERAL = range(32768, 61000)
"""As Linux."""
_HERE_BYTES = 1 << 20
"""Of frames that one connection to the node itself sends in one turn."""

Key = tuple[int, int, int]
"""Peer's address, peer's port, local port."""
Send = Callable[[Segment, int, float], Transmitted | None]
"""Sends a segment in at most so many frames, and counts it; None: not now, the peer's MAC is not known yet."""


class TcpStack:
    """`send` is how segments leave; `offload_tos` the ToS values (low two bits clear) whose bytes are floats."""

    def __init__(
        self,
        ip: int,
        send: Send,
        rng: Random,
        config: TcpConfig,
        counters: StackCounters,
        events: deque[Event],
        offload_tos: Collection[int],
    ) -> None:
        self.ip = ip
        self.rng = rng
        self.config = config
        self.counters = counters
        self.events = events
        self.offload_tos = offload_tos
        self.transmit = send
        self.budget = Budget(config.buffer_memory)
        """Of what connections' buffers have grown by, and of what came out of order."""
        self.path_mtus = PathMtus()
        self.full_at = float("-inf")
        """When the link's queue was last seen full: while it is, it paces, and streams share it by turns."""
        self._secret = rng.randbytes(16)
        self.cookies = SynCookies(rng.randbytes(16))
        self._connections: dict[Key, Connection] = {}
        self._listeners: dict[int, Listener] = {}
        self._reserved: Counter[int] = Counter()
        self._local_ports: Counter[int] = Counter()
        self._time_waits: OrderedDict[Key, Connection] = OrderedDict()
        self._ready: deque[Connection] = deque()
        self._ready_loopback: deque[Connection] = deque()
        """Those to the node itself."""
        self._timers: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()

    # Ports

    def reserve(self, port: int, reuse: bool) -> int:
        """Takes a local port (0: any free one), as bind() does. Returns it. Raises OSError EADDRINUSE."""
        if not port:
            port = self._free_port(lambda port: not self._local_ports[port])
        elif self._reserved[port] or port in self._listeners or (self._local_ports[port] and not reuse):
            raise _error(errno.EADDRINUSE, f"port {port} of {ipv4.text(self.ip)} is in use")
        self._reserved[port] += 1
        return port

    def release(self, port: int) -> None:
        """Gives a reserved port back. Connections and listeners on it stay."""
        self._reserved[port] -= 1
        if self._reserved[port] <= 0:
            del self._reserved[port]

    def _free_port(self, usable: Callable[[int], bool]) -> int:
        start = self.rng.randrange(len(_EPHEMERAL))
        for step in range(len(_EPHEMERAL)):
            port = _EPHEMERAL[(start + step) % len(_EPHEMERAL)]
            if port not in self._listeners and not self._reserved[port] and usable(port):
                return port
        raise _error(errno.EADDRNOTAVAIL, "no ephemeral port is free")

    # Opening

    def listen(self, ip: int, port: int, backlog: int) -> Listener:
        """`ip` 0: any address; port 0: any free one. Raises OSError EADDRINUSE, EADDRNOTAVAIL (not our address)."""
        if ip not in (0, self.ip):
            raise _error(errno.EADDRNOTAVAIL, f"{ipv4.text(ip)} is not this node's address")
        if not port:
            port = self._free_port(lambda port: not self._local_ports[port])
        if port in self._listeners:
            raise _error(errno.EADDRINUSE, f"port {port} of {ipv4.text(self.ip)} is in use")
        listener = self._listeners[port] = Listener(self, ip, port, backlog)
        return listener

    def remove_listener(self, listener: Listener) -> None:
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]

    def connect(self, dst: int, dport: int, now: float, sport: int = 0) -> Connection:
        """Starts a connection. Raises OSError EADDRINUSE where the four addresses and ports are one already."""
        if not sport:
            sport = self._free_port(lambda port: (dst, dport, port) not in self._connections)
        old = self._connections.get((dst, dport, sport))
        if old is not None and old.state is not State.TIME_WAIT:
            raise _error(errno.EADDRINUSE, f"port {sport} is connected to {ipv4.text(dst)}:{dport} already")
        connection = self._add(dst, dport, sport, now, old)
        connection.state = State.SYN_SENT
        connection.syn_pending = True
        arm(connection, now)
        self.wake(connection)
        self.counters.connections_opened += 1
        return connection

    def _add(self, peer_ip: int, peer_port: int, port: int, now: float, old: Connection | None = None) -> Connection:
        """A new connection; one that follows an `old` one in TIME-WAIT begins behind all that this sent (RFC 6191;
        RFC 9293, section 3.6.1)."""
        connection = Connection(self, (self.ip, port), (peer_ip, peer_port), now)
        if old is not None:
            behind = seq.number(old.snd.iss, old.snd.snd_nxt + _ISN_DISTANCE)
            if seq.after(behind, connection.snd.iss):
                connection.snd.iss = behind
            old.finish(0, "")
        self._connections[peer_ip, peer_port, port] = connection
        self._local_ports[port] += 1
        return connection

    def initial_sequence(self, local: tuple[int, int], peer: tuple[int, int], now: float) -> int:
        return isn.initial_sequence(self._secret, local, peer, now)

    def timestamp_offset(self, peer: int) -> int:
        return isn.timestamp_offset(self._secret, self.ip, peer)

    # Receiving

    def receive(self, s: Segment, now: float) -> None:
        """A segment for this node."""
        self.counters.segments_received += 1
        connection = self._connections.get((s.src, s.sport, s.dport))
        old: Connection | None = None
        if (
            connection is not None
            and connection.state is State.TIME_WAIT
            and may_reuse_time_wait(connection, s)
            and (s.dport in self._listeners)
        ):
            old, connection = connection, None
        if connection is not None:
            process_segment(connection, s, now)
            return
        listener = self._listeners.get(s.dport)
        kind = s.flags & (ACK | RST | SYN)
        if listener is not None and kind == SYN:
            listener.syn_arrives(s, old, now)
        elif listener is None or kind != ACK or not listener.answers_cookie(s, now):
            self.counters.dropped_no_connection += 1
            if not s.flags & RST:
                self.reset_for(s, now)

    def accept(self, listener: Listener, s: Segment, now: float, old: Connection | None = None) -> Connection:
        """A connection that a segment opens at a listener: half open from now on."""
        connection = self._add(s.src, s.sport, s.dport, now, old)
        connection.listener = listener
        connection.state = State.SYN_RECEIVED
        listener.half_open.add(connection)
        return connection

    def find(self, peer_ip: int, peer_port: int, port: int) -> Connection | None:
        return self._connections.get((peer_ip, peer_port, port))

    def reset_for(self, s: Segment, now: float) -> None:
        """The RST that a segment for no connection deserves (RFC 9293, section 3.5.2)."""
        self.counters.resets_sent += 1
        reply = Segment(s.dst, s.src, s.dport, s.sport, s.ack if s.flags & ACK else 0, 0, RST)
        if not s.flags & ACK:
            length = len(s.payload) + bool(s.flags & SYN) + bool(s.flags & FIN)
            reply.ack = seq.number(s.seq, length)
            reply.flags = RST | ACK
        self.transmit(reply, 1, now)

    # Sending

    def wake(self, connection: Connection) -> None:
        """It may have something to send."""
        if not connection.queued:
            connection.queued = True
            (self._ready_loopback if connection.peer[0] == self.ip else self._ready).append(connection)

    @property
    def wants_output(self) -> bool:
        return bool(self._ready)

    @property
    def wants_output_loopback(self) -> bool:
        return bool(self._ready_loopback)

    def output(self, now: float, room_bytes: int) -> int:
        """Lets connections send by turns while there is room. Returns the wire bytes.

        Turns are counted in wire bytes (deficit round robin: Shreedhar and Varghese, 1995), so that each gets the same
        share of the link, although a super-segment of one may become a hundred times as many frames as another's.
        """
        left = room_bytes
        while self._ready and left > 0:
            left -= self._serve(self._ready, left, now)
        return room_bytes - left

    def output_loopback(self, now: float) -> None:
        """Lets each connection to the node itself send once: what stays here waits for no link."""
        for _ in range(len(self._ready_loopback)):
            self._serve(self._ready_loopback, _HERE_BYTES, now)

    def _serve(self, ready: deque[Connection], room_bytes: int, now: float) -> int:
        """Whose turn it is. Returns the wire bytes."""
        connection = ready[0]
        if len(ready) > 1 and room_bytes > connection.turn_bytes:
            room_bytes = connection.turn_bytes
        sent = output(connection, now, room_bytes // connection.congestion.smss or 1)
        connection.turn_bytes -= sent
        if sent and connection.has_output:
            if connection.turn_bytes >= LEAST_TURN_BYTES:
                return sent
            ready.rotate(-1)
            connection.turn_bytes = max(0, connection.turn_bytes + TURN_BYTES)
        else:
            ready.popleft()
            connection.queued = False
            connection.turn_bytes = TURN_BYTES
        return sent

    # Addresses

    def resolved(self, ip: int) -> None:
        """The peer's MAC is known: what waited for it can go."""
        for connection in self._to(ip):
            self.wake(connection)

    def unreachable(self, ip: int) -> None:
        """ARP has failed. Ends connections that are being opened; others keep trying until they time out."""
        for connection in self._to(ip):
            text = f"no route to {connection.peer_name}: its address does not answer ARP"
            connection.soft_error = errno.EHOSTUNREACH, text
            if connection.state is State.SYN_SENT:
                connection.time_out(0.0)

    def _to(self, ip: int) -> list[Connection]:
        return [connection for key, connection in self._connections.items() if key[0] == ip]

    # Time

    def schedule(self, connection: Connection) -> None:
        """Sees to it that its timers are looked at in time. Timers that moved back are found when they come up."""
        deadline = connection.deadline
        if deadline < connection.scheduled_at:
            connection.scheduled_at = deadline
            heapq.heappush(self._timers, (deadline, next(self._order), connection))
            if len(self._timers) > 2 * len(self._connections) + _SPARE_TIMERS:
                self._timers = [timer for timer in self._timers if timer[0] == timer[2].scheduled_at]
                heapq.heapify(self._timers)

    def advance(self, now: float) -> None:
        """Does what is due."""
        while self._timers and self._timers[0][0] <= now:
            at, _, connection = heapq.heappop(self._timers)
            if at != connection.scheduled_at:
                continue  # a nearer one took its place
            connection.scheduled_at = connection.NEVER
            if connection.deadline <= now:
                on_timer(connection, now)
            self.schedule(connection)

    def next_time(self) -> float | None:
        """When `advance` is to be called next. May be early, never late."""
        timers = self._timers
        while timers and timers[0][0] != timers[0][2].scheduled_at:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def time_waits(self, connection: Connection) -> None:
        """Bounds the connections in TIME-WAIT: the oldest make place."""
        self._time_waits[_key(connection)] = connection
        if len(self._time_waits) > self.config.max_time_waits:
            next(iter(self._time_waits.values())).finish(0, "")

    def forget(self, connection: Connection) -> None:
        key = _key(connection)
        connection.scheduled_at = connection.NEVER
        if self._connections.get(key) is connection:
            del self._connections[key]
            self._local_ports[key[2]] -= 1
            if not self._local_ports[key[2]]:
                del self._local_ports[key[2]]
        if self._time_waits.get(key) is connection:
            del self._time_waits[key]

    @property
    def keys(self) -> KeysView[Key]:
        """What connections there are, TIME-WAIT included."""
        return self._connections.keys()

    @property
    def connections(self) -> list[Connection]:
        """All of them, TIME-WAIT included."""
        return list(self._connections.values())


def _key(connection: Connection) -> Key:
    return connection.peer[0], connection.peer[1], connection.local[1]


def _error(number: int, message: str) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {message}")
