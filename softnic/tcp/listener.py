"""LISTEN: a port, its half-open connections (SYN queue), and those that wait to be accepted (accept queue).

The SYN queue is bounded: beyond its limit SYNs are answered by cookies (syn_cookies.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from softnic.packet.ipv4 import DEFAULT_TTL
from softnic.packet.segment import Flags, Options, Segment
from softnic.tcp import seq, syn_cookies
from softnic.tcp.arm_timers import arm_rto
from softnic.tcp.connection import Connection
from softnic.tcp.flow import Flow, FlowServices
from softnic.tcp.handshake import apply_syn_options
from softnic.tcp.input import process_segment
from softnic.tcp.output import request_syn
from softnic.tcp.syn_cookies import SynCookies
from softnic.tcp.timestamps import Timestamps
from softnic.tcp.transitions import open_passive

FIN, SYN, RST, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.ACK))


@dataclass(frozen=True, slots=True)
class AcceptReady:
    """A listener has a connection to accept."""

    listener: Listener


class ListenerServices(FlowServices, Protocol):
    """The services of a node that its listeners use; `TcpStack` provides them."""

    cookies: SynCookies

    def open(self, s: Segment, now: float, old: Flow | None = None) -> Connection:
        """Creates the connection of a SYN, or of the ACK of a cookie; `old` is one in TIME-WAIT that it follows."""


class Listener:
    """As in Linux, `backlog` limits the connections not yet accepted (one more fits), and half-open ones separately.

    A connection that fails before it is accepted stays in the accept queue, with its `error`. `unaccepted` counts the
    connections that were taken from the queue and are still to be accepted elsewhere.
    """

    def __init__(
        self,
        tcp: ListenerServices,
        ip: int,
        port: int,
        backlog: int,
        on_close: Callable[[Listener], None],
        unaccepted: Callable[[], int] = lambda: 0,
    ) -> None:
        self._tcp = tcp
        self._unaccepted = unaccepted
        self._on_close = on_close
        self.ip = ip
        """The local address, 0 for any."""
        self.port = port
        self.backlog = max(0, backlog)
        self.half_open: dict[Connection, None] = {}
        """In the order of their SYNs."""
        self.queue: deque[Connection] = deque()
        self.user_mss = 0
        """TCP_MAXSEG of its connections; 0: no limit."""
        self.ttl = DEFAULT_TTL
        self._cookies_until = float("-inf")
        """Until when ACKs of cookies may arrive."""
        self.closed = False

    def set_backlog(self, backlog: int) -> None:
        """Change the limit of the accept queue."""
        self.backlog = max(0, backlog)

    def set_packets(self, user_mss: int, ttl: int) -> None:
        """TCP_MAXSEG (0: no limit) and IP_TTL of its further connections."""
        self.user_mss, self.ttl = user_mss, ttl

    @property
    def full(self) -> bool:
        """The accept queue is full: another SYN has to be dropped."""
        return len(self.queue) + self._unaccepted() > self.backlog

    @property
    def syn_queue_full(self) -> bool:
        """Further SYNs are answered by cookies."""
        return len(self.half_open) >= max(self.backlog, self._tcp.config.half_open_limit)

    def on_syn(self, s: Segment, old: Flow | None, now: float) -> None:
        """Handles a SYN in LISTEN (RFC 9293, section 3.10.7.2), perhaps after an `old` connection in TIME-WAIT."""
        if self.full:
            self._tcp.counters.dropped_backlog += 1
        elif self.syn_queue_full and old is None:
            self._send_cookie(s, now)
        else:
            flow = self._open(s, now, old)
            apply_syn_options(flow, s, now)
            arm_rto(flow, now)
            request_syn(flow)

    def _open(self, s: Segment, now: float, old: Flow | None = None) -> Connection:
        """Creates a half-open connection."""
        flow = self._tcp.open(s, now, old)
        flow.set_max_segment(self.user_mss, now)
        flow.set_ttl(self.ttl)
        flow.listener = self
        open_passive(flow)
        self.half_open[flow] = None
        return flow

    def on_established(self, flow: Flow) -> None:
        """Moves a connection from the SYN queue to the accept queue."""
        assert isinstance(flow, Connection)
        flow.listener = None
        self.half_open.pop(flow, None)
        self.queue.append(flow)
        self._tcp.counters.connections_accepted += 1
        self._tcp.events.append(AcceptReady(self))

    def on_closed(self, flow: Flow) -> None:
        """Removes a connection from the SYN queue."""
        assert isinstance(flow, Connection)
        flow.listener = None
        self.half_open.pop(flow, None)

    def _send_cookie(self, s: Segment, now: float) -> None:
        """Sends a SYN-ACK without remembering its connection; without timestamps it offers an MSS only."""
        tcp = self._tcp
        self._cookies_until = now + 2 * syn_cookies.PERIOD_S
        tcp.counters.cookies_sent += 1
        reply = Segment(s.dst, s.src, s.dport, s.sport, tcp.cookies.number(s, now), seq.number(s.seq, 1), SYN | ACK)
        reply.window = 0xFFFF
        reply.options = Options(min(tcp.config.mtu - 40, self.user_mss or 0xFFFF), remembered=False)
        reply.ttl = self.ttl
        if s.timestamps is not None:
            value = Timestamps(tcp.timestamp_offset(s.src)).value(now)
            reply.timestamps = syn_cookies.stamp(value, s), s.timestamps[0]
            if s.options is not None:
                reply.options.sack_permitted = s.options.sack_permitted
                if s.options.window_scale is not None:
                    reply.options.window_scale = tcp.config.window_scale
        tcp.transmit(reply, 1, now)

    def on_cookie_ack(self, s: Segment, now: float) -> bool:
        """Opens the connection if an ACK acknowledges a cookie. Returns whether it does.

        With a full accept queue the ACK is dropped; the peer's next segment acknowledges the cookie again.
        """
        tcp = self._tcp
        offer = tcp.cookies.opened(s, now) if now < self._cookies_until else None
        if offer is None:
            return False
        if self.full:
            tcp.counters.dropped_backlog += 1
            return True
        tcp.counters.cookies_accepted += 1
        flow = self._open(s, now)
        flow.snd.resume(seq.number(s.ack, -1))
        apply_syn_options(flow, replace(s, seq=seq.number(s.seq, -1), options=offer.options), now)
        flow.rcv.advertise()  # as the SYN-ACK did
        flow.rtt.back_off()  # the time of the SYN-ACK is not known: no sample
        process_segment(flow, s, now)
        return True

    def accept(self) -> Connection | None:
        """Returns the next established connection, or None. Bytes may have arrived on it already."""
        return self.queue.popleft() if self.queue else None

    def close(self, now: float) -> None:
        """Stops listening; connections not accepted are reset."""
        if self.closed:
            return
        self.closed = True
        self._on_close(self)
        for connection in [*self.half_open, *self.queue]:
            connection.abort(now)
        self.queue.clear()


def may_reuse_time_wait(old: Flow, s: Segment) -> bool:
    """Whether a SYN may follow a connection in TIME-WAIT (RFC 6191, section 2).

    Its timestamp must be later than all of the old connection's or, where they decide nothing, its sequence number.
    """
    if s.flags & (SYN | ACK | RST | FIN) != SYN:
        return False
    if s.timestamps is not None:
        stamp, recent = s.timestamps[0], old.timestamps.ts_recent
        if not old.use_timestamps or seq.after(stamp, recent):
            return True
        if stamp != recent:
            return False
    return old.rcv.position(s.seq) > old.rcv.rcv_nxt
