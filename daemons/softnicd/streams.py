"""Stream: the NIC's end of an application's Unix stream pair, and the TCP connection or listener behind it.

File descriptors are watched edge-triggered, so nothing is re-armed per read; a stream stays `readable` until the kernel
reports that nothing is left. Bytes are copied once: from the file descriptor into TCP's send buffer (`pull`), and from
TCP's received data into the file descriptor (`push`). What cannot proceed waits where it is: the application's bytes in
its socket (TCP's buffer is full), the peer's bytes in TCP (the application does not read), connections in TCP's backlog
(the application does not accept).

The turn reads and writes in C (native/nic/port.c). `pull` and `push` do the same where there is more to it: a
connection that is not open yet, bytes to be discarded, a buffer that has to grow, the end of a direction, an error.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Sequence
from dataclasses import dataclass

from softnic._fields import PortFields
from softnic._native import ffi, lib
from softnic.ipc.control import (
    ACCEPT_MARK,
    ACCEPTED,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    LINGER2_S,
    MTU_DISCOVER,
    STREAM_BUFFER,
    SYN_COUNT,
    StreamInfo,
)
from softnic.packet.ipv4 import DEFAULT_TTL
from softnic.packet.segment import ECN_BITS, Tag
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener
from softnic.tcp.state import HANDSHAKE, State
from softnicd.inherited import Identity

READ_BYTES: int = lib.SN_READ_BYTES
"""Of one read: the size of a super-segment."""
_SCRATCH = bytearray(READ_BYTES)
_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_DONTWAIT = socket.MSG_DONTWAIT
"""In addition to O_NONBLOCK, which an application that kept a copy of the file descriptor could clear."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a stream: kept until it has a connection, and inherited by connections that a listener accepts."""

    tos: int = 0
    codec: str = ""
    blocks: int = 0
    lane: int = -1
    """Of a connection that this end opens; -1: any."""
    nodelay: int = 0
    keepalive: int = 0
    keepalive_idle_s: int = KEEPALIVE_IDLE_S
    keepalive_interval_s: int = KEEPALIVE_INTERVAL_S
    keepalive_count: int = KEEPALIVE_COUNT
    user_timeout_ms: int = 0
    """0: the NIC's default."""
    congestion: str = ""
    """Empty: the NIC's default."""
    linger: int = 0
    """SO_LINGER: 0: off; 1: reset on close; n + 1: `close` waits n seconds for the data written to be acknowledged."""
    reuse_address: int = 0
    reuse_port: int = 0
    cork: int = 0
    quickack: int = 0
    defer_accept_s: int = 0
    """A connection is accepted once it has data, or after this time."""
    max_segment: int = 0
    ttl: int = DEFAULT_TTL
    syn_count: int = SYN_COUNT
    """This one and those that follow have no effect."""
    linger2_s: int = LINGER2_S
    window_clamp: int = 0
    notsent_lowat: int = 0
    mtu_discover: int = MTU_DISCOVER
    receive_errors: int = 0

    @property
    def reset_on_close(self) -> bool:
        return self.linger == 1

    @property
    def tag(self) -> Tag:
        return Tag(self.tos & ~ECN_BITS, self.codec or None)

    @property
    def keepalive_times(self) -> tuple[float, float, int] | None:
        if not self.keepalive:
            return None
        return self.keepalive_idle_s, self.keepalive_interval_s, self.keepalive_count


class Stream(PortFields):
    """`number` names it in the control protocol. It owns `end`, its file descriptor.

    Its state is a port of the turn (turn.py), which does in C what `pull` and `push` do.
    """

    __slots__ = (
        "accepted_at",
        "c",
        "connection",
        "failure",
        "identity",
        "ip",
        "listeners",
        "loopback",
        "mark_memory",
        "pid",
        "poller",
        "port",
        "settings",
        "socket",
        "users",
    )

    number: int
    fd: int
    write_blocker: int
    """Bytes still to be discarded before the stream's own (softnic/ipc/control.py)."""
    offset: int
    """Bytes of the stream read so far."""
    readable: bool
    """Bytes or their end may wait in the file descriptor."""
    ending: bool
    """The end of the application's bytes waits in the file descriptor, or has been read."""
    hung_up: bool
    """The application has closed its end."""
    left_unread: bool
    """The application closed its end with unread bytes of the peer in it."""
    input_open: bool
    output_open: bool
    offloaded: bool
    """A collective engine reads and writes the connection; the file descriptor carries no bytes."""
    blocked: bool
    """The file descriptor is full; the poller reports when it is writable."""

    def __init__(self, number: int, end: socket.socket, poller: select.epoll, settings: Settings) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)  # urgent bytes stay in order
        self.c = ffi.cast("sn_port *", self.address)
        self.number = number
        self.fd = end.fileno()
        self.socket = end
        self.settings = settings
        self.ip = 0
        self.port = 0
        """Reserved by bind."""
        self.loopback: tuple[int, int] | None = None
        """Local and peer's address as the application knows them, where one of them is a loopback address."""
        self.identity: Identity | None = None
        """Of the application's end; None: not known."""
        self.pid = 0
        """Of the application that opened it, or that listens, for an accepted stream. 0: not known."""
        self.connection: Connection | None = None
        self.listeners: Sequence[Listener] = ()
        """Of a listening stream, one in each queue of the NIC."""
        self.users = 0
        """Other queues that may still hand connections over by its file descriptor, once it is closed."""
        self.mark_memory = 0
        """Bytes of the kernel's memory that ACCEPT_MARK takes while it waits to be read; 0: not known yet."""
        self.accepted_at: Stream | None = None
        """The listening stream of an accepted connection."""
        self.failure: StreamInfo | None = None
        """How the last connect failed, until the next one."""
        self.readable = self.input_open = self.output_open = True
        self.watch(poller)

    def watch(self, poller: select.epoll) -> None:
        """Has this poller report its events from now on."""
        self.poller = poller
        poller.register(self.socket.fileno(), _EDGES)

    @property
    def in_turn(self) -> bool:
        """Whether the turn reads and writes it."""
        return bool(self.c.flow)

    @property
    def listens(self) -> bool:
        return bool(self.listeners)

    @property
    def connecting(self) -> bool:
        return self.connection is not None and self.connection.state in HANDSHAKE

    @property
    def failed(self) -> bool:
        """Whether an error has ended the connection."""
        return self.connection is not None and self.connection.state is State.CLOSED and bool(self.connection.error)

    @property
    def carries_bytes(self) -> bool:
        """Whether it is connected and its file descriptor carries the connection's bytes."""
        if self.connection is None or self.connecting or self.offloaded:
            return False
        return self.output_open

    @property
    def finished(self) -> bool:
        """Whether the application has closed it and TCP has all that it wrote."""
        return self.hung_up and (self.connection is None or not self.input_open or self.connecting)

    def pull(self) -> bool:
        """Moves the application's bytes to TCP. Returns whether there may be more that TCP has space for."""
        connection = self.connection
        if connection is None or not self.readable or not self.input_open or connection.state in HANDSHAKE:
            return False
        if self.offloaded:
            return False
        try:
            if self.write_blocker:
                most = min(self.write_blocker, len(_SCRATCH))
                count = self.socket.recv_into(_SCRATCH, most, _DONTWAIT)
                self.write_blocker -= count
            else:
                space = connection.write_space()
                if not space:
                    return False  # Writable follows
                most = min(len(space), READ_BYTES)
                count = self.socket.recv_into(space, most, _DONTWAIT)
                connection.wrote(count)
                self.offset += count
        except BlockingIOError:
            self.readable = False
            return False
        except OSError as error:
            # It closed its end with unread bytes of the peer, or the file descriptor is not a stream socket.
            self.left_unread = error.errno == errno.ECONNRESET
            count = 0
        if count:
            # A read also ends early at an urgent mark and after bytes that carried file descriptors: more may follow.
            self.readable = count == most or self.ending or self._waiting() > 0
            return self.readable
        self.readable = self.input_open = False
        self._look_for_end()
        connection.shutdown_write()
        return False

    def discard_unsent(self) -> bool:
        """Makes the file descriptor of a stream that is not connected writable. Returns False if it has ended."""
        left, self.write_blocker = self._waiting(), 0
        try:
            while left > 0:
                count = self.socket.recv_into(_SCRATCH, min(left, len(_SCRATCH)), _DONTWAIT)
                if not count:
                    return False
                left -= count
        except OSError:
            return False
        return True

    def push(self) -> None:
        """Moves the peer's bytes, and their end, to the application."""
        connection = self.connection
        if connection is None or self.offloaded:
            return
        buffer = connection.rcv.buffer
        if buffer.first and self.output_open:
            taken = lib.sn_port_push(self.c, buffer)
            if taken > 0:
                connection.consumed(taken)
            if taken < 0:  # it has closed its end, or shut down reading
                self.output_open = False
                self._look_for_end()
        self._set_blocked(self.output_open and bool(buffer.first))
        if not self.output_open and not self.hung_up:
            connection.consume(connection.rcv.unread)
        elif connection.eof and self.output_open and not buffer.first:
            self.output_open = False
            self.shut(socket.SHUT_WR)

    def _set_blocked(self, blocked: bool) -> None:
        if blocked != self.blocked:
            self.blocked = blocked
            self.poller.modify(self.socket.fileno(), _EDGES | (select.EPOLLOUT if blocked else 0))

    def unread(self) -> int:
        """Bytes of the stream that wait in the file descriptor."""
        return max(0, self._waiting() - self.write_blocker)

    def is_closed(self) -> bool:
        """Whether the application has closed its end, which the poller may not have reported yet."""
        return self.hung_up or (self.socket.fileno() >= 0 and bool(self._events(select.POLLHUP)))

    def _look_for_end(self) -> None:
        self.hung_up = self.is_closed()

    def _events(self, mask: int) -> int:
        """Which of these events of poll(2) the file descriptor has now."""
        poll = select.poll()
        poll.register(self.socket.fileno(), mask)
        return sum(found & mask for _, found in poll.poll(0))

    def _waiting(self) -> int:
        """All bytes that wait in the file descriptor; 0 if it is closed, or not one of a pair."""
        return self._ask(termios.FIONREAD)

    def _ask(self, what: int) -> int:
        """A number of bytes that the kernel tells of the file descriptor; 0 if it tells none."""
        answer = array.array("i", [0])
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(self.socket, what, answer)
        return answer[0]

    def shut(self, how: int) -> None:
        with contextlib.suppress(OSError):  # the application has closed its end
            self.socket.shutdown(how)

    def close_connection(self, now: float) -> None:
        """Closes the connection after its application has: the bytes in its send buffer are sent, then a FIN.

        Unread bytes of the peer call for a reset (RFC 1122, section 4.2.2.13), unless bytes that the application wrote
        before closing would be lost by it.
        """
        connection, settings = self.connection, self.settings
        if connection is None:
            return
        lost = self.left_unread or connection.rcv.unread > 0
        waiting = connection.bytes_written > connection.info(now).bytes_sent
        if self.connecting or settings.reset_on_close or (lost and not waiting):
            connection.abort(now)
        else:
            connection.consume(connection.rcv.unread)
            connection.close(now)

    def close(self) -> None:
        """Closes the file descriptor, unless other queues use it. Copies that a fork keeps open are shut down."""
        self.poller.unregister(self.socket.fileno())
        self.shut(socket.SHUT_RDWR)
        if not self.users:
            self.socket.close()

    def let_go(self) -> None:
        """Another queue uses the closed stream of a listener no longer."""
        self.users -= 1
        if not self.users:
            self.socket.close()

    # -- settings --------------------------------------------------------------------------------------------------

    def apply(self, now: float) -> None:
        """Applies the settings to connection or listener, if there is one. A tag applies from the next byte written."""
        connection, settings = self.connection, self.settings
        for listener in self.listeners:
            listener.set_packets(settings.max_segment, settings.ttl)
        if connection is None:
            return
        connection.set_max_segment(settings.max_segment, now)
        connection.set_ttl(settings.ttl)
        connection.set_quickack(bool(settings.quickack))
        if not self.offloaded:
            connection.set_nodelay(bool(settings.nodelay))
            connection.set_cork(bool(settings.cork))
            connection.set_blocks(bool(settings.blocks))
        connection.set_user_timeout(settings.user_timeout_ms / 1000)
        if settings.congestion:
            connection.set_congestion(settings.congestion)
        if settings.keepalive_times != connection.keepalive:
            connection.set_keepalive(settings.keepalive_times, now)
        if self.input_open and not self.offloaded and settings.tag != connection.tag_set:
            connection.tag(settings.tag, self.offset + self.unread())

    # -- listening -------------------------------------------------------------------------------------------------

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Makes this the stream of listeners: it carries connections, two at a time, and cannot be written."""
        self.listeners = listeners
        self.shut(socket.SHUT_RD)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.poller.modify(self.socket.fileno(), _EDGES | select.EPOLLOUT)

    def unaccepted(self) -> int:
        """Connections sent that the application has not taken."""
        # Memory of the marks that wait, all alike.
        return -(-self._ask(termios.TIOCOUTQ) // self.mark_memory) if self.mark_memory else 0

    def takes_connection(self) -> bool:
        """Whether the application has taken most of the connections sent."""
        return bool(self._events(select.POLLOUT))

    def introduce(self, peer: tuple[int, int], listening: Stream) -> None:
        """Writes the record that the application reads when it accepts this stream. Raises OSError."""
        self.accepted_at = listening
        self.socket.send(ACCEPTED.pack(self.number, struct.pack("!I", peer[0]), peer[1]), _DONTWAIT)

    def send_accepted(self, application_end: socket.socket) -> None:
        """Sends the file descriptor of an accepted connection. Raises OSError."""
        application_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        rights = array.array("i", [application_end.fileno()])
        self.socket.sendmsg([ACCEPT_MARK], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], _DONTWAIT)
        if not self.mark_memory:
            self.mark_memory = self._ask(termios.TIOCOUTQ)

    @property
    def was_not_accepted(self) -> bool:
        """Whether the application closed the file descriptor with the record in it, and with nothing of the peer."""
        if not self.left_unread or self.accepted_at is None or self.connection is None:
            return False
        listening, rcv = self.accepted_at.listeners, self.connection.rcv
        return bool(listening) and not listening[0].closed and rcv.unread == rcv.bytes_received
