"""The public network of a lab: a router that all sites and servers have a link to, and whose routes are the addresses.

It routes each public address to the site that has it, and returns to a site what the site sends to its own address.
What has no route, and what goes to private addresses, is dropped without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softnic.cluster.nat_lab.rules import CoreRules
from softnic.cluster.netns_lab.host import HostError, NetnsHost

SITE_ADDRESSES, SITE_PREFIXES = 254, 0xFFFF
"""Public addresses of sites that a lab can give, IPv4 and IPv6, including those after a move."""
LINK_LOCAL_CORE, LINK_LOCAL_SITE = "fe80::1", "fe80::2"
"""Addresses of both ends of each site's link."""


class LabHost(NetnsHost):
    """A host of a lab, with `address` and, where it has IPv6, `address6`; each may be empty."""

    def __init__(self) -> None:
        super().__init__()
        self.address6 = ""


class PublicNetwork:
    """The router in the middle. Its interfaces are `server0`, ... and `site0`, ..."""

    def __init__(self, *, ipv6: bool) -> None:
        self.router = NetnsHost()
        self.ipv6 = ipv6
        self._rules = CoreRules()
        self._ipv4 = (f"198.51.100.{number}" for number in range(1, 1 + SITE_ADDRESSES))
        self._ipv6 = (f"2001:db8:1:{number:x}" for number in range(1, 1 + SITE_PREFIXES))
        forward(self.router, ipv6=ipv6)
        families = ("-4", "-6") if ipv6 else ("-4",)
        for family in families:
            self.router.run("ip", family, "route", "add", "blackhole", "default")
        self._apply()

    def add_server(self, number: int) -> LabHost:
        """Return a new server at 203.0.113.(2 + 4 number), and 2001:db8:0:(number)::2."""
        server, device, net = LabHost(), f"server{number}", 4 * number
        server.address, server.peer = f"203.0.113.{net + 2}", f"203.0.113.{net + 1}"
        pair = ("type", "veth", "peer", "name", "eth0", "netns", server.path)
        self.router.run("ip", "link", "add", device, *pair)
        here, there = [f"addr add {server.peer}/30 dev {device}"], [f"addr add {server.address}/30 dev eth0"]
        there += ["link set eth0 up", f"route add default via {server.peer}"]
        if self.ipv6:
            prefix = f"2001:db8:0:{number}::"
            server.address6 = f"{prefix}2"
            here.append(f"addr add {prefix}1/64 dev {device} nodad")
            there += [f"addr add {prefix}2/64 dev eth0 nodad", f"route add default via {prefix}1"]
        batch(self.router, *here, f"link set {device} up")
        batch(server, *there)
        return server

    def new_address(self) -> str:
        """Return an IPv4 address that no site has had."""
        return _next(self._ipv4)

    def new_prefix(self) -> str:
        """Return the first 64 bits of IPv6 addresses that no site has had, such as 2001:db8:1:1."""
        return _next(self._ipv6)

    def route(self, number: int, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> None:
        """Route addresses or prefixes to site `number`, and no longer others."""
        commands = [f"route add {each} {self._via(number, each)}" for each in add]
        batch(self.router, *commands, *(f"route del {each} {self._via(number, each)}" for each in remove))

    def _via(self, number: int, address: str) -> str:
        return f"via {LINK_LOCAL_SITE if ':' in address else site_end(number)} dev site{number}"

    def cut(self, number: int, is_cut: bool) -> None:
        """Cut the link of a site, which then carries nothing, or join it again."""
        device = frozenset({f"site{number}"})
        cut = self._rules.cut | device if is_cut else self._rules.cut - device
        self._rules = replace(self._rules, cut=cut)
        self._apply()

    def blackhole(self, address: str) -> None:
        """Send no ICMP messages about packets to this IPv4 address that are longer than the MTU of the site's link."""
        self._rules = replace(self._rules, blackholes=self._rules.blackholes | {address})
        self._apply()

    def _apply(self) -> None:
        self.router.run("nft", "-f", "-", given=self._rules.text())

    def close(self) -> None:
        self.router.close()


def site_end(number: int) -> str:
    """Return the router's IPv4 address on the link of site `number`; the public network's is the one before."""
    return f"10.255.{number}.2"


def core_end(number: int) -> str:
    """Return the public network's IPv4 address on the link of site `number`."""
    return f"10.255.{number}.1"


def batch(host: NetnsHost, *commands: str) -> None:
    """Run commands of ip(8) on a host, in one process."""
    host.run("ip", "-batch", "-", given="".join(f"{command}\n" for command in commands))


def forward(host: NetnsHost, *, ipv6: bool) -> None:
    """Make a host a router."""
    host.set(ip_forward=1)
    for folder in ("ipv4/conf/all", "ipv4/conf/default"):
        host.set(folder, send_redirects=0)
    if ipv6:
        host.set("ipv6/conf/all", forwarding=1)


def _next(addresses: Iterator[str]) -> str:
    address = next(addresses, "")
    if not address:
        raise HostError("the lab has no public address left")
    return address
