"""TCP of one node: the table of flows, ports, and the way of a segment to its connection or listener."""

from __future__ import annotations

import errno
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, KeysView
from itertools import chain
from random import Random

from softnic._native import ffi
from softnic.packet import ipv4
from softnic.packet.ethernet import mac_of
from softnic.packet.segment import Flags, Segment, Transmitted
from softnic.tcp import isn, seq
from softnic.tcp.arm_timers import arm_rto, expire_rto
from softnic.tcp.budget import Budget
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.events import Event
from softnic.tcp.fast_path import FastPath, SendOutput
from softnic.tcp.flow import Flow
from softnic.tcp.input import process_segment
from softnic.tcp.listener import Listener, may_reuse_time_wait
from softnic.tcp.output import request_syn, send_reset_for
from softnic.tcp.pmtu_cache import PathMtus
from softnic.tcp.scheduler import Scheduler
from softnic.tcp.scoreboard import Ack
from softnic.tcp.send_buffer import CutsOf, coding_blocks
from softnic.tcp.state import State
from softnic.tcp.syn_cookies import SynCookies
from softnic.tcp.timers import on_timer
from softnic.tcp.transitions import finish, note_soft_error, open_active, time_out

FIN, SYN, RST, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.ACK))
_ISN_DISTANCE = 0x10000
_EPHEMERAL = range(32768, 61000)
"""As Linux."""

Key = tuple[int, int, int]
"""Peer's address, peer's port, local port."""
Candidates = Callable[[int, int], Iterable[int]]
"""Returns the ports that a connection may have, from the first to before the second number."""
Send = Callable[[Segment, int, float], Transmitted | None]
"""Sends a segment in at most a number of frames, and counts it; None: the peer's MAC address is not known yet."""


class TcpStack:
    """`send` transmits segments, `send_output` those of the fast path.

    `offload_tos` are the ToS values (low two bits clear) whose bytes are floats, `cuts_of` returns where a range with a
    tag may be cut.
    """

    def __init__(
        self,
        ip: int,
        send: Send,
        rng: Random,
        config: TcpConfig,
        counters: StackCounters,
        events: deque[Event],
        offload_tos: Collection[int],
        cuts_of: CutsOf = coding_blocks,
        send_output: SendOutput | None = None,
    ) -> None:
        self.ip = ip
        self.rng = rng
        self.config = config
        self.counters = counters
        self.events = events
        self.offload_tos = offload_tos
        self.cuts_of = cuts_of
        self.transmit = send
        self.budget = Budget(config.buffer_memory)
        """Shared by the growth of buffers and by out-of-order data."""
        self.path_mtus = PathMtus()
        self.link_full_at = float("-inf")
        """When the link's queue was last full: while it is, the link paces, and streams share it by turns."""
        self.ack = Ack()
        self.out = ffi.new("sn_output *")
        self.out_fields = ffi.buffer(self.out)
        self._secret = rng.randbytes(16)
        self.cookies = SynCookies(rng.randbytes(16))
        self._connections: dict[Key, Connection] = {}
        self.lookup: Callable[[Key], Connection | None] = self._connections.get
        """The flow of a `Key`, TIME-WAIT included; None: there is none."""
        self.opened = 0
        """Number of connections so far."""
        self._listeners: dict[int, list[Listener]] = {}
        self._reserved: Counter[int] = Counter()
        self._shared: set[int] = set()
        """Reserved ports on which there may be several listeners."""
        self._local_ports: Counter[int] = Counter()
        self._time_waits: OrderedDict[Key, Flow] = OrderedDict()
        self._fast_path = FastPath(send_output)
        self.scheduler = Scheduler(ip, self._fast_path.output)
        self.wake = self.scheduler.wake
        self.schedule = self.scheduler.schedule
        self.next_time = self.scheduler.next_time
        """When `advance` is to be called next; may be early, never late."""

    # Ports

    def reserve(self, port: int, reuse: bool, share: bool = False) -> int:
        """Takes a local port (0: any free one), as bind() does; `share`: others that share it may take it too.

        Returns it. Raises OSError EADDRINUSE.
        """
        if not port:
            port = self._free_port(lambda port: not self._local_ports[port])
        elif not (share and port in self._shared):
            reuse = reuse or share
            if self._reserved[port] or port in self._listeners or (self._local_ports[port] and not reuse):
                raise _error(errno.EADDRINUSE, f"port {port} of {ipv4.text(self.ip)} is in use")
        self._reserved[port] += 1
        if share:
            self._shared.add(port)
        return port

    def share_ports(self, other: TcpStack) -> None:
        """Reserves the ports of another queue of the same node, by whose stack alone they are reserved and released."""
        self._reserved, self._shared = other._reserved, other._shared

    def is_connected_at(self, port: int) -> bool:
        """Whether a connection has this local port."""
        return self._local_ports[port] > 0

    def release(self, port: int) -> None:
        """Returns a reserved port. Connections and listeners on it stay."""
        self._reserved[port] -= 1
        if self._reserved[port] <= 0:
            del self._reserved[port]
            self._shared.discard(port)

    def _free_port(self, usable: Callable[[int], bool], candidates: Candidates = range) -> int:
        start = _EPHEMERAL[self.rng.randrange(len(_EPHEMERAL))]
        for port in chain(candidates(start, _EPHEMERAL.stop), candidates(_EPHEMERAL.start, start)):
            if port not in self._listeners and not self._reserved[port] and usable(port):
                return port
        raise _error(errno.EADDRNOTAVAIL, "no ephemeral port is free")

    def _port_to(self, dst: int, dport: int, candidates: Candidates) -> int:
        """Returns a local port for a connection: a free one, or if there is none, one whose last is in TIME-WAIT."""

        def is_over(port: int) -> bool:
            old = self._connections.get((dst, dport, port))
            return old is None or old.state is State.TIME_WAIT

        try:
            return self._free_port(lambda port: (dst, dport, port) not in self._connections, candidates)
        except OSError:
            return self._free_port(is_over, candidates)

    # Opening

    def listen(self, ip: int, port: int, backlog: int, unaccepted: Callable[[], int] = lambda: 0) -> Listener:
        """`ip` 0: any address; port 0: any free one. Raises OSError EADDRINUSE, EADDRNOTAVAIL (not our address).

        At a loopback address it accepts connections of this node only. `unaccepted` counts connections that have left
        the listener's queue and that the application has not accepted.
        """
        if ip not in (0, self.ip) and not ipv4.is_loopback(ip):
            raise _error(errno.EADDRNOTAVAIL, f"{ipv4.text(ip)} is not this node's address")
        if not port:
            port = self._free_port(lambda port: not self._local_ports[port])
        if port in self._listeners and port not in self._shared:
            raise _error(errno.EADDRINUSE, f"port {port} of {ipv4.text(self.ip)} is in use")
        listener = Listener(self, ip, port, backlog, self._remove_listener, unaccepted)
        self._listeners.setdefault(port, []).append(listener)
        return listener

    def _remove_listener(self, listener: Listener) -> None:
        sharing = self._listeners.get(listener.port, [])
        if listener in sharing:
            sharing.remove(listener)
            if not sharing:
                del self._listeners[listener.port]

    def _listener_of(self, s: Segment) -> Listener | None:
        """Returns the listener for a segment: of those that share its port always the same one for a peer."""
        sharing = self._listeners.get(s.dport)
        if not sharing:
            return None
        return sharing[hash((s.src, s.sport)) % len(sharing)] if len(sharing) > 1 else sharing[0]

    def connect(self, dst: int, dport: int, now: float, sport: int = 0, candidates: Candidates = range) -> Connection:
        """Starts a connection, from one of the `candidates` if no port is given.

        Raises OSError EADDRINUSE if the four addresses and ports are already connected.
        """
        if not sport:
            sport = self._port_to(dst, dport, candidates)
        old = self._connections.get((dst, dport, sport))
        if old is not None and old.state is not State.TIME_WAIT:
            raise _error(errno.EADDRINUSE, f"port {sport} is connected to {ipv4.text(dst)}:{dport} already")
        connection = self._add(dst, dport, sport, now, old)
        open_active(connection)
        arm_rto(connection, now)
        request_syn(connection)
        self.counters.connections_opened += 1
        return connection

    def open(self, s: Segment, now: float, old: Flow | None = None) -> Connection:
        """Creates the connection of a segment to a listener."""
        return self._add(s.src, s.sport, s.dport, now, old)

    def _add(self, peer_ip: int, peer_port: int, port: int, now: float, old: Flow | None = None) -> Connection:
        """Creates a connection; its numbers begin beyond those of an `old` one in TIME-WAIT that it replaces.

        RFC 6191; RFC 9293, section 3.6.1.
        """
        local, peer = (self.ip, port), (peer_ip, peer_port)
        iss = self.initial_sequence(local, peer, now)
        if old is not None:
            beyond = seq.number(old.snd.iss, old.snd.snd_nxt + _ISN_DISTANCE)
            if seq.after(beyond, iss):
                iss = beyond
            finish(old)
        connection = Connection(self, local, peer, iss, now)
        self.scheduler.add(connection)
        self._connections[peer_ip, peer_port, port] = connection
        self._local_ports[port] += 1
        self.opened += 1
        return connection

    def initial_sequence(self, local: tuple[int, int], peer: tuple[int, int], now: float) -> int:
        """Returns the initial sequence number of a connection (RFC 6528)."""
        return isn.initial_sequence(self._secret, local, peer, now)

    def timestamp_offset(self, peer_ip: int) -> int:
        """Returns the offset of the timestamp clock towards a peer (RFC 7323, section 5.4)."""
        return isn.timestamp_offset(self._secret, self.ip, peer_ip)

    # Receiving

    def receive(self, s: Segment, now: float) -> None:
        """Handles a segment for this node; `s.flow`, if the NIC has looked it up, saves looking it up again."""
        self.counters.segments_received += 1
        flow: Flow | None = s.flow
        if flow is None or flow.state is State.CLOSED:  # opened or closed by an earlier segment of the batch
            flow = self._connections.get((s.src, s.sport, s.dport))
        if flow is not None and self._fast_path.receive(flow, s, now):
            return
        if flow is None:
            self._receive_unknown(s, None, now)
        elif flow.state is State.TIME_WAIT and s.dport in self._listeners and may_reuse_time_wait(flow, s):
            self._receive_unknown(s, flow, now)
        else:
            process_segment(flow, s, now)

    def _receive_unknown(self, s: Segment, old: Flow | None, now: float) -> None:
        """Handles a segment that belongs to no connection, or may replace an `old` one."""
        listener = self._listener_of(s)
        if listener is not None and ipv4.is_loopback(listener.ip) and s.src != self.ip:
            listener = None
        kind = s.flags & (ACK | RST | SYN)
        if listener is not None and s.flags & (ACK | RST | SYN | FIN) == SYN:
            listener.on_syn(s, old, now)
        elif listener is not None and not s.flags & (ACK | RST):
            self.counters.dropped_flags += 1  # without SYN, or with FIN: scans
        elif listener is None or kind != ACK or not listener.on_cookie_ack(s, now):
            self.counters.dropped_no_connection += 1
            if not s.flags & RST:
                send_reset_for(self, s, now)

    # Sending

    def on_link_full(self, now: float) -> None:
        """The link's queue is full."""
        self.link_full_at = now

    # Addresses

    def resolved(self, ip: int) -> None:
        """The MAC address of a peer is known: sends what waited for it."""
        for connection in self._to(ip):
            self.wake(connection)

    def unreachable(self, ip: int) -> None:
        """ARP has failed. Ends connections that are being opened; others keep trying until they time out."""
        for connection in self._to(ip):
            text = f"no route to {connection.peer_name}: its address does not answer ARP"
            note_soft_error(connection, errno.EHOSTUNREACH, text)
            if connection.state is State.SYN_SENT:
                time_out(connection, 0.0)

    def retry(self, mac: bytes, now: float) -> None:
        """Send again at once, instead of after a timer that was backed off: the node with this MAC has moved, and is
        reached again."""
        for connection in self.connections:
            if mac_of(connection.peer[0]) == mac:
                expire_rto(connection, now)

    def _to(self, ip: int) -> list[Connection]:
        return [connection for key, connection in self._connections.items() if key[0] == ip]

    # Time

    def advance(self, now: float) -> None:
        """Runs the timers that are due."""
        while (flow := self.scheduler.due(now)) is not None:
            self.expire(flow, now)

    def expire(self, flow: Flow, now: float) -> None:
        """Runs the timers of a flow that are due."""
        self.scheduler.take(flow)
        on_timer(flow, now)
        self.schedule(flow)

    # The table

    def add_time_wait(self, flow: Flow) -> Flow | None:
        """Records a flow in TIME-WAIT. Returns the oldest one if there are more than `max_time_waits`."""
        self._time_waits[_key(flow)] = flow
        full = len(self._time_waits) > self.config.max_time_waits
        return next(iter(self._time_waits.values())) if full else None

    def remove(self, flow: Flow) -> None:
        """Removes a flow that has ended."""
        key = _key(flow)
        self.scheduler.remove(flow)
        if self._connections.get(key) is flow:
            del self._connections[key]
            self._local_ports[key[2]] -= 1
            if not self._local_ports[key[2]]:
                del self._local_ports[key[2]]
        if self._time_waits.get(key) is flow:
            del self._time_waits[key]

    @property
    def keys(self) -> KeysView[Key]:
        """The keys of all connections, TIME-WAIT included."""
        return self._connections.keys()

    @property
    def connections(self) -> list[Connection]:
        """All connections, TIME-WAIT included."""
        return list(self._connections.values())


def _key(flow: Flow) -> Key:
    return flow.peer[0], flow.peer[1], flow.local[1]


def _error(number: int, message: str) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {message}")
