"""The kinds of NAT in a lab, and which pairs of hosts behind them can connect directly.

A NAT is described by two properties (RFC 4787):

- mapping: whether the external address and port of an inside socket are the same for all destinations
  (endpoint-independent) or others for each destination (address and port-dependent);
- filtering: who may send to a mapping: anyone (endpoint-independent), addresses that the inside socket has sent to
  (address-dependent), or only the addresses and ports that it has sent to (address and port-dependent).

RFC 3489 has one name for each usual combination, which are those of this lab.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Dependence(Enum):
    """What of a destination a mapping or a filter depends on (RFC 4787, sections 4.1 and 5)."""

    NONE = "endpoint-independent"
    ADDRESS = "address-dependent"
    ADDRESS_AND_PORT = "address and port-dependent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NatKind:
    """How the routers of a site treat its hosts."""

    translates: bool = True
    """False: hosts have public addresses."""
    mapping: Dependence = Dependence.NONE
    filtering: Dependence = Dependence.ADDRESS_AND_PORT
    layers: int = 1
    """Routers that translate, one behind the other, all in this way."""
    udp: bool = True
    """False: only TCP to certain ports passes."""
    ipv4: bool = True
    """False: hosts have addresses of IPv6 only."""
    mtu: int = 1500
    """Bytes of a packet between the site and the public network."""


KINDS = {
    "open": NatKind(translates=False, filtering=Dependence.NONE),
    "full cone": NatKind(filtering=Dependence.NONE),
    "restricted": NatKind(filtering=Dependence.ADDRESS),
    "port-restricted": NatKind(),
    "symmetric": NatKind(mapping=Dependence.ADDRESS_AND_PORT),
    "double": NatKind(layers=2),
    "no udp": NatKind(udp=False),
    "ipv6 only": NatKind(translates=False, ipv4=False),
    "mtu 1280": NatKind(mtu=1280),
}
"""Each kind by its name."""

PAIRED = ("open", "full cone", "restricted", "port-restricted", "symmetric", "double", "no udp")
"""The kinds whose 49 pairs tests connect."""


def theory(a: str, b: str) -> bool:
    """Return whether hosts at two sites can connect directly over UDP by simple hole punching.

    Both know the address and port that a server has seen of the other one, both send there at the same time, and each
    answers the address and port that something came from. Neither predicts ports, nor forwards them by UPnP or PCP.

    Parameters
    ----------
    a, b : str
        Names in `KINDS`. The sites are two, each with routers of its own, also if the kinds are the same.

    Returns
    -------
    bool
        Whether they connect. The order of `a` and `b` does not matter.

    Raises
    ------
    KeyError
        If there is no such kind.

    Notes
    -----
    RFC 5128, sections 3.3 and 3.4; B. Ford, P. Srisuresh, D. Kegel, "Peer-to-Peer Communication Across Network Address
    Translators", USENIX 2005, section 3. A host with an endpoint-dependent mapping sends to its peer from a port that
    the server has not seen, so the peer's filter must not look at ports. Several layers of NAT are like one, as the two
    sites have none of them in common.
    """
    left, right = KINDS[a], KINDS[b]
    if not (left.udp and right.udp) or left.ipv4 != right.ipv4:
        return False
    return _admits(left, right) and _admits(right, left)


def _admits(here: NatKind, there: NatKind) -> bool:
    """Return whether the filter of one site admits the ports that the other one's mapping sends from."""
    return there.mapping is Dependence.NONE or here.filtering is not Dependence.ADDRESS_AND_PORT
