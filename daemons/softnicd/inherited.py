"""Rights of processes that use a control connection which they inherited (control.Inherit).

Such a process may be of any user. What it inherited it may use by the file descriptors that it has: a request about a
stream carries one of that stream, which is compared with the one that the stream was opened with. It may open streams
of its own, as it may open sockets of a kernel. All else is the owner's: statistics, captures, peers, regions,
communicators.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable

from softnic.ipc import control

Identity = tuple[int, int]
"""Inode and cookie of a socket."""
_SO_COOKIE = 57
_COOKIE = struct.Struct("=Q")
_FOR_ALL = (control.QueryNic, control.Ping, control.Resolve, control.Open)
_OF_STREAM = (
    *(control.Bind, control.Listen, control.Connect),
    *(control.SetOption, control.QueryOption, control.QueryStream),
)
_PRIVILEGED_PORTS = range(1, 1024)
_SHARES_PORT = (socket.SOL_SOCKET, socket.SO_REUSEPORT)


def identity(fd: int) -> Identity:
    """What all file descriptors of a socket have in common, and no other socket's. Raises OSError (ENOTSOCK)."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    cookie = bytes(_COOKIE.size)
    try:
        with contextlib.suppress(OSError):  # a kernel without it
            cookie = end.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE.size)
    finally:
        end.detach()
    return os.fstat(fd).st_ino, _COOKIE.unpack(cookie)[0]


def proves(
    request: control.Request, fd: int | None, is_stranger: bool, identity_of: Callable[[int], Identity | None]
) -> bool:
    """Checks a request of such a process. Returns whether the file descriptor was proof, not meant for the handler.

    `is_stranger`: the process is neither the NIC's user's nor root's, and as on a kernel it may not bind ports below
    1024, nor share one. `identity_of` returns the identity of a stream by number, None for one that is not known.

    Raises OSError (EACCES, EBADF).
    """
    if isinstance(request, _FOR_ALL):
        return False
    if not isinstance(request, _OF_STREAM) or not request.stream:
        raise OSError(errno.EACCES, f"{type(request).__name__} is for the NIC's user and root")
    expected = identity_of(request.stream)
    if expected is None:
        raise OSError(errno.EBADF, f"the NIC has no stream {request.stream}")
    if fd is None or identity(fd) != expected:
        raise OSError(errno.EACCES, f"another user's process needs a file descriptor of stream {request.stream}")
    if is_stranger:
        _check_port(request)
    return True


def _check_port(request: control.Request) -> None:
    if isinstance(request, control.Bind) and request.port in _PRIVILEGED_PORTS:
        raise OSError(errno.EACCES, f"port {request.port} is for the NIC's user and root")
    shares = isinstance(request, control.Bind) and request.share
    if isinstance(request, control.SetOption) and (request.level, request.name) == _SHARES_PORT:
        shares = bool(request.value)
    if shares:
        raise OSError(errno.EACCES, "a port is shared (SO_REUSEPORT) by processes of the NIC's user and root only")
