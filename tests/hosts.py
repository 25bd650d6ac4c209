"""NICs in network namespaces (softnic/cluster/netns_lab).

with NetnsHost() as plain, NetnsHost() as host, bad_cable(plain, host, {"loss": "1%"}):
    plain.vxlan(0)                                   # 10.77.0.1 is the kernel's
    nic = HostedNic(host, 1, {0: host.peer})         # 10.77.0.2 is the NIC's
    with serving([nic]):
        ...
"""

from __future__ import annotations

from collections.abc import Mapping

from softnic import underlay
from softnic.cluster.netns_lab.host import NIC_MTU, NIC_MTU_OVER_IPV6, WIRE_PORT, NetnsHost
from tests.daemon.nics import Nic


class HostedNic(Nic):
    """A daemon on a host, node `number` there, with other nodes' wires by their numbers. Its control socket is a file:
    this process, which is on no host, uses it all the same. To be started by `tests.daemon.nics.serving`."""

    def __init__(self, host: NetnsHost, number: int, others: Mapping[int, str], *flags: str) -> None:
        wires = {other: underlay.text((address, WIRE_PORT)) for other, address in others.items()}
        mtu = NIC_MTU if underlay.family(host.address) == underlay.IPV4 else NIC_MTU_OVER_IPV6
        flags = ("--mtu", str(mtu), *flags)
        self.set_up(host.directory, number, underlay.text((host.address, WIRE_PORT)), wires, flags)
        self.host = host
        self.command = host.command(self.command)
