"""A program's connection to a NIC: requests of softnic/ipc/control.py out, replies in."""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import threading
from typing import Any

import msgspec

from softnic.ipc.control import MAX_MESSAGE, Failed, Hello, NicInfo, Reply, Request, decode_reply, encode


class Client:
    """A program's connection to one NIC. Usable from several threads; not across a fork.

    `path` is the control socket. Raises OSError: ENETDOWN where there is no NIC there or it went away (the next
    call looks for one at the same path again), EACCES where it is somebody else's.
    """

    def __init__(self, path: str | os.PathLike[str], timeout_s: float = 4.0) -> None:
        self.path = os.fspath(path)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._answer = bytearray(MAX_MESSAGE)
        self._info: NicInfo | None = None
        self.changes = 0
        """Connections made and lost so far: with each that is lost, what a NIC held for it is gone."""
        self._socket: socket.socket | None = self._open()

    def call(self, request: Request, *descriptors: int) -> Any:
        """Sends one request, returns its reply. A Failed reply becomes the OSError that it says."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        with self._lock:
            try:
                reply = self._exchange(encode(request), rights)
            except BaseException:
                self._drop()  # or a late reply would answer the next request
                raise
        if isinstance(reply, Failed):
            raise OSError(reply.errno, reply.message)
        return reply

    def info(self) -> NicInfo:
        """Who the NIC is; asked once a connection."""
        if self._info is None:
            self._info = self.call(Hello())
        return self._info

    def check(self) -> None:
        """Notices that the NIC has closed the connection, without a call."""
        with self._lock:
            self._check()

    def is_closed(self) -> bool:
        """Whether the NIC has closed the connection. False while another thread makes a call."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._check()
            return self._socket is None
        finally:
            self._lock.release()

    def _check(self) -> None:
        if self._socket is not None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if poll.poll(0):  # nothing comes unasked, but the end
                self._drop()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _open(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(self._timeout_s)
            connection.connect(self.path)
            self.changes += 1
        except OSError as error:
            connection.close()
            number, hint = errno.ENETDOWN, "is softnicd running?"
            if error.errno in (errno.EACCES, errno.EPERM):
                number, hint = error.errno, "a NIC serves the user it runs as, and root"
            raise OSError(number, f"no NIC answers at {self.path} ({error.strerror or error}): {hint}") from error
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
            if error.errno == errno.ENETDOWN:  # it says so itself
                raise
            raise self._gone(error.strerror or str(error)) from error
        if not size:
            raise self._gone("it closed the connection")
        try:
            return decode_reply(memoryview(self._answer)[:size])
        except msgspec.MsgspecError as error:
            raise OSError(errno.EPROTO, f"the NIC at {self.path} speaks another language: {error}") from error

    def _send_and_wait(self, packet: bytes, rights: list[tuple[int, int, array.array[int]]]) -> int:
        """Returns the size of the reply. Raises OSError."""
        is_new = self._socket is None
        connection = self._socket = self._socket or self._open()
        try:
            connection.sendmsg([packet], rights)
        except (BrokenPipeError, ConnectionResetError):
            if size := self._last_words(connection):
                return size
            if is_new:
                raise
            self._drop()  # another NIC may have taken its place; nothing was asked yet
            return self._send_and_wait(packet, rights)
        try:
            return connection.recv_into(self._answer)
        except ConnectionResetError:
            if size := self._last_words(connection):
                return size
            raise

    def _last_words(self, connection: socket.socket) -> int:
        """The size of what the NIC said before it closed the connection: why it refuses it. 0: it said nothing."""
        try:
            return connection.recv_into(self._answer, 0, socket.MSG_DONTWAIT)
        except OSError:
            return 0

    def _gone(self, why: str) -> OSError:
        return OSError(errno.ENETDOWN, f"the NIC at {self.path} is gone: {why}")
