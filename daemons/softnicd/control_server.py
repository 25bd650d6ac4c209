"""The control socket: who may talk to the NIC, and how a packet becomes a request and its reply.

Rules: mode 0600 and only the owner's or root's processes; one packet, one reply, whatever the packet holds; a
descriptor that comes along belongs to the request, and is closed if the request is refused. A client that does not
take its replies is let go.

Whatever streams take, one descriptor is kept for control connections: where there is no other, whoever comes next has
its place, until somebody else wants it. So a NIC that has run out of descriptors can still be asked what happened.
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

import msgspec

from softnic.ipc import control
from softnicd.event_log import EventLog

MAX_CLIENTS = 4096
MAX_OF_PROCESS = 128
"""Connections of one process; a program needs one or two. Those of processes in other PID namespaces, which cannot be
told from one another, are bounded by MAX_CLIENTS / 2 in all."""
LOOK_EVERY_S = 0.5
"""At whether the control socket is still there."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""
_RIGHTS_BYTES = socket.CMSG_LEN(array.array("i").itemsize)
"""Room for one descriptor; the kernel closes the others."""
_RECEIVE = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT

log = logging.getLogger("softnicd")

Answer = Callable[[control.Request, int | None, object], control.Reply]
"""Takes a request, the descriptor that came along, which is then its own, and who asks. Raises OSError to refuse: then
the descriptor is the caller's to close."""


@dataclass(slots=True)
class ControlCounters:
    control_requests: int = 0
    control_refused: int = 0
    """Requests answered with an error."""
    control_malformed: int = 0
    """Of them, packets that are no request."""
    control_strangers: int = 0
    """Connections of other users' processes, closed at once."""
    control_remade: int = 0
    """Times that the control socket had been removed and was made anew."""
    control_overflow: int = 0
    """Connections closed because there were too many, of one process or in all, or replies were not taken."""


class ControlServer:
    """Listens at `path` as long as it lives; `left` is told who has gone. Raises OSError: EADDRINUSE if a NIC is there
    already."""

    def __init__(
        self,
        path: str,
        answer: Answer,
        left: Callable[[object], None],
        event_log: EventLog,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.path = path
        self.counters = ControlCounters()
        self._answer = answer
        self._left = left
        self._event_log = event_log
        self._loop = loop
        self._clients: dict[socket.socket, int] = {}
        """With the process id of each."""
        self._of_process: Counter[int] = Counter()
        self._spare: int | None = None
        """A descriptor for nothing, but to be closed when there is no other."""
        self._guest: socket.socket | None = None
        """The client that has its place, or had."""
        self._retry: asyncio.TimerHandle | None = None
        self._buffer = bytearray(control.MAX_MESSAGE)
        self.took_over = _remove_stale(path)
        """The socket of an earlier NIC was there, which had not ended in good order."""
        self._socket, self._inode = _listening_at(path)
        loop.add_reader(self._socket, self._accept)
        self._keep_spare()
        self._timer = loop.call_later(LOOK_EVERY_S, self._look_again)

    def close(self) -> None:
        self._timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for client in list(self._clients):
            self._drop(client)
        if self._spare is not None:
            os.close(self._spare)
        with contextlib.suppress(FileNotFoundError):
            if Path(self.path).stat().st_ino == self._inode:  # else another NIC has taken the place
                Path(self.path).unlink()

    def program_of(self, client: object) -> int:
        """The process id of who asks; 0 where it is not known (in another PID namespace)."""
        return self._clients.get(client, 0) if isinstance(client, socket.socket) else 0

    def _look_again(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look_again)
        self._keep_spare()
        if (changed := self._look()) is not None:
            self._event_log.record(changed)

    def _look(self) -> str | None:
        """Makes the control socket anew where somebody has removed it (as cleaners of /tmp do), so that programs that
        begin now find it. Returns what there is to tell, if there is anything."""
        try:
            there = os.lstat(self.path)
        except OSError:
            there = None
        if there is not None and there.st_ino == self._inode:
            return None
        if there is not None:
            return f"something else is in the place of the control socket {self.path}: it comes back when that is gone"
        try:
            made, inode = _listening_at(self.path)
        except OSError as error:
            return f"the control socket has been removed, and comes back as soon as it can: {error.strerror}"
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket, self._inode = made, inode
        self._loop.add_reader(made, self._accept)
        self.counters.control_remade += 1
        return f"the control socket {self.path} had been removed, and was made anew"

    def _accept(self) -> None:
        try:
            client, _ = self._socket.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                self._accept_guest(error)
            return
        self._admit(client)

    def _accept_guest(self, error: OSError) -> None:
        """There is no descriptor for a client, but perhaps that of the spare, or of the guest before."""
        self._event_log.exhausted(f"no descriptor is free for control connections, which take turns: {error.strerror}")
        guest, self._guest = self._guest, None
        if guest in self._clients:
            self._serve(guest)  # it may have asked already
        if guest in self._clients:
            self._drop(guest)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        try:
            client, _ = self._socket.accept()
        except OSError:  # come back to it
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(0.2, self._loop.add_reader, self._socket, self._accept)
            return
        self._admit(client)
        self._guest = client

    def _keep_spare(self) -> None:
        """Takes the spare descriptor, if there is one to be had; then nobody is in its place."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open("/", os.O_PATH | os.O_CLOEXEC)
                self._guest = None

    def _admit(self, client: socket.socket) -> None:
        pid, uid, _ = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        client.setblocking(False)
        if uid not in (0, os.geteuid()):
            self.counters.control_strangers += 1
            _refuse(client, errno.EACCES, "a NIC talks to the user it runs as, and to root")
        elif (refusal := self._too_many(pid)) is not None:
            self.counters.control_overflow += 1
            _refuse(client, *refusal)
        else:
            self._clients[client] = pid
            self._of_process[pid] += 1
            self._loop.add_reader(client, self._serve, client)

    def _too_many(self, pid: int) -> tuple[int, str] | None:
        """Why another connection of this process is refused; None: it is not."""
        if self._of_process[pid] >= (MAX_OF_PROCESS if pid else MAX_CLIENTS // 2):
            who = f"process {pid} has" if pid else "processes of other PID namespaces have"
            return errno.EMFILE, f"{who} {self._of_process[pid]} control connections to this NIC already: close some"
        if len(self._clients) >= MAX_CLIENTS:
            return errno.ENFILE, f"the NIC has {MAX_CLIENTS} control connections already"
        return None

    def _drop(self, client: socket.socket) -> None:
        self._loop.remove_reader(client)
        pid = self._clients.pop(client, None)
        if pid is not None:
            self._of_process[pid] -= 1
            if not self._of_process[pid]:
                del self._of_process[pid]
        client.close()
        self._left(client)
        self._keep_spare()

    def _serve(self, client: socket.socket) -> None:
        try:
            size, ancillary, flags, _ = client.recvmsg_into([self._buffer], _RIGHTS_BYTES, _RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            size, ancillary, flags = 0, [], 0
        descriptor = array.array("i", ancillary[0][2])[0] if ancillary else None
        if not size:
            _close(descriptor)
            self._drop(client)
            return
        reply = self._reply(memoryview(self._buffer)[:size], descriptor, flags, client)
        try:
            client.send(control.encode(reply), socket.MSG_DONTWAIT)
        except OSError:
            self.counters.control_overflow += 1
            self._drop(client)

    def _reply(self, packet: memoryview, descriptor: int | None, flags: int, client: object) -> control.Reply:
        self.counters.control_requests += 1
        try:
            if flags & socket.MSG_CTRUNC and descriptor is None:
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                why = f"no descriptor free for another stream: it may have {most} files open (ulimit -n)"
                self._event_log.exhausted(why)
                raise OSError(errno.EMFILE, f"the NIC has {why}")
            return self._answer(self._request(packet, bool(flags & socket.MSG_TRUNC)), descriptor, client)
        except OSError as error:
            failed = control.Failed(error.errno or errno.EIO, error.strerror or str(error))
        except MemoryError:
            failed = control.Failed(errno.ENOMEM, "the NIC has no memory left for this")
        except Exception:
            log.exception("internal error in a request")
            failed = control.Failed(errno.EIO, "the NIC failed at this: its log says more")
        self.counters.control_refused += 1
        _close(descriptor)
        return failed

    def _request(self, packet: memoryview, truncated: bool) -> control.Request:
        """Raises OSError (EBADMSG)."""
        why: object = f"it is longer than {control.MAX_MESSAGE} bytes"
        if not truncated:
            try:
                return control.decode_request(packet)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                why = error
        self.counters.control_malformed += 1
        raise OSError(errno.EBADMSG, f"this is no request: {why}")


def _refuse(client: socket.socket, number: int, why: str) -> None:
    """Closes a connection, and says why before."""
    with client, contextlib.suppress(OSError):  # it has left
        client.send(control.encode(control.Failed(number, why)), socket.MSG_DONTWAIT)


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _listening_at(path: str) -> tuple[socket.socket, int]:
    """A control socket, for its owner only, and its inode. Raises OSError."""
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
        hint = f" (make {Path(path).parent} first)" if error.errno == errno.ENOENT else ""
        raise OSError(error.errno, f"cannot make the control socket {path}: {error.strerror}{hint}") from None
    return made, inode


def _remove_stale(path: str) -> bool:
    """Takes away the socket of a NIC that is gone; returns whether there was one. Raises OSError if one answers there,
    or it is something else."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, f"{path} exists and is no socket")
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
