"""Connection of a NIC's socket: how a file descriptor is connected, and which error ended it.

- A connecting file descriptor is not writable: its send buffer is filled with bytes that the NIC discards when the
  connection is established, or fails; SO_ERROR then has the reason. After a failure the same file descriptor may
  connect again, so that its registrations with epoll stay. A listening one is not writable either.
- The file descriptor itself reports only "end of stream" and "broken pipe". On one of them the NIC is asked for the
  error, and that is raised: ECONNRESET, ETIMEDOUT, ..., or ENETDOWN if the NIC is gone.
"""

from __future__ import annotations

import _socket
import array
import contextlib
import errno
import os
import socket
import time
from select import POLLHUP, POLLIN, POLLOUT, poll

from softnic.ipc import control, socket_state
from softnic.ipc.control import StreamInfo
from softnic.ipc.socket_state import client
from softnic.socket import addresses
from softnic.socket.options import IN_SYN, LANE, LINGER, NIC_OPTIONS

_WRITE_BLOCKER = bytes(1 << 16)
_UNACKNOWLEDGED = {"ESTABLISHED", "CLOSE-WAIT", "FIN-WAIT-1", "CLOSING", "LAST-ACK"}
"""States in which bytes, or the FIN, may not be acknowledged yet."""


def _was_refused(error: BaseException) -> bool:
    """Whether the NIC has refused a request with this error, and so did not keep the file descriptor passed with it."""
    return isinstance(error, OSError) and error.errno != errno.ENETDOWN


class NicSocket(socket.socket):
    """A socket whose other end the NIC has, or will get when it is bound or connected."""

    __slots__ = ("_open_state",)

    _open_state: socket_state.SocketState | None

    def _opened(self) -> socket_state.SocketState:
        """Returns the state of the stream. Raises OSError (EBADF) if the socket is closed or detached."""
        if self._open_state is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open_state

    def _bind(self, address: tuple[str, int]) -> None:
        state = self._opened()
        if state.stream:
            raise OSError(errno.EINVAL, "the socket is bound already")
        reuse = bool(state.options.get((socket.SOL_SOCKET, socket.SO_REUSEADDR)))
        share = bool(state.options.get((socket.SOL_SOCKET, socket.SO_REUSEPORT)))
        self._open(control.Bind(*address, reuse, share=share))
        state.bound = True

    def _connect(self, target: tuple[str, int]) -> None:
        state = self._opened()
        if state.listening or state.peer:
            raise OSError(errno.EISCONN, "the socket is connected")
        if state.target:  # called again, which reports the outcome
            self._settle()
            if state.peer is None:
                raise OSError(errno.EALREADY, "the socket is connecting")
            return
        if target[0] == addresses.ANY:
            target = client(state.path).info().ip, target[1]
        if self._hung_up():
            self._renew()
        if state.bound and not state.stream:
            share = bool(state.options.get((socket.SOL_SOCKET, socket.SO_REUSEPORT)))
            self._open(control.Bind(*state.local, True, share=share))
        with state.lock:
            self._start(target)
        timeout = self.gettimeout()
        if timeout == 0:
            raise BlockingIOError(errno.EINPROGRESS, "Operation now in progress")
        waiting = poll()
        waiting.register(self.fileno(), POLLOUT)
        if not waiting.poll(None if timeout is None else min(max(1, timeout * 1000), 0x7FFFFFFF)):
            raise TimeoutError("timed out")
        self._settle()

    def _start(self, target: tuple[str, int]) -> None:
        """Starts a connection, while this file descriptor is not writable."""
        state = self._opened()
        if not state.stream and not state.options.keys().isdisjoint(IN_SYN):
            self._open(control.Open())
        self._block()
        state.target, state.ended = target, False
        try:
            self._open(control.Connect(*target, state.stream, int(state.options.get(LANE, -1))))
        except BaseException as error:
            state.target = None
            if _was_refused(error) and state.nic_end >= 0:
                self._unblock(state.nic_end)
            raise

    def _accept(self) -> tuple[int, tuple[str, int]]:
        """Accepts a connection. Returns its file descriptor, which a socket object is to take, and the peer's name."""
        state = self._opened()
        if not state.listening:
            raise OSError(errno.EINVAL, "the socket is not listening")
        try:
            _socket.socket.recv(self, 1, socket.MSG_PEEK)  # waits for a connection
            os.close(os.dup(self.fileno()))  # without a free file descriptor it stays queued
            mark, ancillary, _, _ = _socket.socket.recvmsg(
                self, len(control.ACCEPT_MARK), socket.CMSG_LEN(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:  # shut down with connections not accepted
            mark = b""
        if not mark:
            self._raise_if_failed()
            raise OSError(errno.EINVAL, "the listening socket was shut down")
        if not ancillary:
            raise OSError(errno.EMFILE, "too many open files to accept a connection")
        fd = array.array("i", ancillary[0][2])[0]
        with socket_state.unix_view(fd) as end:
            number, host, port = control.ACCEPTED.unpack(end.recv(control.ACCEPTED.size, socket.MSG_DONTWAIT))
            if state.send_buffer:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, state.send_buffer)
        peer = (socket.inet_ntoa(host), port)
        local = (addresses.local_of(peer[0], state.local[0], client(state.path)), state.local[1])
        accepted = socket_state.SocketState(state.path, number, local=local, peer=peer, options=dict(state.options))
        accepted.send_buffer = state.send_buffer
        socket_state.on_accept(fd, accepted)
        return fd, peer

    def _block(self) -> None:
        """Fills the send buffer, so that the file descriptor is not writable."""
        timeout = self.gettimeout()
        super().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # a small buffer is filled quickly
        self.settimeout(0.0)
        try:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # broken: another process has it listen
                while True:
                    super().send(_WRITE_BLOCKER)
        finally:
            self.settimeout(timeout)

    @staticmethod
    def _unblock(nic_end: int) -> None:
        """Empties the send buffer again, where the NIC has not taken its end."""
        with socket_state.unix_view(nic_end) as end, contextlib.suppress(BlockingIOError):
            while end.recv(len(_WRITE_BLOCKER), socket.MSG_DONTWAIT):
                pass

    def _hung_up(self) -> bool:
        """Whether the NIC has closed its end of the pair, or the application has shut down both directions."""
        waiting = poll()
        waiting.register(self.fileno(), 0)
        return any(mask & POLLHUP for _, mask in waiting.poll(0))

    def _is_over(self) -> bool:
        """Whether a connection that was established no longer exists."""
        if not self._hung_up():
            return False
        state = self._opened()
        try:
            info = client(state.path).call(control.QueryStream(state.stream))
        except OSError:
            return True  # the NIC is gone, or was replaced
        return bool(info.state == "CLOSED")

    def _open(self, request: control.Open | control.Bind | control.Connect) -> None:
        """Opens, binds or connects. Passes the NIC its end of the pair, unless it has it, and the options so far."""
        state = self._opened()
        new = not state.stream
        if new and state.nic_end < 0:  # closed by on_detach
            self._renew()
        try:
            opened = client(state.path).call(request, *([state.nic_end] if new else []))
        except BaseException as error:
            if new and not _was_refused(error):
                self._renew()  # the NIC may have received it
            raise
        state.stream, state.local = opened.stream, (opened.address, opened.port)
        if new:
            socket_state.name_end(self.fileno(), state.stream)
            state.close_nic_end()
            for (level, name), value in state.options.items():
                if (level, name) in NIC_OPTIONS:
                    try:
                        client(state.path).call(control.SetOption(state.stream, level, name, value))
                    except OSError as error:
                        if error.errno != errno.EBADF:
                            raise
                        return  # the stream has failed meanwhile; SO_ERROR has the reason

    def _renew(self) -> None:
        """Creates a new pair under the same file descriptor."""
        state = self._opened()
        state.close_nic_end()
        timeout, inheritable = self.gettimeout(), self.get_inheritable()
        fresh = socket_state.new_pair(state)
        try:
            os.dup2(fresh, self.fileno(), inheritable)
            socket_state.register(self.fileno(), state)
        finally:
            os.close(fresh)
        self.settimeout(timeout)
        state.stream = 0

    @staticmethod
    def _linger(state: socket_state.SocketState) -> None:
        """Waits after the close, for SO_LINGER's time at most, until the peer has acknowledged all bytes.

        Not if another process, or a duplicate, keeps the stream open.
        """
        value = state.options.get(LINGER, 0)
        if not isinstance(value, int) or value <= 1 or state.peer is None:
            return
        end, pause_s = time.monotonic() + value - 1, 0.001
        with contextlib.suppress(OSError):  # the NIC has ended, or has forgotten the stream
            while True:
                info = client(state.path).call(control.QueryStream(state.stream))
                left_s = end - time.monotonic()
                if not info.closed or info.state not in _UNACKNOWLEDGED or left_s <= 0:
                    return
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, 0.05)

    def _status(self) -> StreamInfo:
        """Returns the stream's state and clears its pending error."""
        state = self._opened()
        try:
            info = client(state.path).call(control.QueryStream(state.stream, clear=True))
        except OSError as error:
            if error.errno == errno.EBADF:
                raise ConnectionResetError(errno.ECONNRESET, f"the NIC at {state.path} no longer knows it") from None
            raise
        assert isinstance(info, StreamInfo)
        return info

    def _settle(self) -> None:
        """Completes a connect. Raises its error, or ENOTCONN if there was none."""
        with self._opened().lock:
            if self._opened().peer is None:  # else another thread has
                self._settle_now()

    def _settle_now(self) -> None:
        state = self._opened()
        if state.target is None:
            raise OSError(errno.ENOTCONN, "the socket is not connected")
        try:
            info = self._status()
            if info.error:
                raise OSError(info.error, info.error_message)
        except OSError:
            state.target = None
            raise
        if info.state not in ("SYN-SENT", "SYN-RECEIVED"):
            state.peer, state.target = state.target, None
            size = state.send_buffer or control.STREAM_BUFFER
            super().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def _raise_if_failed(self) -> None:
        """Raises the NIC's error, if the stream has ended and an error ended it. For transfers that moved no bytes."""
        state = self._opened()
        if not state.ended:
            waiting = poll()
            waiting.register(self.fileno(), POLLIN)
            try:
                if not waiting.poll(0) or super().recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return
            except BlockingIOError:
                return
            except ConnectionError:  # the NIC was closing the pair: its end was seen first, its reset now
                pass
            self._check_end()

    def _check_end(self) -> None:
        """Raises the error that ended the stream; remembers the end if there was none."""
        info = self._status()
        if info.error and info.error != errno.EPIPE:  # EPIPE concerns writers
            raise OSError(info.error, info.error_message)
        self._opened().ended = True

    def _nic_error(self, error: ConnectionError) -> OSError:
        """Returns the NIC's error for one that the file descriptor reported."""
        info = self._status()
        return OSError(info.error, info.error_message) if info.error else error

    def _pop_error(self) -> int:
        """Returns and clears the pending error (SO_ERROR)."""
        super().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # clears the pair's own ECONNRESET
        try:
            if self._opened().target is not None:
                self._settle()
                return 0
            return self._status().error if self._opened().stream else 0
        except OSError as error:
            return error.errno or errno.EIO
