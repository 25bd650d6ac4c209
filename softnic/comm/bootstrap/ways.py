"""Chooses by which addresses the NICs of a job's hosts reach each other. All hosts compute it from the same addresses.

All NICs use one family: the one that all hosts have; of two, the one that comes first on more hosts, else IPv4. Where
no family is on all hosts, one has IPv4 alone and another one IPv6 alone, which cannot reach each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softnic.comm.bootstrap.host_address import Wire, nic_mtu
from softnic.underlay import BOTH, IPV4, IPV6, Address

Hosts = Sequence[Sequence[Wire]]
"""The addresses of each host, one of a family at most, the preferred one first."""


class Ways(NamedTuple):
    """What the NIC of one host is started with."""

    bind: Address
    """Of its UDP socket; port 0: the system chooses."""
    peers: list[str]
    """Addresses of all hosts."""
    mtu: int


def choose(own: int, hosts: Hosts, encrypted: bool) -> Ways:
    """Return the ways of host `own` to all hosts.

    Raises
    ------
    ValueError
        If no family is on all hosts; the text names an address of each.
    """
    common = [family for family in BOTH if all(any(wire.family == family for wire in wires) for wires in hosts)]
    if not common:
        four, six = (next(wires[0].host for wires in hosts if _has_only(wires, each)) for each in (IPV4, IPV6))
        text = f"the host at {four} has IPv4 alone and the one at {six} IPv6 alone, so they cannot reach each other: "
        raise ValueError(f"{text}give one of them an address of the other's family")
    family = max(common, key=lambda each: sum(wires[0].family == each for wires in hosts))
    chosen = [next(wire for wire in wires if wire.family == family) for wires in hosts]
    mtu = nic_mtu([wire.mtu for wire in chosen], family, encrypted)
    return Ways((chosen[own].host, chosen[own].port), [wire.host for wire in chosen], mtu)


def _has_only(wires: Sequence[Wire], family: int) -> bool:
    return all(wire.family == family for wire in wires)
