"""Hosts with kernels of their own around a bridge, links of 1500-byte packets shaped both ways by tbf, and their NICs.

Nothing has a name that other processes could see, so nothing is left of a star, however this process ends: its
supervisor ends everything on the hosts, and these go with their last process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from softnic.cluster.cluster import Cluster
from softnic.cluster.netns_lab.host import NIC_MTU, WIRE_MTU, WIRE_PORT, HostError, NetnsHost
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess

GATEWAY = "10.78.0.254"
"""Nobody. pasta shows its host as what its host's default route leads to."""
SHAPES = {
    "10mbit": ("rate", "10mbit", "burst", "66kb", "limit", "128kb"),
    "100mbit": ("rate", "100mbit", "burst", "80kb", "limit", "256kb"),
    "1gbit": ("rate", "1gbit", "burst", "128kb", "limit", "1mb"),
    "10gbit": ("rate", "10gbit", "burst", "256kb", "limit", "4mb"),
}
"""Bursts hold more than one 64 KB packet of GSO; the queue behind is 100 ms at 10 Mbit/s, 20 at 100, 8 at 1 Gbit/s
and 3 at 10."""

_RSH = """#!/bin/sh
# Stands in for ssh under mpirun. Open MPI takes equal host names for one machine.
number=${1##*.}
shift
exec nsenter --net="$(echo HOSTS | cut -d' ' -f"$number")" unshare --uts sh -c "hostname peer$number; $*"
"""


class Star:
    """`hosts` hosts with eth0 at 10.78.0.1, 10.78.0.2, ..., and one, the guest, without any link. Raises HostError."""

    def __init__(self, hosts: int) -> None:
        with ExitStack() as stack:
            self.hosts = [stack.enter_context(NetnsHost()) for _ in range(hosts)]
            self.guest = stack.enter_context(NetnsHost())
            self._switch = stack.enter_context(NetnsHost())
            self.supervisor = ProcessSupervisor()
            stack.callback(self.supervisor.stop)
            self._join()
            self._made = stack.pop_all()

    def spawn(self, host: NetnsHost, argv: Sequence[str], descriptors: Sequence[int]) -> SupervisedProcess:
        return self.supervisor.start(host.command(argv), descriptors)

    def shape(self, rate: str | None) -> None:
        """Every link, both ways; None: as fast as the machine."""
        for number, host in enumerate(self.hosts):
            for end, device in ((host, "eth0"), (self._switch, f"p{number}")):
                if rate is not None:
                    end.run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *SHAPES[rate])
                    continue
                with suppress(HostError):  # it is not shaped
                    end.run("tc", "qdisc", "del", "dev", device, "root")

    def remote_shell(self) -> Path:
        """A program that mpirun can use as ssh."""
        path = self.supervisor.directory / "rsh"
        path.write_text(_RSH.replace("HOSTS", " ".join(host.path for host in self.hosts)))
        path.chmod(0o700)
        return path

    def close(self) -> None:
        self._made.close()

    def __enter__(self) -> Star:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _join(self) -> None:
        self._switch.run("ip", "link", "add", "br0", "type", "bridge", "stp_state", "0")
        self._switch.run("ip", "link", "set", "br0", "up")
        for number, host in enumerate(self.hosts):
            host.address = f"10.78.0.{number + 1}"
            port = f"p{number}"
            self._switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.path)
            self._switch.run("ip", "link", "set", port, "master", "br0", "up")
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "mtu", str(WIRE_MTU), "up")
            host.run("ip", "route", "add", "default", "via", GATEWAY)


class Nics(Cluster):
    """A NIC in every host of a star. What crosses the links is at most 1500 bytes, as it is for the kernel's TCP."""

    def __init__(self, star: Star) -> None:
        self._star = star
        super().__init__(len(star.hosts), mtu=NIC_MTU)

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:
        return self._star.hosts[node].command(argv)

    def wires(self) -> list[str]:
        return [f"{host.address}:{WIRE_PORT}" for host in self._star.hosts]


def settings() -> Mapping[str, str]:
    """Settings of the kernel's TCP that its figures depend on."""
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {"kernel_congestion_control": path.read_text().strip()}
