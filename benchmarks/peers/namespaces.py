"""Hosts in network namespaces around a bridge, links of 1500-byte packets shaped both ways by tbf, and NICs in them.

A star's namespaces carry this process's number in their names. They go when the star is closed; if this process is
killed, its warden ends everything in them and a janitor that it started removes them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from softnic.bench.report import BenchError
from softnic.cluster import Cluster
from softnic.warden import Process, Warden

UNDERLAY_MTU = 1500
OVERHEAD_BYTES = 50
"""VXLAN, UDP, IPv4 and the inner Ethernet header, all inside the 1500."""
PORT = 4789
GATEWAY = "10.78.0.254"
"""Nobody. pasta shows its host as what its host's default route leads to."""
SHAPES = {
    "1gbit": ("rate", "1gbit", "burst", "128kb", "limit", "1mb"),
    "10gbit": ("rate", "10gbit", "burst", "256kb", "limit", "4mb"),
}
"""Bursts hold more than one 64 KB packet of GSO; the queue behind is 8 ms at 1 Gbit/s, 3 ms at 10."""

_JANITOR = """
trap 'for name in $(ip netns list | cut -d" " -f1 | grep "^$0-"); do ip netns del "$name"; done; exit' TERM
while :; do sleep 3600 & wait; done
"""
_RSH = """#!/bin/sh
# Stands in for ssh under mpirun. Open MPI takes equal host names for one machine.
number=${1##*.}
shift
exec ip netns exec "PREFIX-h$((number - 1))" unshare --uts sh -c "hostname peer$number; $*"
"""


def ip(*arguments: str) -> None:
    """Raises BenchError with what ip(8) or tc(8) said."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(arguments)}: {done.stderr.strip() or done.returncode}")


class Star:
    """`hosts` namespaces with eth0 at 10.78.0.1, 10.78.0.2, ..., and one, the guest, without any link."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
        self.prefix = f"snpeers{os.getpid()}"
        self.guest = f"{self.prefix}-guest"
        self._switch = f"{self.prefix}-switch"
        self.warden = Warden()
        self._made: list[str] = []
        try:
            null = os.open(os.devnull, os.O_RDWR)
            self.warden.start(["sh", "-c", _JANITOR, self.prefix], [null] * 3)
            os.close(null)
            self._make()
        except BaseException:
            self.close()
            raise

    def name(self, host: int) -> str:
        return f"{self.prefix}-h{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.78.0.{host + 1}"

    def within(self, namespace: str, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", namespace, *argv]

    def spawn(self, namespace: str, argv: Sequence[str], descriptors: Sequence[int]) -> Process:
        return self.warden.start(self.within(namespace, argv), descriptors)

    def shape(self, rate: str | None) -> None:
        """Every link, both ways; None: as fast as the machine."""
        for host in range(self.hosts):
            for namespace, device in ((self.name(host), "eth0"), (self._switch, f"p{host}")):
                tc = ("tc", "-n", namespace, "qdisc")
                if rate is None:
                    subprocess.run([*tc, "del", "dev", device, "root"], capture_output=True, check=False)
                else:
                    ip(*tc, "replace", "dev", device, "root", "tbf", *SHAPES[rate])

    def remote_shell(self) -> Path:
        """A program that mpirun can use as ssh."""
        path = self.warden.directory / "rsh"
        path.write_text(_RSH.replace("PREFIX", self.prefix))
        path.chmod(0o700)
        return path

    def close(self) -> None:
        self.warden.stop()
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def __enter__(self) -> Star:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        for name in (self._switch, self.guest, *map(self.name, range(self.hosts))):
            self._made.append(name)
            ip("ip", "netns", "add", name)
            ip("ip", "-n", name, "link", "set", "lo", "up")
        ip("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge", "stp_state", "0")
        ip("ip", "-n", self._switch, "link", "set", "br0", "up")
        for host in range(self.hosts):
            port, name = f"p{host}", self.name(host)
            pair = ("type", "veth", "peer", "name", "eth0", "netns", name)
            ip("ip", "-n", self._switch, "link", "add", port, *pair)
            ip("ip", "-n", self._switch, "link", "set", port, "master", "br0", "up")
            ip("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("ip", "-n", name, "link", "set", "eth0", "mtu", str(UNDERLAY_MTU), "up")
            ip("ip", "-n", name, "route", "add", "default", "via", GATEWAY)


class Nics(Cluster):
    """A NIC in every host of a star. What crosses the links is at most 1500 bytes, as it is for the kernel's TCP."""

    def __init__(self, star: Star) -> None:
        self._star = star
        super().__init__(star.hosts, mtu=UNDERLAY_MTU - OVERHEAD_BYTES)

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:
        return self._star.within(self._star.name(node), argv)

    def wires(self) -> list[str]:
        return [f"{self._star.address(node)}:{PORT}" for node in range(self.nodes)]


def settings() -> Mapping[str, str]:
    """What the kernel's own TCP is told here, which its figures depend on."""
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {"kernel_congestion_control": path.read_text().strip()}
