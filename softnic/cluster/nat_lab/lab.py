"""A laboratory of NATs: sites behind routers of some kind, around a public network with servers.

    with NatLab({"left": "symmetric", "right": SitePlan(kind="full cone", timeout_s=5)}) as lab:
        server = lab.server.start("softnicd", ...)            # at lab.server.address
        lab.host("left").run("ping", "-c", "1", lab.server.address)
        with lab.host("right").entered():
            probe = socket.socket(...)                        # a socket of this process on that host
        lab.rebind("left")                                    # its NAT forgets its flows and uses other ports

Hosts are network namespaces as in netns_lab: they and their processes end with this process, however it ends. The
changes of a running lab take some tens of milliseconds. `missing` says what a machine lacks for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping

from softnic.cluster.nat_lab.cable import DEVICE, TapCarrier
from softnic.cluster.nat_lab.core import LabHost, PublicNetwork, batch
from softnic.cluster.nat_lab.kinds import KINDS
from softnic.cluster.nat_lab.rules import NatRules
from softnic.cluster.nat_lab.site import NatSite, SitePlan
from softnic.cluster.netns_lab.host import HostError, NetnsHost
from softnic.cluster.netns_lab.host import missing as missing_hosts

TCP_PORTS = (443, 9470)
"""Destination ports of TCP that pass the routers of sites without UDP: of HTTPS and of the meeting server."""
MOST_SITES = 255
SUPPORTED_IF = ("restricted", "symmetric")
"""Kinds that between them use all that the rules need of a kernel."""


def missing() -> str:
    """Return why labs cannot be made on this machine; empty if they can."""
    if reason := missing_hosts():
        return reason
    if shutil.which("nft") is None:
        return "not installed: nft (apt-get install nftables)"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"no TAP devices: {DEVICE} is missing or closed (modprobe tun)"
    tried = [NatRules(kind=KINDS[name], public="198.51.100.1", inside=("192.168.1.10",)) for name in SUPPORTED_IF]
    with NetnsHost() as host:
        try:
            for rules in tried:
                host.run("nft", "-f", "-", given=rules.text())
            batch(host, "link add lan type bridge", "addr add 2001:db8::1/64 dev lo nodad")
        except HostError as error:
            return f"this kernel lacks NAT by nftables, bridges or IPv6: {error}"
    return ""


class NatLab:
    """Sites and servers that run until `close`. Needs root.

    Parameters
    ----------
    sites : mapping of str to str or SitePlan
        Each site by its name: its kind, or its whole plan.
    servers : int
        Hosts of the public network, at addresses of their own, behind no NAT.
    ipv6 : bool
        Whether the servers have IPv6, too; they do if any site does.
    tcp_ports : tuple of int
        Destination ports of TCP that pass the routers of sites of kind "no udp".
    seed : int
        Of the faults of links.

    Raises
    ------
    ValueError
        If there are too many sites, or a site cannot be built.
    HostError
        If a command fails.
    """

    def __init__(
        self,
        sites: Mapping[str, str | SitePlan],
        *,
        servers: int = 1,
        ipv6: bool = False,
        tcp_ports: tuple[int, ...] = TCP_PORTS,
        seed: int = 1,
    ) -> None:
        if len(sites) > MOST_SITES:
            raise ValueError(f"a lab has at most {MOST_SITES} sites, not {len(sites)}")
        plans = {name: SitePlan(kind=each) if isinstance(each, str) else each for name, each in sites.items()}
        self._carrier: TapCarrier | None = None
        with contextlib.ExitStack() as closing:
            ipv6 = ipv6 or any(plan.has_ipv6 for plan in plans.values())
            core = PublicNetwork(ipv6=ipv6)
            closing.callback(core.close)
            self.servers: list[LabHost] = []
            """The hosts of the public network, with `address` and `address6`."""
            for number in range(servers):
                self.servers.append(core.add_server(number))
                closing.callback(self.servers[-1].close)
            self._sites: dict[str, NatSite] = {}
            for number, (name, plan) in enumerate(plans.items()):
                self._sites[name] = NatSite(plan, number, core, tcp_ports)
                closing.callback(self._sites[name].close)
            self._carried = [name for name, site in self._sites.items() if site.cable is not None]
            cables = [site.cable for site in self._sites.values() if site.cable is not None]
            if cables:
                self._carrier = TapCarrier(
                    lambda command, **options: core.router.start(*command, **options), cables, seed
                )
                closing.callback(self._carrier.close)
            self._closing = closing.pop_all()

    @property
    def server(self) -> LabHost:
        """The first server."""
        return self.servers[0]

    def site(self, name: str) -> NatSite:
        """Return a site: `address` is its public IPv4 address, `prefix` that of IPv6; `hosts` and `routers`."""
        return self._sites[name]

    def host(self, name: str, number: int = 0) -> LabHost:
        """Return a host of a site: `run` and `start` run commands, `entered` opens sockets, `address` is private."""
        return self._sites[name].hosts[number]

    def address(self, name: str) -> str:
        """Return the public address of a site, as it is now: IPv4, or that of the first host if it has only IPv6."""
        return self._sites[name].address or self.host(name).address6

    def rebind(self, name: str) -> None:
        """Let a site's outermost NAT forget all flows and give new ports to those that go on. Raises ValueError if the
        site has no NAT."""
        self._sites[name].rebind()

    def move(self, name: str) -> None:
        """Give a site other public addresses; its old ones no longer exist, and its NAT forgets all flows."""
        self._sites[name].move()

    def block(self, name: str) -> None:
        """Cut a site off: nothing passes its link, in either direction, and no sender gets an error."""
        self._sites[name].cut(True)

    def unblock(self, name: str) -> None:
        """Join a site again that `block` has cut off."""
        self._sites[name].cut(False)

    def counters(self, name: str) -> dict[str, int]:
        """Return the counters of a site's link that has faults, of both directions, as in EmulationCounters."""
        assert self._carrier is not None
        return self._carrier.counters()[self._carried.index(name)]

    def close(self) -> None:
        """Kill the processes that still run, and close the namespaces."""
        self._closing.close()

    def __enter__(self) -> NatLab:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
