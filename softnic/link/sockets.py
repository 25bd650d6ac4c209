"""UDP sockets with buffers large enough for bursts of fast peers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct

from softnic._native import lib

SOCKET_BUFFER_BYTES = 16 * 2**20
"""Buffer size to request; the system may grant less."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO = struct.Struct("9I")

_HINTS = {
    errno.EACCES: " (ports below 1024 need root or CAP_NET_BIND_SERVICE: take a higher port)",
    errno.EADDRNOTAVAIL: " (no interface of this host has it)",
    errno.EADDRINUSE: " (another process uses this port)",
}

Address = tuple[str, int]


def resolve(address: Address) -> tuple[int, int]:
    """Return IPv4 address (host order) and port. Raises OSError with the name in its text."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise OSError(error.errno, f"no IPv4 address for {host!r}: {error.strerror}") from error
    return int.from_bytes(socket.inet_aton(str(found[0][4][0])), "big"), port


def open_socket(bind: Address, shared: bool = False) -> socket.socket:
    """Return a bound, non-blocking socket; `shared`: others of this user may have the same port. Raises OSError."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        if shared:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for plain, force in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
            opened.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
        opened.bind(bind)
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"cannot bind {bind[0]}:{bind[1]}: {bind_reason(error)}") from error
    return opened


def steer(descriptor: int, queues: int, sealed: bool) -> None:
    """Have the kernel pass datagrams, sealed ones or VXLAN, to the sockets of queues that share a port
    (native/nic/steering.h).

    Raises OSError where the system does not.
    """
    error = -lib.sn_steer(descriptor, queues, sealed)
    if error:
        raise OSError(error, os.strerror(error))


def bind_reason(error: OSError) -> str:
    """Return why an address cannot be bound, and what to do."""
    reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
    return f"{reason}{_HINTS.get(error.errno or 0, '')}"


def kernel_drops(wire: socket.socket) -> int:
    """Return how many datagrams the kernel dropped at this socket: its buffer was full, or the filter of unknown
    sources (unknown_sources.py) rejected them. 0 if the system does not tell."""
    with contextlib.suppress(OSError, struct.error):
        drops: int = _MEMINFO.unpack(wire.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[8]
        return drops
    return 0
