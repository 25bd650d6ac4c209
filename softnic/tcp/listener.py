"""LISTEN: a port that waits for connections, those that are half open, and those that wait to be accepted.

So many half-open connections are remembered and no more: SYNs beyond that get cookies (syn_cookies.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from softnic.packet.segment import Flags, Options, Segment
from softnic.tcp import seq, syn_cookies
from softnic.tcp.arm_timers import arm
from softnic.tcp.handshake import apply_syn_options
from softnic.tcp.input import process_segment
from softnic.tcp.timestamps import Timestamps

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection
    from softnic.tcp.stack import TcpStack


SYN, RST, ACK = int(Flags.SYN), int(Flags.RST), int(Flags.ACK)


class Listener:
    """Like Linux, `backlog` bounds the connections not yet accepted (one more fits), and those half open apart.

    A connection that fails before it is accepted stays in the queue, with its `error`.
    """

    def __init__(self, tcp: TcpStack, ip: int, port: int, backlog: int) -> None:
        self._tcp = tcp
        self.ip = ip
        """The local address, 0 for any."""
        self.port = port
        self.backlog = max(0, backlog)
        self.half_open: set[Connection] = set()
        self.queue: deque[Connection] = deque()
        self._cookies_until = float("-inf")
        """ACKs may come that answer cookies."""
        self.closed = False

    @property
    def full(self) -> bool:
        """Whether nobody accepts: another SYN has to be dropped."""
        return len(self.queue) > self.backlog

    @property
    def syn_queue_full(self) -> bool:
        """Whether as many connections are half open as it remembers: others get cookies (syn_cookies.py)."""
        return len(self.half_open) >= max(self.backlog, self._tcp.config.half_open_limit)

    def syn_arrives(self, s: Segment, old: Connection | None, now: float) -> None:
        """SYN in LISTEN (RFC 9293, section 3.10.7.2), or one that follows an `old` connection in TIME-WAIT."""
        if self.full:
            self._tcp.counters.dropped_backlog += 1
        elif self.syn_queue_full and old is None:
            self._send_cookie(s, now)
        else:
            connection = self._tcp.accept(self, s, now, old)
            apply_syn_options(connection, s, now)
            connection.syn_pending = True
            arm(connection, now)
            self._tcp.wake(connection)

    def _send_cookie(self, s: Segment, now: float) -> None:
        """A SYN-ACK for a connection that nobody here remembers; without timestamps it offers no more than an MSS."""
        tcp = self._tcp
        self._cookies_until = now + 2 * syn_cookies.PERIOD_S
        tcp.counters.cookies_sent += 1
        reply = Segment(s.dst, s.src, s.dport, s.sport, tcp.cookies.number(s, now), seq.number(s.seq, 1), SYN | ACK)
        reply.window = 0xFFFF
        reply.options = Options(tcp.config.mtu - 40, remembered=False)
        if s.timestamps is not None:
            value = Timestamps(tcp.timestamp_offset(s.src)).value(now)
            reply.timestamps = syn_cookies.stamp(value, s), s.timestamps[0]
            if s.options is not None:
                reply.options.sack_permitted = s.options.sack_permitted
                if s.options.window_scale is not None:
                    reply.options.window_scale = tcp.config.window_scale
        tcp.transmit(reply, 1, now)

    def answers_cookie(self, s: Segment, now: float) -> bool:
        """Whether an ACK acknowledges a cookie of ours. Then its connection stands; or the ACK is dropped because
        nobody accepts, and what the peer sends next acknowledges it again."""
        tcp = self._tcp
        offer = tcp.cookies.opened(s, now) if now < self._cookies_until else None
        if offer is None:
            return False
        if self.full:
            tcp.counters.dropped_backlog += 1
            return True
        tcp.counters.cookies_accepted += 1
        connection = tcp.accept(self, s, now)
        connection.snd.iss = seq.number(s.ack, -1)
        connection.snd.snd_nxt = 1
        apply_syn_options(connection, replace(s, seq=seq.number(s.seq, -1), options=offer.options), now)
        connection.rcv.advertise()  # as the SYN-ACK did
        connection.rtt.back_off()  # when the SYN-ACK went is not remembered: no sample
        process_segment(connection, s, now)
        return True

    def accept(self) -> Connection | None:
        """The next established connection, or None. Bytes may have arrived on it already."""
        return self.queue.popleft() if self.queue else None

    def close(self, now: float) -> None:
        """Stops listening; connections nobody accepted are reset."""
        if self.closed:
            return
        self.closed = True
        self._tcp.remove_listener(self)
        for connection in [*self.half_open, *self.queue]:
            connection.abort(now)
        self.queue.clear()


def may_reuse_time_wait(old: Connection, s: Segment) -> bool:
    """Whether this is a SYN that may follow a connection in TIME-WAIT (RFC 6191, section 2): its timestamp is later
    than all of the old connection's or, where these say nothing, its sequence number."""
    if s.flags & (SYN | ACK | RST) != SYN:
        return False
    if s.timestamps is not None:
        stamp, recent = s.timestamps[0], old.timestamps.ts_recent
        if not old.use_timestamps or seq.after(stamp, recent):
            return True
        if stamp != recent:
            return False
    return old.rcv.position(s.seq) > old.rcv.rcv_nxt
