"""Control server: accepts clients at the control socket and turns packets into requests and replies.

The socket has mode 0600, and only processes of the owner or root are served. A client may share its connection with
processes that it starts, which then have fewer rights (inherited.py). Each packet gets one reply, whatever it contains.
A file descriptor passed with a request belongs to its handler, and is closed if the request is refused. A client that
does not read its replies is disconnected.

One file descriptor is reserved for control connections. When no other is free, clients take turns on it, so that a NIC
that has run out of file descriptors still answers.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from softnic.ipc import control
from softnicd.event_log import EventLog

MAX_CLIENTS = 4096
MAX_PER_PROCESS = 128
"""Connections of one process, which needs one or two. Processes of other PID namespaces cannot be distinguished and
have MAX_CLIENTS / 2 in all."""
MAX_INHERITED = MAX_CLIENTS // 2
"""Connections of processes that inherited one, which may be other users'."""
CHECK_INTERVAL_S = 0.5
"""Between checks that the control socket still exists."""
ACCEPT_RETRY_S = 0.2
"""After an accept that failed for lack of a file descriptor."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""
_RIGHTS_BYTES = socket.CMSG_LEN(array.array("i").itemsize)
"""Space for one file descriptor; the kernel closes the others."""
_RECEIVE = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT

log = logging.getLogger("softnicd")


class Answers(Protocol):
    """Take a request, the file descriptor passed with it, and the client. They own the file descriptor unless they
    raise OSError to refuse."""

    def answer(self, request: control.Request, fd: int | None, client: object) -> control.Reply: ...

    def answer_inherited(
        self, request: control.Request, fd: int | None, client: object, is_stranger: bool
    ) -> control.Reply: ...


@dataclass(slots=True)
class ControlCounters:
    control_requests: int = 0
    control_refused: int = 0
    """Requests answered with an error."""
    control_malformed: int = 0
    """Those of them that were not valid requests."""
    control_other_users: int = 0
    """Connections of other users' processes, closed at once."""
    control_recreated: int = 0
    """How often the control socket had been removed and was created again."""
    control_overflow: int = 0
    """Connections closed because there were too many, of one process or in all, or replies were not read."""


class ControlServer:
    """Serves clients at `path` until `close`. `on_disconnect` is called with each client that has gone.

    Raises OSError: EADDRINUSE if another NIC answers there.
    """

    def __init__(
        self,
        path: str,
        answers: Answers,
        on_disconnect: Callable[[object], None],
        event_log: EventLog,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.path = path
        self.counters = ControlCounters()
        self._answers = answers
        self._on_disconnect = on_disconnect
        self._event_log = event_log
        self._loop = loop
        self._clients: dict[socket.socket, int] = {}
        """Process id of each."""
        self._shared: set[object] = set()
        """Those that child processes inherit."""
        self._inherited: dict[object, bool] = {}
        """Those of processes that inherited one; whether these are other users'."""
        self._per_process: Counter[int] = Counter()
        self._reserve_fd: int | None = None
        """Closed to accept a client when no other file descriptor is free."""
        self._reserved_client: socket.socket | None = None
        """The client that was accepted in its place."""
        self._retry: asyncio.TimerHandle | None = None
        self._buffer = bytearray(control.MAX_MESSAGE)
        self.took_over = _remove_stale(path)
        """An earlier NIC, which did not exit cleanly, had left its socket."""
        self._socket, self._inode = _listen(path)
        loop.add_reader(self._socket, self._accept)
        self._keep_reserve()
        self._timer = loop.call_later(CHECK_INTERVAL_S, self._check)

    def close(self) -> None:
        self._timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for client in list(self._clients):
            self._drop(client)
        if self._reserve_fd is not None:
            os.close(self._reserve_fd)
        with contextlib.suppress(FileNotFoundError):
            if Path(self.path).stat().st_ino == self._inode:  # else another NIC has created it since
                Path(self.path).unlink()

    def pid_of(self, client: object) -> int:
        """The process id of a client; 0 if it is not known (in another PID namespace)."""
        return self._clients.get(client, 0) if isinstance(client, socket.socket) else 0

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check)
        self._keep_reserve()
        if (changed := self._recreate_socket()) is not None:
            self._event_log.record(changed)

    def _recreate_socket(self) -> str | None:
        """Creates the control socket again if it was removed, as cleaners of /tmp do.

        Returns a line for the event log; None if the socket exists.
        """
        try:
            there = os.lstat(self.path)
        except OSError:
            there = None
        if there is not None and there.st_ino == self._inode:
            return None
        if there is not None:
            return f"something else has replaced the control socket {self.path}: it is created again when that is gone"
        try:
            made, inode = _listen(self.path)
        except OSError as error:
            return f"the control socket has been removed and cannot be created yet: {error.strerror}"
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket, self._inode = made, inode
        self._loop.add_reader(made, self._accept)
        self.counters.control_recreated += 1
        return f"the control socket {self.path} had been removed, and was created again"

    def _accept(self) -> None:
        try:
            client, _ = self._socket.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                self._accept_reserved(error)
            return
        self._admit(client)

    def _accept_reserved(self, error: OSError) -> None:
        """Accepts a client in place of the reserve file descriptor or of the last reserved client."""
        why = error.strerror
        self._event_log.exhausted(f"no file descriptor is free for control connections, which take turns: {why}")
        reserved, self._reserved_client = self._reserved_client, None
        if reserved in self._clients:
            self._serve(reserved)  # it may have sent its request
        if reserved in self._clients:
            self._drop(reserved)
        if self._reserve_fd is not None:
            os.close(self._reserve_fd)
            self._reserve_fd = None
        try:
            client, _ = self._socket.accept()
        except OSError:
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._loop.add_reader, self._socket, self._accept)
            return
        self._admit(client)
        self._reserved_client = client

    def _keep_reserve(self) -> None:
        """Opens the reserve file descriptor again, if one is free; the reserved client is then an ordinary one."""
        if self._reserve_fd is None:
            with contextlib.suppress(OSError):
                self._reserve_fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
                self._reserved_client = None

    def _admit(self, client: socket.socket) -> None:
        pid, is_stranger = _peer(client)
        if is_stranger:
            self.counters.control_other_users += 1
            _refuse(client, errno.EACCES, "a NIC serves the user it runs as, and root")
        else:
            self._take(client, pid)

    def _take(self, client: socket.socket, pid: int) -> bool:
        """Serves a client from now on, unless there are too many; returns whether it does."""
        client.setblocking(False)
        if (refusal := self._too_many(pid)) is not None:
            self.counters.control_overflow += 1
            _refuse(client, *refusal)
            return False
        self._clients[client] = pid
        self._per_process[pid] += 1
        self._loop.add_reader(client, self._serve, client)
        return True

    def _inherit(self, packet: memoryview, fd: int | None, flags: int) -> None:
        """Takes a packet of a shared connection: another client, or nothing."""
        self.counters.control_requests += 1
        try:
            request = self._request(packet, bool(flags & socket.MSG_TRUNC))
            if not isinstance(request, control.Inherit) or fd is None or not _is_packets(fd):
                raise OSError(errno.EINVAL, "a shared connection takes Inherit alone")
        except OSError:
            self.counters.control_refused += 1
            _close(fd)
            return
        client = socket.socket(fileno=fd)
        pid, is_stranger = _peer(client)
        if len(self._inherited) >= MAX_INHERITED:
            self.counters.control_overflow += 1
            _refuse(client, errno.ENFILE, f"the NIC has {MAX_INHERITED} control connections of this kind already")
        elif self._take(client, pid):
            self._inherited[client] = is_stranger

    def _too_many(self, pid: int) -> tuple[int, str] | None:
        """The errno and reason to refuse another connection of this process; None: it is accepted."""
        if self._per_process[pid] >= (MAX_PER_PROCESS if pid else MAX_CLIENTS // 2):
            who = f"process {pid} has" if pid else "processes of other PID namespaces have"
            return errno.EMFILE, f"{who} {self._per_process[pid]} control connections to this NIC already: close some"
        if len(self._clients) >= MAX_CLIENTS:
            return errno.ENFILE, f"the NIC has {MAX_CLIENTS} control connections already"
        return None

    def _drop(self, client: socket.socket) -> None:
        self._loop.remove_reader(client)
        self._shared.discard(client)
        self._inherited.pop(client, None)
        pid = self._clients.pop(client, None)
        if pid is not None:
            self._per_process[pid] -= 1
            if not self._per_process[pid]:
                del self._per_process[pid]
        client.close()
        self._on_disconnect(client)
        self._keep_reserve()

    def _serve(self, client: socket.socket) -> None:
        try:
            size, ancillary, flags, _ = client.recvmsg_into([self._buffer], _RIGHTS_BYTES, _RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            size, ancillary, flags = 0, [], 0
        fd = array.array("i", ancillary[0][2])[0] if ancillary else None
        if not size:
            _close(fd)
            self._drop(client)
            return
        packet = memoryview(self._buffer)[:size]
        if client in self._shared:
            self._inherit(packet, fd, flags)
            return
        malformed = self.counters.control_malformed
        reply = self._reply(packet, fd, flags, client)
        try:
            client.send(control.encode(reply), socket.MSG_DONTWAIT)
        except OSError:
            self.counters.control_overflow += 1
            self._drop(client)
            return
        # A process that passes both ends of its pair would have the NIC answer its own replies for ever.
        if client in self._inherited and self.counters.control_malformed > malformed:
            self._drop(client)

    def _reply(self, packet: memoryview, fd: int | None, flags: int, client: object) -> control.Reply:
        self.counters.control_requests += 1
        try:
            if flags & socket.MSG_CTRUNC and fd is None:
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                why = f"no file descriptor free for another stream: its limit is {most} (ulimit -n)"
                self._event_log.exhausted(why)
                raise OSError(errno.EMFILE, f"the NIC has {why}")
            return self._answer(self._request(packet, bool(flags & socket.MSG_TRUNC)), fd, client)
        except OSError as error:
            failed = control.Failed(error.errno or errno.EIO, error.strerror or str(error))
        except MemoryError:
            failed = control.Failed(errno.ENOMEM, "the NIC has no memory left for this")
        except Exception:
            log.exception("internal error in a request")
            failed = control.Failed(errno.EIO, "internal error of the NIC: its log says more")
        self.counters.control_refused += 1
        _close(fd)
        return failed

    def _answer(self, request: control.Request, fd: int | None, client: object) -> control.Reply:
        """Raises OSError to refuse."""
        if client in self._inherited:
            return self._answers.answer_inherited(request, fd, client, self._inherited[client])
        if not isinstance(request, control.ShareConnection):
            return self._answers.answer(request, fd, client)
        if fd is not None:
            raise OSError(errno.EINVAL, "ShareConnection takes no file descriptor")
        self._shared.add(client)
        return control.Done()

    def _request(self, packet: memoryview, truncated: bool) -> control.Request:
        """Raises OSError (EBADMSG)."""
        why: object = f"it is longer than {control.MAX_MESSAGE} bytes"
        if not truncated:
            try:
                return control.decode_request(packet)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                why = error
        self.counters.control_malformed += 1
        raise OSError(errno.EBADMSG, f"this is not a request: {why}")


def _peer(client: socket.socket) -> tuple[int, bool]:
    """The process id at the other end, and whether it is another user's process: neither the NIC's nor root's."""
    pid, uid, _ = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid not in (0, os.geteuid())


def _is_packets(fd: int) -> bool:
    """Whether a file descriptor is a Unix socket of packets."""
    try:
        end = socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        return (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
    finally:
        end.detach()


def _refuse(client: socket.socket, number: int, why: str) -> None:
    """Sends the reason for a refusal and closes the connection."""
    with client, contextlib.suppress(OSError):  # it may have gone
        client.send(control.encode(control.Failed(number, why)), socket.MSG_DONTWAIT)


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _listen(path: str) -> tuple[socket.socket, int]:
    """Creates a control socket, for its owner only; returns it with its inode. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.setblocking(False)
        before = os.umask(0o177)
        try:
            made.bind(path)
        finally:
            os.umask(before)
        inode = Path(path).stat().st_ino
        made.listen(128)
    except OSError as error:
        made.close()
        hint = f" (create {Path(path).parent} first)" if error.errno == errno.ENOENT else ""
        raise OSError(error.errno, f"cannot create the control socket {path}: {error.strerror}{hint}") from None
    return made, inode


def _remove_stale(path: str) -> bool:
    """Removes the socket of a NIC that is gone; returns whether there was one.

    Raises OSError if a NIC answers there, or if it is not a socket.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, f"{path} exists and is not a socket")
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.setblocking(False)
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return True
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise OSError(error.errno, f"cannot use {path}: {error.strerror}") from None
    raise OSError(errno.EADDRINUSE, f"a NIC answers at {path} already")
