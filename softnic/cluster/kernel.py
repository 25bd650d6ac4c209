"""A cluster whose programs use the kernel's own sockets: every node has a kernel of its own, in a network namespace,
whose only way out is a TAP device with a NIC behind it. Takes no privilege.

    with KernelCluster(nodes=2, codec="bounded:10") as cluster:
        server = cluster.spawn(1, ["iperf3", "-s", "-1"], [0, 1, 2])     # at 10.77.0.2, as all programs of node 1

The NICs' wires are sockets of this namespace, as in any cluster.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping, Sequence

from softnic.cluster import START_S, Cluster, ClusterError, last_line, node_ip
from softnic.cluster.supervisor import SupervisedProcess
from softnic.tapnic import namespaces

DEVICE = "softnic0"
MASTER_PORT = 29500
"""torch.distributed's usual one: all ports of a namespace are free."""


class KernelCluster(Cluster):
    """As Cluster, with the same arguments. Raises ClusterError also where the system allows no namespaces."""

    def env(self, rank: int) -> dict[str, str]:
        return {**super().env(rank), "MASTER_ADDR": node_ip(0), "MASTER_PORT": str(MASTER_PORT)}

    def spawn(
        self, rank: int, argv: Sequence[str], descriptors: Sequence[int], env: Mapping[str, str] | None = None
    ) -> SupervisedProcess:
        return super().spawn(rank, self.within(rank, argv), descriptors, env)

    def within(self, node: int, argv: Sequence[str]) -> list[str]:
        """What runs `argv` in a node's namespace."""
        return namespaces.program("enter", str(self._holders[node].pid), *argv)

    def nic_arguments(self, node: int) -> list[str]:
        return ["--tap", DEVICE, "--namespace", str(self._holders[node].pid)]

    def stop(self) -> None:
        super().stop()
        while self._held:
            os.close(self._held.pop())

    def _start(self, flags: list[str]) -> None:
        self._holders: list[SupervisedProcess] = []
        """Processes that do nothing but belong to a node's namespace, which goes with the last of its own."""
        self._held: list[int] = []
        """They end when these are closed."""
        for node in range(self.nodes):
            self._hold(node)
        super()._start(flags)

    def _hold(self, node: int) -> None:
        log = self.directory / f"kernel{node}.log"
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stays, held = os.pipe()
        ready, tells = os.pipe()
        self._held.append(held)
        try:
            self._holders.append(self._supervisor.start(namespaces.program("hold"), [stays, tells, said]))
        finally:
            for descriptor in (stays, tells, said):
                os.close(descriptor)
        try:
            if not select.select([ready], [], [], START_S)[0] or not os.read(ready, 64):
                raise ClusterError(f"no network namespace for node {node}: {last_line(log)}")
        finally:
            os.close(ready)
