"""A site of a lab: hosts behind one router, or two, with a link to the public network.

    host ... host - lan [router] wan - (lan [outer router] wan) - public network

All sites have the same private addresses, as many real sites do: hosts are 192.168.1.10, .11, ... behind 192.168.1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from softnic.cluster.nat_lab import cable
from softnic.cluster.nat_lab.core import (
    LINK_LOCAL_CORE,
    LINK_LOCAL_SITE,
    LabHost,
    PublicNetwork,
    batch,
    core_end,
    forward,
    site_end,
)
from softnic.cluster.nat_lab.kinds import KINDS, NatKind
from softnic.cluster.nat_lab.rules import NatRules
from softnic.cluster.netns_lab.host import NetnsHost

GATEWAY = "192.168.1.1"
FIRST_HOST, MOST_HOSTS = 10, 100
SHARED_ADDRESS, SHARED_END, SHARED_GATEWAY = "100.64.1.1", "100.64.0.2", "100.64.0.1"
"""Of the inner one of two routers: what it translates to, its end of the link, and the outer router's (RFC 6598)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """What a site is to be.

    Raises
    ------
    ValueError
        For a plan that cannot be built, naming the reason.
    """

    kind: str
    """A name in `KINDS`."""
    hosts: int = 1
    """Hosts behind the same router."""
    hairpin: bool = False
    """Whether a host reaches another one of the site by the site's public address, at the outermost router."""
    timeout_s: int = 30
    """A NAT forgets a flow after this time without a datagram."""
    ipv6: bool = False
    """Whether hosts have IPv6 besides IPv4, behind a router that admits only replies (RFC 6092)."""
    blackhole: bool = False
    """Whether IPv4 packets longer than the MTU of the site's link vanish without an ICMP message."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Of the site's link, in each direction, as in EmulationSpec.parse: {"delay": "25ms", "loss": "1%"}."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no kind of NAT is named {self.kind!r}; there are: {', '.join(KINDS)}")
        most = MOST_HOSTS if self.nat.translates or not self.nat.ipv4 else 1
        if not 1 <= self.hosts <= most:
            raise ValueError(f"a site of kind {self.kind} has 1 to {most} hosts, not {self.hosts}")
        if self.timeout_s < 1:
            raise ValueError(f"timeout_s must be at least 1, not {self.timeout_s}")

    @property
    def nat(self) -> NatKind:
        return KINDS[self.kind]

    @property
    def has_ipv6(self) -> bool:
        return self.ipv6 or not self.nat.ipv4


@dataclass(slots=True)
class _Layer:
    """A router and its rules."""

    router: NetnsHost
    rules: NatRules

    def apply(self, rules: NatRules) -> None:
        self.router.run("nft", "-f", "-", given=rules.text())
        self.rules = rules


class NatSite:
    """A site that runs: number `number` of a public network. Made by NatLab."""

    def __init__(self, plan: SitePlan, number: int, core: PublicNetwork, tcp_ports: tuple[int, ...]) -> None:
        self.plan = plan
        self.address = core.new_address() if plan.nat.ipv4 else ""
        """The public IPv4 address; empty: none."""
        self.prefix = core.new_prefix() if plan.has_ipv6 else ""
        self.hosts: list[LabHost] = []
        self.cable: cable.EmulatedCable | None = None
        """The link to the public network, if it has faults."""
        self._number, self._core = number, core
        self._layers: list[_Layer] = []
        """From the outermost router to that of the hosts."""
        try:
            self._build(tcp_ports)
        except BaseException:
            self.close()
            raise

    def _build(self, tcp_ports: tuple[int, ...]) -> None:
        plan = self.plan
        for depth in range(plan.nat.layers):
            innermost, outermost = depth == plan.nat.layers - 1, depth == 0
            private = tuple(f"192.168.1.{FIRST_HOST + number}" for number in range(plan.hosts))
            rules = NatRules(
                kind=plan.nat,
                public=self.address if outermost else SHARED_ADDRESS,
                inside=private if innermost else (SHARED_ADDRESS,),
                hairpin=plan.hairpin and outermost,
                timeout_s=plan.timeout_s,
                blackhole=plan.blackhole,
                tcp_ports=tcp_ports,
            )
            layer = _Layer(NetnsHost(), rules)
            self._layers.append(layer)
            forward(layer.router, ipv6=plan.has_ipv6)
            if outermost:
                self._join_core(layer.router)
            else:
                self._join_layers(self._layers[-2].router, layer.router)
            layer.apply(rules)
            timeouts = dict.fromkeys(("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"), plan.timeout_s)
            layer.router.set("netfilter", **timeouts)
        self._add_hosts()
        self._take_addresses()

    def _join_core(self, router: NetnsHost) -> None:
        number, mtu = self._number, self.plan.nat.mtu
        far = f"site{number}"
        self.cable = cable.connect(router, self._core.router, ("wan", far), self.plan.faults)
        here, there = [f"link set wan mtu {mtu} up"], [f"link set {far} mtu {mtu} up"]
        here += [f"addr add {site_end(number)}/30 dev wan", f"route add default via {core_end(number)}"]
        there.append(f"addr add {core_end(number)}/30 dev {far}")
        if self.prefix:
            here += _ipv6_up("wan")
            there.append(f"addr add {LINK_LOCAL_CORE}/64 dev {far} nodad")
        batch(router, *here)
        batch(self._core.router, *there)
        if self.plan.blackhole and self.address:
            self._core.blackhole(self.address)

    def _join_layers(self, outer: NetnsHost, inner: NetnsHost) -> None:
        cable.connect(inner, outer, ("wan", "lan"), {})
        here = ["link set wan up", f"addr add {SHARED_END}/30 dev wan", f"route add default via {SHARED_GATEWAY}"]
        there = ["link set lan up", f"addr add {SHARED_GATEWAY}/30 dev lan"]
        there.append(f"route add {SHARED_ADDRESS} via {SHARED_END}")
        if self.prefix:
            here += _ipv6_up("wan")
            there.append(f"addr add {LINK_LOCAL_CORE}/64 dev lan nodad")
        batch(inner, *here)
        batch(outer, *there)

    def _add_hosts(self) -> None:
        router = self._layers[-1].router
        batch(router, "link add lan type bridge", "link set lan up", f"addr add {GATEWAY}/24 dev lan")
        for number in range(self.plan.hosts):
            host = LabHost()
            self.hosts.append(host)
            port = f"port{number}"
            cable.connect(host, router, ("eth0", port), {})
            batch(router, f"link set {port} master lan up")
            commands = ["link set eth0 up"]
            if self.plan.nat.translates:
                host.address, host.peer = f"192.168.1.{FIRST_HOST + number}", GATEWAY
                commands += [f"addr add {host.address}/24 dev eth0", f"route add default via {GATEWAY}"]
            batch(host, *commands)

    def _take_addresses(self) -> None:
        """Give the site its public addresses."""
        inner = self._layers[-1].router
        if self.address:
            self._core.route(self._number, add=(self.address,))
            if not self.plan.nat.translates:
                batch(inner, f"route add {self.address} dev lan")
                (host,) = self.hosts
                host.address, host.peer = self.address, GATEWAY
                default = f"default via {GATEWAY} dev eth0 onlink src {self.address}"
                batch(host, f"addr add {self.address}/32 dev eth0", f"route replace {default}")
        if self.prefix:
            network, gateway = f"{self.prefix}::/64", f"{self.prefix}::1"
            self._core.route(self._number, add=(network,))
            for layer in self._layers[:-1]:
                batch(layer.router, f"route add {network} via {LINK_LOCAL_SITE} dev lan")
            batch(inner, f"addr add {gateway}/64 dev lan nodad")
            for number, host in enumerate(self.hosts):
                host.address6 = f"{self.prefix}::{FIRST_HOST + number}"
                address = f"addr add {host.address6}/64 dev eth0 nodad"
                batch(host, address, f"route replace default via {gateway} dev eth0 src {host.address6}")

    @property
    def routers(self) -> list[NetnsHost]:
        """Its routers, from the outermost one to that of the hosts; their interfaces are `wan` and `lan`."""
        return [layer.router for layer in self._layers]

    def rebind(self) -> None:
        """Let the outermost NAT forget all flows and give new ports to those that go on.

        Raises
        ------
        ValueError
            If the site has no NAT.
        """
        if not self.plan.nat.translates:
            raise ValueError(f"a site of kind {self.plan.kind} has no NAT that could rebind")
        outer = self._layers[0]
        outer.apply(replace(outer.rules, epoch=outer.rules.epoch + 1))

    def move(self) -> None:
        """Give the site other public addresses, and no longer those that it has. A NAT forgets all flows."""
        address, prefix = self.address, self.prefix
        self.address = self._core.new_address() if address else ""
        self.prefix = self._core.new_prefix() if prefix else ""
        if self.plan.blackhole and self.address:
            self._core.blackhole(self.address)
        self._take_addresses()
        outer = self._layers[0]
        outer.apply(replace(outer.rules, public=self.address, epoch=outer.rules.epoch + 1))
        self._leave_addresses(address, prefix)

    def _leave_addresses(self, address: str, prefix: str) -> None:
        inner = self._layers[-1].router
        if address:
            self._core.route(self._number, remove=(address,))
            if not self.plan.nat.translates:
                batch(self.hosts[0], f"addr del {address}/32 dev eth0")
                batch(inner, f"route del {address} dev lan")
        if prefix:
            network = f"{prefix}::/64"
            self._core.route(self._number, remove=(network,))
            for number, host in enumerate(self.hosts):
                batch(host, f"addr del {prefix}::{FIRST_HOST + number}/64 dev eth0")
            batch(inner, f"addr del {prefix}::1/64 dev lan")
            for layer in self._layers[:-1]:
                batch(layer.router, f"route del {network} via {LINK_LOCAL_SITE} dev lan")

    def cut(self, is_cut: bool) -> None:
        """Cut the link to the public network, or join it again. NATs remember their flows meanwhile."""
        self._core.cut(self._number, is_cut)

    def close(self) -> None:
        if self.cable is not None:
            self.cable.close()
        for host in (*self.hosts, *self.routers):
            host.close()


def _ipv6_up(device: str) -> list[str]:
    """Return commands that give a router's way out its address and default route of IPv6."""
    return [
        f"addr add {LINK_LOCAL_SITE}/64 dev {device} nodad",
        f"route add default via {LINK_LOCAL_CORE} dev {device}",
    ]
