"""A cluster whose applications use the kernel's sockets.

Every node has a network namespace, whose only way out is a TAP device with a NIC behind it. Needs no privilege.

    with KernelCluster(nodes=2, codec="bounded:10") as cluster:
        server = cluster.spawn(1, ["iperf3", "-s", "-1"], [0, 1, 2])     # at 10.77.0.2

The UDP sockets of the NICs are in the caller's namespace, as in any cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait

from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import START_S, ClusterError, last_line, node_ip
from softnic.cluster.supervisor import SupervisedProcess
from softnic.tapnic import namespaces

DEVICE = "softnic0"
MASTER_PORT = 29500
"""The default of torch.distributed: all ports of a namespace are free."""


class KernelCluster(Cluster):
    """A Cluster with kernel sockets. Raises ClusterError also if the system allows no namespaces."""

    def env(self, rank: int) -> dict[str, str]:
        return {**super().env(rank), "MASTER_ADDR": node_ip(0), "MASTER_PORT": str(MASTER_PORT)}

    def spawn(
        self, rank: int, argv: Sequence[str], fds: Sequence[int], env: Mapping[str, str] | None = None
    ) -> SupervisedProcess:
        return super().spawn(rank, self.within(rank, argv), fds, env)

    def within(self, node: int, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in a node's namespace."""
        return namespaces.program("enter", str(self._holders[node].pid), *argv)

    def nic_arguments(self, node: int) -> list[str]:
        return ["--tap", DEVICE, "--namespace", str(self._holders[node].pid)]

    def stop(self) -> None:
        super().stop()
        while self._holder_pipes:
            os.close(self._holder_pipes.pop())

    def _start(self, flags: list[str]) -> None:
        self._holders: list[SupervisedProcess] = []
        """Idle processes that keep the namespaces of nodes."""
        self._holder_pipes: list[int] = []
        """File descriptors; closing one ends its holder."""
        for node in range(self.nodes):
            self._hold(node)
        super()._start(flags)

    def _hold(self, node: int) -> None:
        log = self.directory / f"kernel{node}.log"
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stdin, stdin_write = os.pipe()
        ready, ready_write = os.pipe()
        self._holder_pipes.append(stdin_write)
        try:
            self._holders.append(self._supervisor.start(namespaces.program("hold"), [stdin, ready_write, output]))
        finally:
            for fd in (stdin, ready_write, output):
                os.close(fd)
        try:
            if not wait([ready], START_S) or not os.read(ready, 64):
                raise ClusterError(f"no network namespace for node {node}: {last_line(log)}")
        finally:
            os.close(ready)
