"""UDP sockets with buffers large enough for bursts of fast peers.

One that is bound to an address of IPv4 or IPv6 has that family alone. One bound to [::] has both, and IPv4 alone where
the system has no IPv6.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Collection

from softnic import underlay
from softnic._native import lib
from softnic.underlay import ANY, ANY_IPV4, BOTH, IPV4, IPV6, Address

SOCKET_BUFFER_BYTES = 16 * 2**20
"""Buffer size to request; the system may grant less."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO = struct.Struct("9I")

_HINTS = {
    errno.EACCES: " (ports below 1024 need root or CAP_NET_BIND_SERVICE: take a higher port)",
    errno.EADDRNOTAVAIL: " (no interface of this host has it)",
    errno.EADDRINUSE: " (another process uses this port)",
}

_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


def resolve(address: Address, families: Collection[int] = BOTH) -> list[Address]:
    """Return the IP addresses of a peer that a socket for these families reaches, those with a route first.

    Raises OSError with the name in its text.
    """
    if underlay.is_address(address[0]) and underlay.family(address[0]) not in families:
        there, own = underlay.way(address), underlay.names(families)
        text = f'{there} cannot be reached from a socket of {own} alone: bind "[::]:PORT", which has both'
        raise OSError(errno.EAFNOSUPPORT, text)
    return underlay.addresses(address, families)


def open_socket(bind: Address, shared: bool = False) -> socket.socket:
    """Return a bound, non-blocking socket; `shared`: others of this user may have the same port. Raises OSError."""
    try:
        return _bound(bind, shared)
    except OSError as error:
        if bind[0] == ANY and error.errno in _NO_IPV6:
            return open_socket((ANY_IPV4, bind[1]), shared)
        raise OSError(error.errno, f"cannot bind {underlay.text(bind)}: {bind_reason(error)}") from error


def _bound(bind: Address, shared: bool) -> socket.socket:
    address = own_address(bind)
    family = underlay.family(address[0])
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        if family == IPV6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != ANY)
        if shared:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for plain, force in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
            opened.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
        opened.bind(underlay.socket_address(address))
    except OSError:
        opened.close()
        raise
    return opened


def own_address(bind: Address) -> Address:
    """Return the IP address of a name: that of IPv4 if it has one. Raises OSError."""
    found = underlay.addresses(bind)
    return next((each for each in found if underlay.family(each[0]) == IPV4), found[0])


def families_of(wire: socket.socket) -> tuple[int, ...]:
    """Return the families of the addresses that a socket reaches."""
    if wire.family == IPV4:
        return (IPV4,)
    return (IPV6,) if wire.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) else BOTH


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
