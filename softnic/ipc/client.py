"""Client of a NIC's control socket: sends the requests of softnic/ipc/control.py and receives the replies.

The socket is one of `_socket`, and polls are those of this module's import: libraries such as gevent replace the
classes of the modules `socket` and `select`, and a call must not change to another coroutine while it has the lock.

Garbage collection and signal handlers run in the middle of a call, in its thread, and may close or print sockets of the
NIC, which makes calls. These cannot wait for the call that they interrupt: they go over a connection of their own.
"""

from __future__ import annotations

import _socket
import array
import errno
import os
import socket
from _thread import RLock
from contextlib import closing
from select import POLLIN, poll
from typing import Any

import msgspec

from softnic.ipc.collectives_info import CollectivesInfo, QueryCollectives
from softnic.ipc.control import (
    MAX_MESSAGE,
    Failed,
    NicInfo,
    NicStats,
    QueryNic,
    QueryStats,
    Reply,
    Request,
    decode_reply,
    encode,
)


class Client:
    """A process's connection to one NIC. It can be used by several threads, but not after a fork.

    Parameters
    ----------
    path : path-like
        The NIC's control socket.
    timeout_s : float
        Time to wait for a reply.

    Raises
    ------
    OSError
        ENETDOWN if no NIC answers at `path`, or it is gone (the next call connects again); EACCES if the NIC belongs to
        another user.
    """

    def __init__(self, path: str | os.PathLike[str], timeout_s: float = 4.0) -> None:
        self.path = os.fspath(path)
        self._timeout_s = timeout_s
        self._lock = RLock()  # of _thread: gevent replaces threading's, and threads of its pool call too
        self._calling = False
        """Whether the thread that has the lock waits for a reply."""
        self._answer = bytearray(MAX_MESSAGE)
        self._info: NicInfo | None = None
        self.changes = 0
        """Connections made and lost so far. A NIC releases what it held for a connection that is lost."""
        self._socket: _socket.socket | None = self._open()

    def call(self, request: Request, *fds: int) -> Any:
        """Sends a request with file descriptors and returns the reply. Raises OSError for a Failed reply."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self._lock:
            if self._calling:  # this call interrupts that one
                with closing(Client(self.path, self._timeout_s)) as other:
                    return other.call(request, *fds)
            self._calling = True
            try:
                reply = self._exchange(encode(request), rights)
            except BaseException:
                self._drop()  # else a late reply would be taken for that of the next request
                raise
            finally:
                self._calling = False
        if isinstance(reply, Failed):
            raise OSError(reply.errno, reply.message)
        return reply

    def info(self) -> NicInfo:
        """The NIC's description, requested once per connection."""
        if self._info is None:
            self._info = self.call(QueryNic())
        return self._info

    def stats(self) -> NicStats:
        """The NIC's statistics, with all streams and communicators."""
        first: NicStats = self.call(QueryStats())
        streams, stats = first.streams, first
        while stats.more and stats.streams:
            stats = self.call(QueryStats(streams[-1].stream))
            streams += stats.streams
        collectives: CollectivesInfo | None = None
        if not first.info.device:  # a NIC of a kernel executes none
            collectives = self.call(QueryCollectives())
        return msgspec.structs.replace(
            first,
            streams=streams,
            more=False,
            communicators=[] if collectives is None else collectives.communicators,
            failed=[] if collectives is None else collectives.failed,
        )

    def check(self) -> None:
        """Detects that the NIC has closed the connection, without a request."""
        with self._lock:
            self._check()

    def is_closed(self) -> bool:
        """Whether the NIC has closed the connection. False during a call, of any thread."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._check()
            return self._socket is None and not self._calling
        finally:
            self._lock.release()

    def _check(self) -> None:
        if self._socket is not None and not self._calling:
            waiting = poll()
            waiting.register(self._socket, POLLIN)
            if waiting.poll(0):  # outside a call, only the end can arrive
                self._drop()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def abandon(self) -> None:
        """Close the file descriptor, without waiting for calls of other threads: at exit, or in a forked child."""
        self._drop()

    def _open(self) -> _socket.socket:
        connection = _connect(self.path, self._timeout_s)
        self.changes += 1
        return connection

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._info = None
            self.changes += 1

    def _exchange(self, packet: bytes, rights: list[tuple[int, int, array.array[int]]]) -> Reply:
        try:
            size = self._send_and_wait(packet, rights)
        except OSError as error:
            if error.errno == errno.ENETDOWN:  # raised by connect
                raise
            raise self._gone(error.strerror or str(error)) from error
        if not size:
            raise self._gone("it closed the connection")
        return _parse_reply(memoryview(self._answer)[:size], self.path)

    def _send_and_wait(self, packet: bytes, rights: list[tuple[int, int, array.array[int]]]) -> int:
        """Returns the size of the reply. Raises OSError."""
        is_new = self._socket is None
        connection = self._socket = self._socket or self._open()
        try:
            connection.sendmsg([packet], rights)
        except (BrokenPipeError, ConnectionResetError):
            if size := self._receive_refusal(connection):
                return size
            if is_new:
                raise
            self._drop()  # another NIC may have replaced it; the request was not sent
            return self._send_and_wait(packet, rights)
        try:
            return connection.recv_into(self._answer)
        except ConnectionResetError:
            if size := self._receive_refusal(connection):
                return size
            raise

    def _receive_refusal(self, connection: _socket.socket) -> int:
        """Receives the reason that the NIC sent before it closed the connection. Returns its size, 0 for none."""
        try:
            return connection.recv_into(self._answer, 0, socket.MSG_DONTWAIT)
        except OSError:
            return 0

    def _gone(self, why: str) -> OSError:
        return OSError(errno.ENETDOWN, f"the NIC at {self.path} is gone: {why}")


def _connect(path: str, timeout_s: float) -> _socket.socket:
    """Return a socket connected to the NIC at `path`, with a timeout; 0: non-blocking.

    Raises OSError: ENETDOWN if no NIC answers, EACCES if it belongs to another user.
    """
    connection = _socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError as error:
        connection.close()
        number, hint = errno.ENETDOWN, "is softnicd running?"
        if error.errno in (errno.EACCES, errno.EPERM):
            number, hint = error.errno, "a NIC serves the user it runs as, and root"
        raise OSError(number, f"no NIC answers at {path} ({error.strerror or error}): {hint}") from error
    return connection


def _parse_reply(packet: bytes | memoryview, path: str) -> Reply:
    """Return the reply that the NIC at `path` sent. Raises OSError (EPROTO) if it is none."""
    try:
        return decode_reply(packet)
    except msgspec.MsgspecError as error:
        raise OSError(errno.EPROTO, f"the NIC at {path} speaks another protocol: {error}") from error
