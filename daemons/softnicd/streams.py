"""A program's stream: the NIC's end of a Unix stream pair, and the TCP connection or listener behind it.

Strategy: descriptors are watched edge-triggered, so nothing is re-armed per read; a stream remembers that there may
be something to read until the kernel says there is not. Bytes go from the descriptor straight into TCP's send
buffer and from TCP's received pieces straight into the descriptor. What cannot go on waits where it is: bytes of the
program in its socket (TCP's buffer is full), bytes of the peer in TCP (the program does not read), connections in
TCP's backlog (the program does not accept).
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import itertools
import select
import socket
import struct
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softnic.ipc.control import (
    ACCEPT_MARK,
    ACCEPTED,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    STREAM_BUFFER,
    StreamInfo,
)
from softnic.packet.segment import ECN_BITS, Tag
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener
from softnic.tcp.state import HANDSHAKE
from softnicd.registered import Records

if TYPE_CHECKING:
    from softnicd.collectives import Group

READ_BYTES = 256 << 10
"""One read: as much as a super-segment takes."""
_PIECES = 64
_SCRATCH = bytearray(READ_BYTES)
_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_AT_ONCE = socket.MSG_DONTWAIT
"""Beside O_NONBLOCK, which a program that kept a copy of the descriptor could take away."""
_INT = array.array("i", [0])


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a stream: kept until there is a connection, inherited by what a listener accepts."""

    tos: int = 0
    codec: str = ""
    blocks: int = 0
    nodelay: int = 0
    keepalive: int = 0
    keepalive_idle_s: int = KEEPALIVE_IDLE_S
    keepalive_interval_s: int = KEEPALIVE_INTERVAL_S
    keepalive_count: int = KEEPALIVE_COUNT
    user_timeout_ms: int = 0
    """0: TCP's own."""
    congestion: str = ""
    """Empty: the NIC's."""
    reset_on_close: int = 0

    @property
    def tag(self) -> Tag:
        return Tag(self.tos & ~ECN_BITS, self.codec or None)

    @property
    def keepalive_plan(self) -> tuple[float, float, int] | None:
        if not self.keepalive:
            return None
        return self.keepalive_idle_s, self.keepalive_interval_s, self.keepalive_count


class Stream:
    """`number` is what programs call it. Takes over `descriptor`."""

    __slots__ = (
        "address",
        "blocked",
        "connection",
        "ending",
        "failure",
        "filler",
        "group",
        "hung_up",
        "input_open",
        "left_unread",
        "listener",
        "number",
        "offset",
        "output_open",
        "poller",
        "port",
        "program",
        "readable",
        "records",
        "settings",
        "socket",
    )

    def __init__(self, number: int, end: socket.socket, poller: select.epoll, settings: Settings) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)  # urgent bytes are bytes, in their place
        self.number = number
        self.socket = end
        self.poller = poller
        self.settings = settings
        self.address = 0
        self.port = 0
        """Reserved by bind."""
        self.program = 0
        """Process id of who opened it; of a stream that was accepted, of who listens. 0: not known."""
        self.connection: Connection | None = None
        self.listener: Listener | None = None
        self.failure: StreamInfo | None = None
        """How the last connect failed, until there is another."""
        self.filler = 0
        """Bytes still to be thrown away before the stream's own."""
        self.offset = 0
        """Bytes of the stream read so far."""
        self.readable = True
        """Bytes or their end may wait in the descriptor."""
        self.ending = False
        """The end of what the program writes waits in the descriptor, or has been read."""
        self.hung_up = False
        """The program has closed its end."""
        self.left_unread = False
        """The program closed its end with bytes of the peer in it."""
        self.input_open = True
        self.output_open = True
        self.records: Records | None = None
        """In registered mode: what the descriptor carries instead of bytes, from `records.begins` on."""
        self.group: Group | None = None
        """Whose the connection's bytes are, both ways; the descriptor carries none."""
        self.blocked = False
        """The descriptor takes no more; the poller tells when it does."""
        poller.register(end.fileno(), _EDGES)

    @property
    def connecting(self) -> bool:
        return self.connection is not None and self.connection.state in HANDSHAKE

    @property
    def carries_bytes(self) -> bool:
        """It is connected, and its descriptor carries what it does on most streams."""
        if self.connection is None or self.connecting or self.records is not None or self.group is not None:
            return False
        return self.output_open

    @property
    def finished(self) -> bool:
        """The program has let go of it, and all that it wrote is with TCP."""
        return self.hung_up and (self.connection is None or not self.input_open or self.connecting)

    def pull(self) -> bool:
        """Moves the program's bytes to TCP. Returns whether there may be more that TCP would take."""
        connection = self.connection
        if connection is None or not self.readable or not self.input_open or connection.state in HANDSHAKE:
            return False
        if self.group is not None:
            return False
        try:
            if self.filler:
                most = min(self.filler, len(_SCRATCH))
                count = self.socket.recv_into(_SCRATCH, most, _AT_ONCE)
                self.filler -= count
            elif self.records is not None and self.offset >= self.records.begins:
                most = count = self.records.pull()
                if count < 0:
                    return False
            else:
                space = connection.write_space()
                if not space:
                    return False  # TCP says when there is some
                most = READ_BYTES if self.records is None else min(READ_BYTES, self.records.begins - self.offset)
                most = min(len(space), most)
                count = self.socket.recv_into(space, most, _AT_ONCE)
                connection.wrote(count)
                self.offset += count
        except BlockingIOError:
            self.readable = False
            if self.records is not None:
                self.push()  # what was asked for may be there
            return False
        except OSError as error:
            # It closed its end with bytes of the peer unread, or the descriptor never was what it should be.
            self.left_unread = error.errno == errno.ECONNRESET
            count = 0
        if count:
            # A read ends early at an urgent mark and behind bytes that carried descriptors, too: more may follow.
            self.readable = count == most or self.ending or self._waiting() > 0
            return self.readable
        self.readable = self.input_open = False
        connection.shutdown_write()
        return False

    def drain(self) -> bool:
        """Discards the filler of a connect that failed: the descriptor is writable again. False if some was missing."""
        try:
            while self.filler:
                count = self.socket.recv_into(_SCRATCH, min(self.filler, len(_SCRATCH)), _AT_ONCE)
                if not count:
                    return False
                self.filler -= count
        except OSError:
            return False
        return True

    def push(self) -> None:
        """Moves the peer's bytes to the program, and their end."""
        connection = self.connection
        if connection is None or self.group is not None:
            return
        received = connection.received
        try:
            if self.records is not None and self.output_open:
                self.records.push()
            while received and self.output_open and self.records is None:
                if len(received) == 1:
                    sent = self.socket.send(received[0], _AT_ONCE)
                else:
                    sent = self.socket.sendmsg(list(itertools.islice(received, _PIECES)), (), _AT_ONCE)
                connection.consume(sent)
        except BlockingIOError:
            self._wait(True)
            return
        except OSError:  # it has closed its end, or its way in
            self.output_open = False
        self._wait(False)
        if not self.output_open and not self.hung_up:
            connection.consume(sum(map(len, received)))
        elif connection.eof and self.output_open and not received:
            self.output_open = False
            self.shut(socket.SHUT_WR)

    def _wait(self, blocked: bool) -> None:
        if blocked != self.blocked:
            self.blocked = blocked
            self.poller.modify(self.socket.fileno(), _EDGES | (select.EPOLLOUT if blocked else 0))

    def unread(self) -> int:
        """Bytes of the stream that wait in the descriptor."""
        return max(0, self._waiting() - self.filler)

    def _waiting(self) -> int:
        """Bytes that wait in the descriptor, filler included."""
        fcntl.ioctl(self.socket, termios.FIONREAD, _INT)
        return _INT[0]

    def shut(self, how: int) -> None:
        with contextlib.suppress(OSError):  # the program was faster
            self.socket.shutdown(how)

    def leave(self, now: float) -> None:
        """The program has let go of the connection: its bytes still go out, then a FIN.

        Bytes of the peer that nobody read are worth a reset (RFC 1122, section 4.2.2.13), but not at the price of
        bytes that the program wrote before it closed; these go first.
        """
        connection, settings = self.connection, self.settings
        if connection is None:
            return
        lost = self.left_unread or bool(connection.received)
        waiting = connection.bytes_written > connection.info(now).bytes_sent
        if self.connecting or settings.reset_on_close or (lost and not waiting):
            connection.abort(now)
        else:
            connection.consume(sum(map(len, connection.received)))
            connection.close(now)

    def close(self) -> None:
        """Lets go of the descriptor; a copy that a fork keeps open tells nobody that it is. And of regions, at once."""
        self.records = None
        self.poller.unregister(self.socket.fileno())
        self.shut(socket.SHUT_RDWR)
        self.socket.close()

    # -- settings --------------------------------------------------------------------------------------------------

    def apply(self, now: float) -> None:
        """Gives the connection, once there is one, what was set. A tag holds from the next byte that is written."""
        connection, settings = self.connection, self.settings
        if connection is None:
            return
        if self.group is None:
            connection.set_nodelay(bool(settings.nodelay))
            connection.set_blocks(bool(settings.blocks))
        connection.set_user_timeout(settings.user_timeout_ms / 1000)
        if settings.congestion:
            connection.set_congestion(settings.congestion)
        if settings.keepalive_plan != connection.keepalive:
            connection.set_keepalive(settings.keepalive_plan, now)
        if self.input_open and self.group is None and settings.tag != connection.tag_set:
            connection.tag(settings.tag, self.offset + self.unread())

    # -- listening -------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Records of what is accepted go through this descriptor, two at a time."""
        self.listener = listener
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.poller.modify(self.socket.fileno(), _EDGES | select.EPOLLOUT)

    def takes_record(self) -> bool:
        """Whether the program has fetched most of what it was handed."""
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLOUT)
        return any(mask & select.POLLOUT for _, mask in poll.poll(0))

    def mark_unaccepted(self) -> None:
        """Writes the byte that the program reads when it accepts this stream. Raises OSError."""
        self.socket.send(ACCEPT_MARK, _AT_ONCE)

    def hand_over(self, number: int, peer: tuple[int, int], program_end: socket.socket) -> None:
        """Tells the program of a new stream. Raises OSError if it cannot be told."""
        record = ACCEPTED.pack(number, struct.pack("!I", peer[0]), peer[1])
        program_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        rights = array.array("i", [program_end.fileno()])
        self.socket.sendmsg([record], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], _AT_ONCE)
