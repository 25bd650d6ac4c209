"""Hosts in sites: network namespaces around a process that emulates their links and the paths between the sites.

Either all hosts have VXLAN devices of the kernel, or all have NICs; the frames of both pass the same carrier, with
packets of the same size. Nothing is left of a lab, however this process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

import msgspec

from benchmarks.path import BUFFERS
from benchmarks.wan.carrier import HostPaths, Paths, SitePath
from softnic import units
from softnic.cluster.cluster import Cluster
from softnic.cluster.netns_lab.host import NIC_MTU, WIRE_PORT, HostError, NetnsHost, join
from softnic.cluster.nic_process import node_ip
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess
from softnic.packet.ethernet import mac_of

ANSWER_S = 60.0
"""Time limit for replies of the carrier."""
WITHIN = {"rate": "1gbit", "delay": "1ms"}
"""Of a host's link: the rate in both directions, and the delay between two hosts of a site."""
BETWEEN_RATE = "100mbit"
BETWEEN = {(0, 1): ("20ms", "0.1%"), (0, 2): ("50ms", "0.5%"), (1, 2): ("80ms", "1%")}
"""Delay and loss, each way, of the path between two sites, which their hosts share."""
SLOW_RATE, SLOW_QUEUE = "20mbit", "250kb"
"""The slow rank's link, whose queue is 100 ms long."""
DEVICE = "vx0"
"""Of the kernel, on a host."""


@dataclass(frozen=True)
class SitePlan:
    """Sites and what lies between them."""

    ranks: tuple[int, ...] = (2, 3, 3)
    """Of each site."""
    within: Mapping[str, str] = field(default_factory=lambda: dict(WITHIN))
    between_rate: str = BETWEEN_RATE
    between: Mapping[tuple[int, int], tuple[str, str]] = field(default_factory=lambda: dict(BETWEEN))
    slow_rank: bool = False
    """Whether the last rank's link has SLOW_RATE."""

    @property
    def size(self) -> int:
        return sum(self.ranks)

    @property
    def name(self) -> str:
        sites = f"{len(self.ranks)} sites"
        return f"{sites}, one rank at {SLOW_RATE}" if self.slow_rank else sites

    def limit_s(self, sent: float) -> float:
        """Return the least time of an all-reduce of `sent` bytes a rank on these links.

        Each of n sites sums what it has, sends 1 / n of the sum to each other site, and gets 1 / n of the result from
        each: every path carries 2 / n of the bytes, each way. A slow rank sends all of its bytes and receives all.
        """
        between_s = 2 / len(self.ranks) * sent * 8 / units.rate_bps(self.between_rate)
        return max(between_s, sent * 8 / units.rate_bps(SLOW_RATE)) if self.slow_rank else between_s

    def paths(self, hosts: Sequence[NetnsHost], seed: int) -> Paths:
        """Return what the carrier is to emulate."""
        sites = [site for site, ranks in enumerate(self.ranks) for _ in range(ranks)]
        ends = []
        for number, (host, site) in enumerate(zip(hosts, sites, strict=True)):
            link = dict(self.within)
            if self.slow_rank and number == self.size - 1:
                link |= {"rate": SLOW_RATE, "limit": SLOW_QUEUE}
            down = {name: text for name, text in link.items() if name != "delay"}
            own, address = (host.peer, WIRE_PORT), (host.address, WIRE_PORT)
            ends.append(HostPaths(own, address, mac_of(ip_number(number)).hex(), site, link, down))
        between = []
        for sites_of, (delay, loss) in self.between.items():
            queue = round(units.rate_bps(self.between_rate) / 8 * 2 * units.time_s(delay))
            emulation = {"rate": self.between_rate, "delay": delay, "loss": loss, "limit": f"{max(queue, 64_000)}b"}
            between += [SitePath(*pair, emulation) for pair in (sites_of, sites_of[::-1])]
        return Paths(ends, between, seed)


def ip_number(node: int) -> int:
    return int.from_bytes(bytes(map(int, node_ip(node).split("."))), "big")


class SiteHosts:
    """The hosts of a plan, with nothing on them, and the carrier between them. Raises HostError."""

    def __init__(self, plan: SitePlan, *, seed: int = 1) -> None:
        self.plan = plan
        with ExitStack() as stack:
            self.hosts = [stack.enter_context(NetnsHost()) for _ in range(plan.size)]
            middle = stack.enter_context(NetnsHost())
            for number, host in enumerate(self.hosts):
                join(host, middle, net=number, devices=("eth0", f"eth{number}"))
            self.supervisor = ProcessSupervisor()
            stack.callback(self.supervisor.stop)
            paths = msgspec.json.encode(plan.paths(self.hosts, seed)).decode()
            command = [sys.executable, "-m", "benchmarks.wan.carrier", paths]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._carrier = middle.start(*command, **pipes)
            self._line()
            self._made = stack.pop_all()

    def counters(self) -> dict[str, int]:
        """Return the counters of the carrier."""
        assert self._carrier.stdin is not None
        print("counters", file=self._carrier.stdin, flush=True)
        counted: dict[str, int] = json.loads(self._line())
        return counted

    def spawn(self, rank: int, argv: Sequence[str], descriptors: Sequence[int]) -> SupervisedProcess:
        """Start a process on the host of a rank."""
        return self.supervisor.start(self.hosts[rank].command(argv), descriptors)

    def use_kernel(self, congestion: str) -> None:
        """Give each host a VXLAN device with the node's address, and its kernel's TCP large buffers.

        The route has the congestion control, as a namespace may not choose one that the host restricts.
        """
        for number, host in enumerate(self.hosts):
            host.vxlan(number)
            mac = ":".join(f"{byte:02x}" for byte in mac_of(ip_number(number)))
            host.run("ip", "link", "set", DEVICE, "address", mac)
            host.set(tcp_rmem=BUFFERS, tcp_wmem=BUFFERS)
            source = ("scope", "link", "src", node_ip(number))
            host.run("ip", "route", "replace", "10.77.0.0/24", "dev", DEVICE, *source, "congctl", congestion)

    def close(self) -> None:
        self._made.close()

    def __enter__(self) -> SiteHosts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _line(self) -> str:
        assert self._carrier.stdout is not None
        line: str = self._carrier.stdout.readline() if wait([self._carrier.stdout.fileno()], ANSWER_S) else ""
        if not line:
            raise HostError("the carrier between the sites does not answer")
        return line


class SiteNics(Cluster):
    """A NIC on each host, with the settings that NICs have by themselves. All peers of a NIC are at the carrier."""

    def __init__(self, sites: SiteHosts) -> None:
        self._hosts = sites.hosts
        super().__init__(len(sites.hosts), mtu=NIC_MTU)

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:
        return self._hosts[node].command(argv)

    def wires(self) -> list[str]:
        return [f"{host.address}:{WIRE_PORT}" for host in self._hosts]

    def peers(self, node: int, wires: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(super().peers(node, wires), f"{self._hosts[node].peer}:{WIRE_PORT}")
