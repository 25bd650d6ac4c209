"""Address arguments: (host, port) of bind and connect, and the host names of create_connection."""

from __future__ import annotations

import operator
import socket
from typing import Any

from softnic.ipc.client import Client

ANY = "0.0.0.0"
LOOPBACK = "127.0.0.1"


def local_of(peer: str, listening: str, nic: Client) -> str:
    """Returns the local address of a connection that was accepted at the address `listening`."""
    if peer.startswith("127."):
        return listening if listening.startswith("127.") else LOOPBACK
    return listening if listening != ANY else nic.info().ip


def resolve(address: Any) -> tuple[str, int]:
    """Checks an address of bind or connect and resolves its host; an empty host is `ANY`.

    Raises
    ------
    TypeError
        It is not a tuple of a host name (str or bytes) and an integer.
    OverflowError
        The port is not in 0..65535.
    OSError
        The name has no IPv4 address (socket.gaierror).
    """
    if not isinstance(address, tuple) or len(address) != 2:
        raise TypeError(f"an address is a tuple (host, port), not {address!r}")
    host, port = address
    try:
        number = operator.index(port)
    except TypeError:
        raise TypeError(f"an address is a host name and a port number, not {address!r}") from None
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii")
    if not isinstance(host, str):
        raise TypeError(f"an address is a host name and a port number, not {address!r}")
    if not 0 <= number <= 0xFFFF:
        raise OverflowError("port must be 0-65535.")
    return (socket.gethostbyname(host) if host else ANY), number


def candidates(host: Any, port: Any) -> list[tuple[str, int]]:
    """Returns the addresses that create_connection tries, in order. The host None is the node itself (`ANY`).

    The port is a number or the name of a service. Raises socket.gaierror.
    """
    number = operator.index(port) if hasattr(port, "__index__") else port
    family, kind = socket.AF_INET, socket.SOCK_STREAM
    flags = socket.AI_PASSIVE if host is None else 0
    found: list[tuple[str, int]] = []
    for *_, address in socket.getaddrinfo(host, number, family, kind, socket.IPPROTO_TCP, flags):
        found.append((str(address[0]), int(address[1])))
    return found
