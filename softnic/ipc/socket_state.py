"""State of a process's NIC sockets: a control connection to each NIC, and the streams behind file descriptors.

A stream is found by the inode of its file descriptor, which survives dup, fork and the move of a file descriptor from
one socket object to another (as by ssl).
"""

from __future__ import annotations

import _socket
import atexit
import contextlib
import errno
import itertools
import os
import socket
import weakref
from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from softnic.ipc import control
from softnic.ipc.client import Client


@dataclass(slots=True, weakref_slot=True, eq=False)
class SocketState:
    """State shared by all file descriptors of one stream: duplicates and those that a fork inherits.

    A process that gets a file descriptor in another way asks the NIC for its state (`adopt`).
    """

    path: str
    """Path of the NIC's control socket."""
    stream: int = 0
    """The NIC's number of the stream; 0 until the NIC has it."""
    nic_end: int = -1
    """The NIC's end of the pair, until it is passed to the NIC."""
    objects: int = 0
    """Socket objects that have a file descriptor of the stream."""
    inode: int = 0
    """Inode of the application's end of the pair."""
    local: tuple[str, int] = ("0.0.0.0", 0)
    target: tuple[str, int] | None = None
    """Address of a connect in progress."""
    peer: tuple[str, int] | None = None
    bound: bool = False
    listening: bool = False
    send_buffer: int = 0
    """SO_SNDBUF as set by the application; 0: the control protocol's default."""
    adopted: bool = False
    """Another process opened it, and may have set options."""
    ended: bool = False
    """The end of the peer's stream was read, and it was no error."""
    lock: AbstractContextManager[Any] = field(default_factory=RLock)
    """Held by a thread that starts a connection or reads its outcome."""
    options: dict[tuple[int, int], int | str] = field(default_factory=dict)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.nic_end >= 0:  # `close` is an argument, since `os` may be gone at the interpreter's exit
            close(self.nic_end)

    def close_nic_end(self) -> None:
        if self.nic_end >= 0:
            os.close(self.nic_end)
            self.nic_end = -1


NAME_PREFIX = b"\0softnic/"
"""Of the names of streams' ends; the number of the stream follows."""


def _find_ignore() -> Callable[[int], object] | None:
    """The function of the preloaded library that has it leave a file descriptor alone (native/preload), if loaded."""
    if "softnic" in os.environ.get("LD_PRELOAD", ""):
        import ctypes  # its import takes longer than this module's

        with contextlib.suppress(AttributeError):
            found: Callable[[int], object] = ctypes.CDLL(None).softnic_preload_ignore
            return found
    return None


_ignore = _find_ignore()


def is_preloaded() -> bool:
    """Whether this process has the preloaded library, with which all its sockets are a NIC's."""
    return _ignore is not None


def _own(fd: int) -> None:
    """Has the preloaded library leave a file descriptor alone, for which this module answers."""
    if _ignore is not None:
        _ignore(fd)


_clients: dict[str, Client] = {}
_clients_lock = RLock()
"""Garbage collection may need a client, which it asks for in any code, the code under this lock included."""
_by_inode: weakref.WeakValueDictionary[int, SocketState] = weakref.WeakValueDictionary()
_detached: dict[int, SocketState] = {}
"""State by file descriptor, for those detached from their socket object: kept until the file descriptor is closed."""
_detached_lock = RLock()
_CHECKED_PER_DETACH = 2
"""Detached file descriptors checked when another is added: more than one, so that closed ones do not accumulate, and a
constant, so that the cost does not grow with their number."""


@atexit.register
def _abandon_clients() -> None:
    while _clients:
        _clients.popitem()[1].abandon()


def _after_fork() -> None:
    global _clients_lock, _detached_lock
    _clients_lock, _detached_lock = RLock(), RLock()
    _abandon_clients()
    for state in list(_by_inode.values()):
        state.lock = RLock()


os.register_at_fork(after_in_child=_after_fork)


def client(path: str) -> Client:
    """Returns this process's control connection to the NIC at `path`. Raises OSError as Client."""
    with _clients_lock:
        known = _clients.get(path)
        if known is None:
            for other in [other for other, client in list(_clients.items()) if client.is_closed()]:
                _clients.pop(other, None)  # of NICs that have ended, so that their number stays bounded
            created = Client(path)
            known = _clients.setdefault(path, created)
            if known is not created:  # made by what has interrupted this
                created.close()
        return known


def _inode(fd: int) -> int:
    """The inode of a file descriptor; 0 if it is not open."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return 0


def stream_of(fd: int) -> SocketState:
    """Returns the state of a stream's file descriptor. Raises OSError (ENOTSOCK) if it is not one of a NIC's stream."""
    state = _by_inode.get(_inode(fd))
    if state is None:
        raise OSError(errno.ENOTSOCK, f"file descriptor {fd} is not a NIC's stream in this process")
    return state


@contextlib.contextmanager
def unix_view(fd: int) -> Iterator[_socket.socket]:
    """A Unix socket object for a file descriptor, which it does not close.

    With a default timeout, a new object makes its file descriptor non-blocking, and with it every duplicate: undone.
    """
    blocking = os.get_blocking(fd)
    view = _socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    if blocking:
        view.setblocking(True)
    try:
        yield view
    finally:
        view.detach()


def name_end(fd: int, stream: int) -> None:
    """Binds the application's end of a stream to an abstract Unix name, by which other processes find the stream."""
    with contextlib.suppress(OSError), unix_view(fd) as end:  # it has the name already
        end.bind(b"%s%d" % (NAME_PREFIX, stream))


def adopt(fd: int, path: str) -> SocketState:
    """Returns the state of a file descriptor that another process opened: by its name, from the NIC at `path`.

    Raises OSError: ENOTSOCK if it is not one of that NIC's streams.
    """
    number = _stream_number(fd)
    try:
        info: control.StreamInfo | None = client(path).call(control.QueryStream(number)) if number else None
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        info = None
    if info is None:
        raise OSError(errno.ENOTSOCK, f"file descriptor {fd} is not a NIC's stream")
    state = SocketState(path, info.stream, local=info.local, adopted=True, listening=info.state == "LISTEN")
    state.bound = bool(info.local[1])
    if info.state in ("SYN-SENT", "SYN-RECEIVED"):
        state.target = info.peer
    else:
        state.peer = info.peer
    register(fd, state)
    return state


def _stream_number(fd: int) -> int:
    """The stream that a file descriptor's name says; 0 if it has none."""
    _own(fd)
    try:
        with unix_view(fd) as end:
            name = end.getsockname()
    except OSError:
        return 0
    if not isinstance(name, bytes) or not name.startswith(NAME_PREFIX):
        return 0
    digits = name.removeprefix(NAME_PREFIX).partition(b"/")[0]
    return int(digits) if digits.isdigit() else 0


def register(fd: int, state: SocketState) -> None:
    """Records that a file descriptor is the application's end of a stream."""
    _own(fd)
    state.inode = _inode(fd)
    _by_inode[state.inode] = state


def on_attach(fd: int, state: SocketState) -> None:
    """To be called when a socket object takes a file descriptor."""
    _own(fd)
    with _detached_lock:
        _detached.pop(fd, None)
        state.objects += 1


def on_accept(fd: int, state: SocketState) -> None:
    """To be called when a stream's file descriptor was received. Other processes can look up its stream then."""
    register(fd, state)
    name_end(fd, state.stream)
    with _detached_lock:
        _detached[fd] = state


def on_close(fd: int, state: SocketState) -> None:
    """To be called before a socket object closes its file descriptor."""
    with _detached_lock:
        _detached.pop(fd, None)
        state.objects -= 1


def on_detach(fd: int, state: SocketState) -> None:
    """To be called when a file descriptor leaves its socket object. Keeps its state while it is open.

    A stream that is not open yet cannot be opened without an object. Its NIC end is closed, so that a reader of the
    file descriptor (an application's class derived from ssl.SSLSocket) does not wait for ever.
    """
    with _detached_lock:
        for other_fd in list(itertools.islice(_detached, _CHECKED_PER_DETACH)):
            other = _detached.pop(other_fd)
            if _inode(other_fd) == other.inode:
                _detached[other_fd] = other
        _detached[fd] = state
        state.objects -= 1
        if not state.objects:
            state.close_nic_end()


def new_pair(state: SocketState) -> int:
    """Creates the socket pair of a stream. Returns the application's end, and keeps the NIC's in `state`."""
    application_end, nic_end = _socket.socketpair()
    state.nic_end = nic_end.detach()
    fd = application_end.detach()
    register(fd, state)
    return fd
