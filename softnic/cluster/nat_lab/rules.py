"""The nftables rules of a site's router, which make its NAT.

Interfaces are `lan`, to the hosts, and `wan`, to the public network. The public address is not one of the router's own:
the public network routes it there. All rules of a router are replaced in one transaction, and their connection tracking
zone changes with `epoch`, so that a NAT forgets all flows at once.

Mapping. `snat` to a range of ports. The kernel gives an inside socket that has a mapping the same one for each further
destination (find_appropriate_src in nf_nat_core.c): endpoint-independent mapping, as long as any of the socket's flows
is remembered. The range excludes the usual ports of inside sockets, so that external ports differ from inside ones.
Symmetric: the flag `fully-random` turns this off, and each destination gets a random port. Two sockets of a host may
get the same external port if they have no destination in common; those that send to one server first do not.

Filtering. Connection tracking admits only replies: address and port-dependent filtering. For the others, a map records
the inside socket of each external port when a datagram leaves, and `dnat` by this map admits datagrams of anyone (full
cone), or of the addresses in a set, which each leaving datagram adds its destination to (address-restricted). Such a
flow begins outside, so the kernel does not count it for the socket's mapping: a second map, `outside`, keeps that. A
datagram that is not admitted is dropped without an answer and before a flow is made of it, so it cannot take the port
of a mapping.

Forgetting. Flows, maps and sets have the same timeout. A datagram in either direction restarts that of its flow, and
one that leaves restarts those of its mapping. A socket whose mapping is forgotten may get the same port again: the
kernel remembers ports until it removes the flow, which takes some time.

Hairpin. What a host sends to the public address leaves by `wan`, and the public network returns it, so it is translated
and filtered as datagrams of others are. Without hairpin it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from softnic.cluster.nat_lab.kinds import Dependence, NatKind

EPOCHS = 4
FIRST_PORT, EPOCH_PORTS = 20000, 10000
"""External ports of epoch 0 begin here; each epoch has as many, and EPOCHS epochs have different ones."""
ZONES = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class NatRules:
    """What the rules of one router depend on."""

    kind: NatKind
    public: str
    """The IPv4 address that the router translates to; empty: none."""
    inside: tuple[str, ...]
    """IPv4 addresses behind it, each of which gets its own part of the ports."""
    epoch: int = 0
    """Number of times that the NAT has forgotten its flows."""
    hairpin: bool = False
    timeout_s: int = 30
    blackhole: bool = False
    """Whether the router sends no ICMP message about IPv4 packets longer than the MTU."""
    tcp_ports: tuple[int, ...] = ()
    """Destination ports of TCP that pass if UDP does not."""

    def text(self) -> str:
        """Return the rules as input of `nft -f -`, which replaces all that the router has."""
        return "\n".join(["flush ruleset", "table inet nat {", *self._sets(), *self._chains(), "}", ""])

    @property
    def _learns(self) -> bool:
        return self.kind.translates and self.kind.filtering is not Dependence.ADDRESS_AND_PORT

    def _sets(self) -> Iterator[str]:
        if self._learns:
            life = f"flags dynamic,timeout; timeout {self.timeout_s}s"
            yield f"map inside {{ type inet_service : ipv4_addr . inet_service; {life}; }}"
            yield f"map outside {{ type ipv4_addr . inet_service : ipv4_addr . inet_service; {life}; }}"
            yield f"set sent_to {{ type inet_service . ipv4_addr; {life}; }}"

    def _chains(self) -> Iterator[str]:
        yield from _chain("zone", "filter hook prerouting priority raw", f"ct zone set {self.epoch % ZONES + 1}")
        yield from _chain("forward", "filter hook forward priority filter; policy drop", *self._forward())
        if self.blackhole:
            drop = "icmp type destination-unreachable icmp code frag-needed drop"
            yield from _chain("output", "filter hook output priority filter", drop)
        if self.kind.translates:
            yield from _chain("source", "nat hook postrouting priority srcnat", *self._source())
        if self._learns:
            yield from _chain("learn", "filter hook postrouting priority srcnat + 10", *self._learn())
            yield from _chain("destination", "nat hook prerouting priority dstnat", *self._destination())

    def _forward(self) -> Iterator[str]:
        if self.public and self.kind.translates and not self.hairpin:
            yield f'iifname "lan" ip daddr {self.public} drop'
        yield 'iifname "lan" oifname "lan" accept'  # frames of a bridge come here if the kernel has br_netfilter
        leaving = 'iifname "lan" oifname "wan"'
        if self.kind.udp:
            yield f"{leaving} accept"
        else:
            yield f"{leaving} tcp dport {{ {', '.join(map(str, self.tcp_ports))} }} accept"
            yield f"{leaving} ct state established,related accept"
        admitted = "ct state established,related"
        if not self.kind.translates and self.kind.filtering is Dependence.NONE:
            admitted = ""
        yield f'iifname "wan" oifname "lan" {admitted} accept'
        if self._learns:
            yield 'iifname "wan" oifname "lan" ct status dnat accept'

    def _source(self) -> Iterator[str]:
        each = EPOCH_PORTS // len(self.inside)
        if self._learns:
            yield 'oifname "wan" snat ip to ip saddr . udp sport map @outside'
        flag = "" if self.kind.mapping is Dependence.NONE else " fully-random"
        for number, address in enumerate(self.inside):
            first = FIRST_PORT + self.epoch % EPOCHS * EPOCH_PORTS + number * each
            ports = f"{self.public}:{first}-{first + each - 1}{flag}"
            yield f'oifname "wan" ip saddr {address} meta l4proto {{ tcp, udp }} snat ip to {ports}'
        yield f'oifname "wan" meta nfproto ipv4 snat ip to {self.public}'

    def _learn(self) -> Iterator[str]:
        for direction in ("original", "reply"):
            socket = f"ct {direction} ip saddr . ct {direction} proto-src"
            leaving = f'oifname "wan" ip version 4 meta l4proto udp ct direction {direction}'
            yield f"{leaving} update @inside {{ udp sport : {socket} }}"
            yield f"{leaving} update @outside {{ {socket} : ip saddr . udp sport }}"
        yield 'oifname "wan" ip version 4 meta l4proto udp update @sent_to { udp sport . ip daddr }'

    def _destination(self) -> Iterator[str]:
        arriving = f'iifname "wan" ip daddr {self.public}'
        if self.kind.filtering is Dependence.ADDRESS:
            arriving += " udp dport . ip saddr @sent_to"
        yield f"{arriving} dnat ip to udp dport map @inside"


def _chain(name: str, hook: str, *rules: str) -> list[str]:
    return [f"chain {name} {{", f"type {hook};", *rules, "}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRules:
    """What the rules of the public network depend on."""

    cut: frozenset[str] = frozenset()
    """Interfaces that carry nothing."""
    blackholes: frozenset[str] = frozenset()
    """Public IPv4 addresses: no sender gets an ICMP message about packets to them that are longer than the MTU."""

    def text(self) -> str:
        """Return the rules as input of `nft -f -`, which replaces all that the public network has."""
        private = "{ 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 }"
        forward = [f"ip daddr {private} drop"]
        if self.cut:
            names = ", ".join(f'"{name}"' for name in sorted(self.cut))
            forward += [f"iifname {{ {names} }} drop", f"oifname {{ {names} }} drop"]
        output = [
            f"icmp type destination-unreachable icmp code frag-needed @th,192,32 {_number(address):#x} drop"
            for address in sorted(self.blackholes)
        ]  # the destination in the header of the packet, which follows the 8 bytes of ICMP
        chains = [
            *_chain("forward", "filter hook forward priority filter", *forward),
            *_chain("output", "filter hook output priority filter", *output),
        ]
        return "\n".join(["flush ruleset", "table inet core {", *chains, "}", ""])


def _number(address: str) -> int:
    return int.from_bytes(map(int, address.split(".")))
