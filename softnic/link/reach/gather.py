"""The addresses of this host that other hosts may reach, and those of a token's servers."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Collection
from pathlib import Path

from softnic import underlay
from softnic.link.reach.token import Token, TokenError
from softnic.underlay import BOTH, IPV4, IPV6, Address

_SIOCGIFADDR = 0x8915
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_GLOBAL = 0
_NOT_USED = 0x20 | 0x40 | 0x08
"""Flags of IPv6 addresses that are deprecated, tentative, or duplicates (linux/if_addr.h)."""


def local_addresses(port: int, families: Collection[int] = BOTH) -> list[Address]:
    """Return this host's addresses with a port, those on default routes first; loopback's only if there is no other.

    Parameters
    ----------
    port : int
        Port of the socket that is to be reached.
    families : collection of int
        Those of the socket.
    """
    hosts: list[str] = []
    for family in BOTH:
        if family in families:
            first = underlay.source(underlay.UNUSED[family])
            hosts += [*([first] if first is not None else []), *(_ipv4() if family == IPV4 else _ipv6())]
    usable = [each for each in dict.fromkeys(hosts) if not underlay.is_link_local(each)]
    found = [each for each in usable if not underlay.is_local(each)]
    own = ["127.0.0.1"] if IPV4 in families else ["::1"]
    return [(host, port) for host in found or own]


def _ipv4() -> list[str]:
    """Return the first IPv4 address of each interface (netdevice(7))."""
    found = []
    with socket.socket(IPV4, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6() -> list[str]:
    """Return the global IPv6 addresses in use."""
    found = []
    with contextlib.suppress(OSError):
        for line in _IPV6_ADDRESSES.read_text().splitlines():
            address, _, _, scope, flags, _ = line.split()
            if int(scope, 16) == _GLOBAL and not int(flags, 16) & _NOT_USED:
                found.append(underlay.numeric(socket.inet_ntop(IPV6, bytes.fromhex(address))))
    return found


def resolved(token: Token, families: Collection[int] = BOTH) -> list[list[Address]]:
    """Return the IP addresses of each of a token's servers, at most two for each.

    Raises
    ------
    TokenError
        If none has any; the text names them.
    """
    found: list[list[Address]] = []
    for server in token.servers:
        try:
            addresses = underlay.addresses(server, families)
        except OSError:
            addresses = []
        first = {underlay.family(each[0]): each for each in reversed(addresses)}
        found.append(list(first.values()))
    if not any(found):
        names = ", ".join(map(underlay.text, token.servers))
        raise TokenError(f"no meeting server of the token has an address that this host can use: {names}")
    return found
