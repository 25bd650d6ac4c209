"""Addresses of the network below the NICs: hosts and ports of UDP, and of TCP, over IPv4 and IPv6.

Written HOST:PORT, where an IPv6 address stands in brackets: [2001:db8::1]:4789, and with the interface of a link-local
one, [fe80::1%eth0]:4789 (RFC 3986, section 3.2.2; RFC 4007, section 11). An IPv4-mapped address (::ffff:192.0.2.1;
RFC 4291, section 2.5.5.2) is the IPv4 address everywhere.

A name may have several addresses. The way to it is chosen by connecting: a socket of UDP that connects sends nothing,
and says whether there is a route, and which of this host's addresses is its source.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Collection, Sequence

Address = tuple[str, int]
"""A host, by name or address, and a port. An IPv6 address has no brackets here, and may end in %INTERFACE."""

FORM = "HOST:PORT"
IPV4, IPV6 = socket.AF_INET, socket.AF_INET6
BOTH = (IPV4, IPV6)
HEADERS = {IPV4: 28, IPV6: 48}
"""Bytes of IP and UDP, by family."""
_ETHERNET_BYTES, _VXLAN_BYTES, _ENCRYPTION_BYTES = 14, 8, 32
ANY = "::"
"""Every address of this host, of IPv6 and of IPv4."""
ANY_IPV4 = "0.0.0.0"
UNUSED = {IPV4: "192.0.2.1", IPV6: "2001:db8::1"}
"""Addresses without a host (RFC 5737, RFC 3849), to which the default routes lead. Nothing is sent to them."""
_PROBED_PORT = 9
"""Discard (RFC 863). Nothing is sent to it."""


def parse(written: str, default_port: int | None = None) -> Address:
    """Return a host and a port as they are written.

    Parameters
    ----------
    written : str
        HOST:PORT; with `default_port` also HOST, and an IPv6 address alone.
    default_port : int, optional
        The port of texts without one.

    Raises
    ------
    ValueError
        With one line that says how it is written.
    """
    form = FORM if default_port is None else f"HOST or {FORM}"
    if default_port is not None and _ip(written) is not None:
        return numeric(written), default_port
    host, colon, port = written.rpartition(":")
    if default_port is not None and (not colon or written.endswith("]")):
        host, port = written, str(default_port)
    if not port.isascii() or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{written!r} is not {form}")
    if host.startswith("[") and host.endswith("]"):
        inner = host[1:-1]
        if not isinstance(_ip(inner), ipaddress.IPv6Address):
            raise ValueError(f"{written!r} is not {form}: {inner!r} is not an IPv6 address")
        return numeric(inner), int(port)
    if ":" in host:
        raise ValueError(f"{written!r} is not {form}: an IPv6 address stands in brackets, [ADDRESS]:PORT")
    if not host or "[" in host or "]" in host:
        raise ValueError(f"{written!r} is not {form}")
    return host, int(port)


def text(address: Address) -> str:
    """Return an address as it is written: `parse` of it gives the address again."""
    return f"{bracketed(address[0])}:{address[1]}"


def bracketed(host: str) -> str:
    """Return a host as it is written before a colon."""
    host = numeric(host)
    return f"[{host}]" if ":" in host else host


def numeric(host: str) -> str:
    """Return the usual text of an IP address, as RFC 5952 has it; a name unchanged."""
    ip = _ip(host)
    if ip is None:
        return host
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)


def is_address(host: str) -> bool:
    """Return whether a host is given by an IP address; else by a name, which may have several."""
    return _ip(host) is not None


def is_link_local(host: str) -> bool:
    """Return whether an address is only valid together with an interface (RFC 4291, section 2.5.6)."""
    ip = _ip(host)
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_link_local


def is_local(host: str) -> bool:
    """Return whether only this host reaches an address: it is of loopback, or none."""
    ip = _ip(numeric(host))
    return ip is not None and (ip.is_loopback or ip.is_unspecified)


def family(host: str) -> socket.AddressFamily:
    """Return the family of an IP address."""
    return IPV6 if ":" in numeric(host) else IPV4


def family_name(host: str) -> str:
    """Return the name of an IP address's family, for people."""
    return names([family(host)])


def names(families: Collection[int]) -> str:
    """Return the names of families, for people."""
    return " or ".join(name for each, name in ((IPV4, "IPv4"), (IPV6, "IPv6")) if each in families)


def way(address: Address) -> str:
    """Return an IP address and port with its family, for people."""
    return f"{text(address)} ({family_name(address[0])})"


def overhead(family: int, encrypted: bool = False) -> int:
    """Return the bytes around a packet of a NIC: its Ethernet header, VXLAN or encryption in its place, UDP and IP."""
    own = _ENCRYPTION_BYTES if encrypted else _VXLAN_BYTES
    return _ETHERNET_BYTES + own + HEADERS[socket.AddressFamily(family)]


def addresses(address: Address, families: Collection[int] = BOTH) -> list[Address]:
    """Return the IP addresses of a host with its port, those with a route first, in the order of the resolver
    (RFC 6724).

    Raises
    ------
    OSError
        If there is none of these families; the text names the host.
    """
    host, port = address
    wanted = next(iter(families)) if len(families) == 1 else socket.AF_UNSPEC
    try:
        found = socket.getaddrinfo(numeric(host), port, wanted, socket.SOCK_DGRAM)
    except OSError as error:
        raise OSError(error.errno, f"no {names(families)} address for {host!r}: {error.strerror}") from error
    known = dict.fromkeys(of_socket(each[4]) for each in found if each[0] in families)
    if len(known) == 1:
        return list(known)
    return sorted(known, key=lambda each: source(each[0]) is None)


def source(host: str) -> str | None:
    """Return this host's address on the route to an IP address; None: there is no route."""
    with contextlib.suppress(OSError), socket.socket(family(host), socket.SOCK_DGRAM) as probe:
        probe.connect(socket_address((host, _PROBED_PORT)))
        return of_socket(probe.getsockname())[0]
    return None


def own_families() -> list[socket.AddressFamily]:
    """Return the families by which this host has a route to others."""
    return [each for each, unused in UNUSED.items() if (own := source(unused)) is not None and not is_local(own)]


def of_socket(name: Sequence[object]) -> Address:
    """Return an address as `getsockname`, `recvfrom` and `getaddrinfo` have it."""
    host, port = str(name[0]), int(str(name[1]))
    scope = int(str(name[3])) if len(name) == 4 else 0
    if scope and "%" not in host:
        try:
            host += f"%{socket.if_indextoname(scope)}"
        except OSError:  # the interface is gone
            host += f"%{scope}"
    return numeric(host), port


def socket_address(address: Address, of: int | None = None) -> tuple[str, int] | tuple[str, int, int, int]:
    """Return the name of an IP address and port for a socket of this family, or of its own one. Raises OSError."""
    host, port = address
    kind = family(host) if of is None else of
    if kind == IPV4:
        return host, port
    if family(host) == IPV4:
        return f"::ffff:{host}", port, 0, 0
    plain, _, interface = host.partition("%")
    if not interface:
        return plain, port, 0, 0
    return plain, port, 0, int(interface) if interface.isdecimal() else socket.if_nametoindex(interface)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
