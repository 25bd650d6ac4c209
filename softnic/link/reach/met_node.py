"""The addresses by which a node may be reached, and which of them is tried or kept before another."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from softnic import underlay
from softnic.link.reach.candidates import Candidate
from softnic.link.reach.card import CardAddress, Kind, RelayPort
from softnic.underlay import IPV6, Address

LOCAL, OVER_IPV6, CONFIGURED, SEEN, BY_NODE, RELAYED = 400, 300, 250, 200, 120, 100
"""Preferences, the higher the better: an address of the same network, a global one of IPv6, one that the node was
configured with, one that a server saw, and a port of a relay: of a node of the job rather than of a server, which may
serve many."""


@dataclass(frozen=True, slots=True)
class MetNode:
    """What is known of another node of the job."""

    number: int | None
    """Its overlay number; None until all nodes of the job are known."""
    key: bytes
    """Its public key."""
    candidates: tuple[Candidate, ...]
    """The best one first; no address twice."""
    seen: tuple[Address, ...]
    """Where servers see it."""


def is_global_ipv6(host: str) -> bool:
    """Return whether an IP address is one of IPv6 that other networks reach."""
    return underlay.family(host) == IPV6 and ipaddress.ip_address(host.partition("%")[0]).is_global


def card_addresses(own: Iterable[tuple[Kind, Address]]) -> tuple[CardAddress, ...]:
    """Return a node's own addresses as its card has them: without those that only its host reaches if there are
    others, and without those that stand for all."""
    plain = [(kind, underlay.numeric(host), port) for kind, (host, port) in own]
    made = [CardAddress(*each) for each in plain if each[1] not in (underlay.ANY, underlay.ANY_IPV4)]
    reached = [each for each in made if not underlay.is_local(each.host)]
    return tuple(dict.fromkeys(reached or made))


def candidates(
    addresses: Iterable[CardAddress], seen: Iterable[Address], relays: Iterable[tuple[RelayPort, Address]]
) -> tuple[Candidate, ...]:
    """Return the candidates of a node, the best one first."""
    found: dict[Address, Candidate] = {}
    for each in addresses:
        direct = OVER_IPV6 if is_global_ipv6(each.host) else LOCAL if each.kind == "local" else CONFIGURED
        _add(found, Candidate(each.address, direct))
    for address in seen:
        _add(found, Candidate(address, OVER_IPV6 if is_global_ipv6(address[0]) else SEEN))
    for port, address in relays:
        _add(found, Candidate(address, RELAYED if isinstance(port.server, int) else BY_NODE, relayed=True))
    return tuple(sorted(found.values(), key=lambda each: -each.preference))


def _add(found: dict[Address, Candidate], candidate: Candidate) -> None:
    if candidate.address not in found or found[candidate.address].preference < candidate.preference:
        found[candidate.address] = candidate
