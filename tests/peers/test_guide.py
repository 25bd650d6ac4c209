"""The guide's commands for a host without softnic, as written but for addresses and names."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from pathlib import Path

from softnic.cluster.netns_lab.host import NetnsHost, join
from tests import needs
from tests.daemon.nics import serving
from tests.hosts import HostedNic
from tests.peers.sides import SIDES, Sides, exchange

pytestmark = [needs.hosts, needs.tools("ip", "bridge", "ping")]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "many-machines.md"
[SECTION] = re.findall(r"## A host without softnic\n(.*?)\n## ", GUIDE.read_text(), re.DOTALL)
ONE_NIC, DAEMON, MORE_NICS = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


def obey(host: NetnsHost, commands: str) -> None:
    for command in commands.splitlines():
        host.run(*shlex.split(command))
    host.set_offload("vx0", "tx", False)  # the guide says so, of veth


def test_one_nic() -> None:
    """The guide's plain host is the second node, its NIC the first."""
    with NetnsHost() as host, NetnsHost() as alone:
        join(host, alone)
        nic = HostedNic(host, 0, {})
        assert DAEMON.startswith("softnicd --ip 10.77.0.1 --mtu 1450 --wire 192.0.2.10:4789 --peer 10.77.0.2=")
        flags = shlex.split(DAEMON.replace("192.0.2.10", host.address).replace("192.0.2.11", alone.address))[1:-2]
        nic.command = host.command([sys.executable, "-m", "softnicd", *flags, "--control", nic.path])
        obey(alone, ONE_NIC.replace("192.0.2.10", host.address))
        with serving([nic]):
            alone.run("ping", "-c", "1", "-w", "20", "10.77.0.1")


def test_more_nics() -> None:
    """Both of them reach it, and it reaches both."""
    with contextlib.ExitStack() as stack:
        alone, *hosts = (stack.enter_context(NetnsHost()) for _ in range(3))
        nics: list[HostedNic] = []
        for index, host in enumerate(hosts):
            join(alone, host, net=index, devices=(f"eth{index}", "eth0"))
            nics.append(HostedNic(host, 1 + index, {0: host.peer}))
        commands = MORE_NICS.replace("192.0.2.10", hosts[0].address).replace("192.0.2.12", hosts[1].address)
        obey(alone, commands)
        alone.run("ip", "addr", "add", "10.77.0.1/24", "dev", "vx0")
        alone.run("ip", "link", "set", "vx0", "mtu", "1450", "up")
        stack.enter_context(serving(nics))
        for nic in nics:
            for opener in SIDES:
                with Sides(alone, nic).connection(opener) as (kernel, ours):
                    exchange((kernel, ours, 100_000), (ours, kernel, 100_000))
