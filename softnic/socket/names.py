"""Name resolution of programs whose sockets are a NIC's: names of nodes, this machine's name, and localhost.

Each function has the name and the arguments of the standard module's. Nodes' names come from the NIC; every other name
goes to the system. Of names that mean this node (localhost, the machine's own name, no name) only IPv4 addresses are
returned unless IPv6 is asked for, because a server of a node that listened at ::1 would listen outside it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

from softnic.ipc import control
from softnic.ipc.socket_state import client

_OWN = ("", "localhost", "localhost.localdomain")
_getaddrinfo = socket.getaddrinfo
_gethostbyaddr = socket.gethostbyaddr
_gethostbyname = socket.gethostbyname
_gethostbyname_ex = socket.gethostbyname_ex
_gethostname = socket.gethostname
_getnameinfo = socket.getnameinfo
_Host = tuple[str, list[str], list[str]]


def _node(host: object) -> control.Resolved | None:
    """The node with a name or an address; None if there is none, or no NIC answers."""
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else host
    path = os.environ.get("SOFTNIC_NIC", "")
    if not isinstance(text, str) or not text or not path or text in _OWN or ":" in text:
        return None
    try:
        if text == _gethostname():
            text = client(path).info().ip
        found = client(path).call(control.Resolve(text))
    except OSError:
        return None
    assert isinstance(found, control.Resolved)
    return found


def _is_address(host: object) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _full(node: control.Resolved) -> str:
    return node.name if "." in node.name else f"{node.name}.softnic"


def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
    """Resolves as the standard function does, and knows the names of nodes."""
    node = None if host is None or _is_address(host) else _node(host)
    if node is not None and family in (0, socket.AF_INET):
        return _getaddrinfo(node.address, port, socket.AF_INET, type, proto, flags)
    found = _getaddrinfo(host, port, family, type, proto, flags)
    if family == 0 and (host is None or host in _OWN or host in (b"", b"localhost")):
        found = [each for each in found if each[0] == socket.AF_INET] or found
    return found


def gethostbyname(hostname: str) -> str:
    """Returns the IPv4 address of a name."""
    node = None if _is_address(hostname) else _node(hostname)
    return _gethostbyname(hostname) if node is None else node.address


def gethostbyname_ex(hostname: str) -> _Host:
    """Returns the name, its aliases and its IPv4 addresses."""
    node = None if _is_address(hostname) else _node(hostname)
    return _gethostbyname_ex(hostname) if node is None else (node.name, [_full(node)], [node.address])


def gethostbyaddr(ip_address: str) -> _Host:
    """Returns the name of an address, its aliases, and the address."""
    node = _node(ip_address)
    return _gethostbyaddr(ip_address) if node is None else (node.name, [_full(node)], [node.address])


def getnameinfo(sockaddr: Any, flags: int) -> tuple[str, str]:
    """Returns the host and the service of an address."""
    if not isinstance(sockaddr, tuple):
        del sockaddr  # which the error's traceback would keep
        raise TypeError("getnameinfo() argument 1 must be a tuple")
    node = None if flags & socket.NI_NUMERICHOST or not sockaddr else _node(sockaddr[0])
    host, service = _getnameinfo(sockaddr, flags | (socket.NI_NUMERICHOST if node is not None else 0))
    return (host if node is None else _full(node)), service


def gethostname() -> str:
    """Returns the name of the node."""
    try:
        name = client(os.environ.get("SOFTNIC_NIC", "")).info().name
    except OSError:
        return _gethostname()
    return _gethostname() if _is_address(name) else name


FUNCTIONS = (getaddrinfo, gethostbyaddr, gethostbyname, gethostbyname_ex, gethostname, getnameinfo)
"""What replaces the functions of these names in the standard module."""
