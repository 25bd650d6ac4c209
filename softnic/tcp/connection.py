"""The application's view of a flow: read, write, tag, close.

A connection adds no state of its own. Nothing here sends: calls mark what is to be sent, and the stack asks for it
(`TcpStack.output`). Events are edge-triggered, one a change: `Readable` comes again only after `consume`, `Writable`
only after the send buffer was found full, `Closed` once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softnic._native import ffi, lib
from softnic.packet.segment import ECN_BITS, Tag
from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.arm_timers import arm_close
from softnic.tcp.flow import NEVER, Flow, FlowServices
from softnic.tcp.info import ConnectionInfo, info_of
from softnic.tcp.keepalive import set_keepalive
from softnic.tcp.output import request_ack
from softnic.tcp.path_mtu import update_mss
from softnic.tcp.state import HANDSHAKE, State
from softnic.tcp.transitions import abort, on_fin_queued


@dataclass(frozen=True, slots=True)
class Established:
    """A connection that this side opened is established."""

    connection: Connection


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


class Connection(Flow):
    """Made by `Host.connect` and `Listener.accept`."""

    __slots__ = ("_headers", "_readable", "steps")

    def __init__(self, tcp: FlowServices, local: tuple[int, int], peer: tuple[int, int], iss: int, now: float) -> None:
        super().__init__(tcp, local, peer, iss, now)
        self._readable = Readable(self)
        self.steps = self._headers = ffi.NULL
        """What reads its bytes instead of an application: `attach`."""

    # Writing

    def write_space(self) -> memoryview:
        """Returns contiguous free space of the send buffer, to be filled and then reported by `wrote`.

        Empty if the buffer is full (a `Writable` event follows) or the stream's end is written. Valid until the next
        call of any method of the stack.
        """
        if not self.writable or self.snd.fin_queued:
            return memoryview(b"")
        space = self.snd.buffer.write_space()
        if not space:
            self.wants_space = True
        return space

    def wrote(self, count: int) -> None:
        """Appends the first `count` bytes of `write_space` to the stream."""
        self.snd.buffer.wrote(count)
        if count:
            self.tcp.wake(self)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Copies as much of `data` as fits into the send buffer. Returns the number of bytes."""
        total = 0
        with memoryview(data) as whole, whole.cast("B") as view:
            while total < len(view):
                space = self.write_space()
                count = min(len(space), len(view) - total)
                if not count:
                    break
                space[:count] = view[total : total + count]
                self.wrote(count)
                total += count
        return total

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> bool:
        """Appends bytes without copying them (`SendBuffer.send_zerocopy`). Returns False if the stream has ended."""
        if not self.writable or self.snd.fin_queued:
            return False
        self.snd.buffer.send_zerocopy(memory, offset, size)
        self.tcp.wake(self)
        return True

    @property
    def bytes_written(self) -> int:
        """Offset in the stream of the next byte to be written."""
        return self.snd.buffer.end - 1

    @property
    def tag_set(self) -> Tag:
        """The tag that was set last."""
        return self.snd.buffer.last_tag

    def tag(self, tag: Tag, offset: int | None = None) -> None:
        """Tags the stream from byte `offset` on (None: from the next byte written), which may lie ahead.

        The same tag again changes nothing. The two low bits of its ToS belong to ECN, which this TCP does not
        implement, and are sent as zero (RFC 3168, section 6.1.1).

        Raises
        ------
        ValueError
            The offset is already written, or lies before the last tag.
        """
        if tag.tos & ECN_BITS:
            tag = tag._replace(tos=tag.tos & ~ECN_BITS)
        position = self.snd.buffer.end if offset is None else offset + 1
        self.snd.buffer.tag(tag, position, tag.tos in self.tcp.offload_tos, self.tcp.cuts_of(tag))
        self.tcp.wake(self)

    def set_blocks(self, blocks: bool) -> None:
        """Sends tagged ranges in whole coding blocks only, except at their ends.

        For writers that complete every block: the decoded floats then do not depend on when bytes were written.
        """
        if self.snd.buffer.set_blocks(blocks):
            self.tcp.wake(self)

    def shutdown_write(self) -> None:
        """Queues a FIN behind what is written. Reading continues."""
        if not self.writable or self.snd.fin_queued:
            return
        self.snd.queue_fin()
        on_fin_queued(self)
        self.tcp.wake(self)

    # Reading

    @property
    def received(self) -> list[memoryview]:
        """Bytes in order, not consumed yet. Read-only, and valid until the next call of any method of the stack."""
        return self.rcv.received

    @property
    def eof(self) -> bool:
        """The peer sends nothing after the bytes in `received`."""
        return self.rcv.eof

    def consume(self, count: int) -> None:
        """Removes `count` bytes from the front of `received`. Raises ValueError if there are fewer."""
        self.rcv.consume(count)
        self._on_consumed()

    def consumed(self, count: int) -> None:
        """Counts `count` bytes as read, which C has taken from the receive buffer."""
        self.rcv.consumed(count)
        self._on_consumed()

    def _on_consumed(self) -> None:
        self.readable_notified = False
        if self.rcv.wants_update() and self.state not in HANDSHAKE:
            request_ack(self)

    def attach(self, steps: Any, headers: Any) -> None:
        """Has C pass what arrives to an `sn_step_queue` or an `sn_header_queue` of collectives; NULL: to neither."""
        self.steps, self._headers = steps, headers  # C refers to them
        lib.sn_flow_attach(self.c, steps, headers)

    def recv(self, limit: int) -> bytes:
        """Returns and consumes at most `limit` received bytes; empty if there are none now."""
        data = bytearray(min(limit, self.rcv.unread))
        if data:
            lib.sn_receive_buffer_read(self.rcv.buffer, ffi.from_buffer(data), len(data))
            self.consumed(len(data))
        return bytes(data)

    # Options

    def set_nodelay(self, nodelay: bool) -> None:
        """TCP_NODELAY: short segments do not wait for acknowledgements."""
        self.nodelay = nodelay

    def set_cork(self, corked: bool) -> None:
        """TCP_CORK: short segments wait for more data, for `output.CORK_S` at most."""
        if corked != self.corked:
            self.corked = corked
            self.tcp.wake(self)

    def set_quickack(self, quick: bool) -> None:
        """TCP_QUICKACK: acknowledges all data at once. Unlike Linux's, it lasts until it is unset."""
        self.delayed_ack.set_quick(quick)
        if quick and self.delayed_ack.at < NEVER:
            request_ack(self)

    def set_max_segment(self, mss: int, now: float) -> None:
        """TCP_MAXSEG: limits the MSS, of the peer too if our SYN is not sent yet; 0: no limit."""
        if mss != self.user_mss:
            self.user_mss = mss
            if self.state not in HANDSHAKE:
                update_mss(self, now)

    def set_ttl(self, ttl: int) -> None:
        """IP_TTL: time to live of the packets."""
        self.ttl = ttl

    def set_user_timeout(self, seconds: float) -> None:
        """TCP_USER_TIMEOUT: unacknowledged data for this time ends the connection; 0 restores the default."""
        self.user_timeout_s = seconds or self.tcp.config.user_timeout_s

    def set_keepalive(self, settings: tuple[float, float, int] | None, now: float) -> None:
        """SO_KEEPALIVE: (idle seconds, interval seconds, probes), all positive, or None for off. Raises ValueError."""
        set_keepalive(self, settings, now)

    def set_congestion(self, name: str) -> None:
        """TCP_CONGESTION: continues with another of `ALGORITHMS`. Raises KeyError for an unknown one."""
        if name != self.congestion.name:
            self.replace_congestion(ALGORITHMS[name](self.congestion.smss, self.congestion))
            self.recovery.forget()

    # Ending

    def close(self, now: float) -> None:
        """Closes both directions: what is written is still sent, then a FIN; data that arrives now causes a reset.

        Received bytes that were not read cause a reset at once (RFC 1122, section 4.2.2.13).
        """
        if self.orphaned or self.ended:
            return
        if self.rcv.unread or self.state in (State.CLOSED, State.SYN_SENT):
            self.abort(now)
            return
        self.orphaned = True
        self.shutdown_write()
        arm_close(self, now + self.tcp.config.orphan_timeout_s)
        self.tcp.schedule(self)

    def abort(self, now: float, error: int = 0, message: str = "") -> None:
        """Ends the connection at once, with a RST if the peer knows of it; `error` is reported to the application."""
        abort(self, now, error, message)

    def info(self, now: float) -> ConnectionInfo:
        """A snapshot."""
        return info_of(self, now)

    # Notifications of the flow

    def on_established(self) -> None:
        self.tcp.events.append(Established(self))

    def on_readable(self) -> None:
        if not self.readable_notified:
            self.readable_notified = True
            self.tcp.events.append(self._readable)

    def on_writable(self) -> None:
        """Reports space once after `write_space` was empty, when a quarter of the buffer is free."""
        if not self.wants_space:
            return
        snd = self.snd
        if snd.buffer.end - snd.snd_nxt < snd.mss:
            self.send_tuning.short(snd.buffer, snd.scoreboard.delivered, snd.scoreboard.pipe)
        if 4 * snd.buffer.free >= snd.buffer.capacity:
            self.wants_space = False
            self.tcp.events.append(Writable(self))

    def on_closed(self, error: int) -> None:
        self.tcp.events.append(Closed(self, error))
