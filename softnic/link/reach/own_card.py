"""What a node says of itself, and what may be set for it besides its token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from softnic import underlay
from softnic.link.reach.card import Kind, RelayPort
from softnic.underlay import Address


@dataclass(frozen=True, slots=True)
class MeetingOptions:
    """What may be set for a node besides its token."""

    configured: Sequence[Address] = ()
    """Further addresses of the node, as of a forwarded port."""
    servers: Sequence[Sequence[Address]] | None = None
    """The IP addresses of each of the token's servers (`gather.resolved`); None: those that the token itself has."""
    started: float | None = None
    """Unix time, seconds. A node that restarts with the same key has a later one. None: the first `now`."""
    relay: bool = True
    """Ask for ports of relays."""
    serves: Sequence[Address] = ()
    """Where this node is a meeting server of its job itself, with a relay."""


@dataclass(slots=True)
class OwnCard:
    """What this node says of itself."""

    addresses: list[tuple[Kind, Address]]
    number: int | None
    serves: list[tuple[Kind, Address]]
    relays: tuple[RelayPort, ...] = ()
    sealed: bytes = field(default=b"")
    """The card; empty: it is to be made anew."""


def own_addresses(local: Iterable[Address], configured: Iterable[Address]) -> list[tuple[Kind, Address]]:
    """Return a node's addresses as its card names them. Raises ValueError if one is none."""
    kinds: tuple[tuple[Kind, Iterable[Address]], ...] = (("local", local), ("configured", configured))
    found = [(kind, (underlay.numeric(host), port)) for kind, each in kinds for host, port in each]
    for _, (host, port) in found:
        if not underlay.is_address(host) or not 1 <= port <= 0xFFFF:
            raise ValueError(f"{host!r} and {port} are not an IP address and a port")
    return found
