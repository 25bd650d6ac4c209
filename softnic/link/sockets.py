"""UDP sockets as a wire needs them: with tx_space for what a fast peer sends while nobody reads."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct

SOCKET_BUFFER_BYTES = 16 * 2**20
"""What a socket asks for; the system may grant less."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO = struct.Struct("9I")

_HINTS = {
    errno.EADDRNOTAVAIL: " (no interface of this machine has it)",
    errno.EADDRINUSE: " (another program, or NIC, has this port)",
}

Address = tuple[str, int]


def resolve(address: Address) -> tuple[int, int]:
    """IPv4 address in host order, and port. Raises OSError, with the name in its text."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise OSError(error.errno, f"no IPv4 address for {host!r}: {error.strerror}") from error
    return int.from_bytes(socket.inet_aton(str(found[0][4][0])), "big"), port


def open_socket(bind: Address) -> socket.socket:
    """Bound, and never waiting. Raises OSError."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        for plain, force in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
            opened.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
        opened.bind(bind)
    except OSError as error:
        opened.close()
        hint = _HINTS.get(error.errno or 0, "")
        raise OSError(error.errno, f"cannot bind {bind[0]}:{bind[1]}: {error.strerror}{hint}") from error
    return opened


def kernel_drops(wire: socket.socket) -> int:
    """Datagrams that came while the socket's receive buffer was full, and strangers' while they flood
    (softnic/link/unknown_sources.py); 0 where the system does not tell."""
    with contextlib.suppress(OSError, struct.error):
        drops: int = _MEMINFO.unpack(wire.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[8]
        return drops
    return 0
