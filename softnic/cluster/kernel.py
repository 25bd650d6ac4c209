"""A cluster in which the applications of all nodes, or of some, use the kernel's sockets.

Each of these nodes has a network namespace, whose only way out is a TAP device with a NIC behind it, unless it is given
an uplink (uplink.py). Needs no privilege.

    with KernelCluster(nodes=2, kernels=[1], codec="bounded:10") as cluster:
        server = cluster.spawn(1, ["iperf3", "-s", "-1"], [0, 1, 2])     # at 10.77.0.2

The UDP sockets of the NICs are in the caller's namespace, as in any cluster.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import START_S, ClusterError, last_line, node_ip
from softnic.cluster.supervisor import SupervisedProcess
from softnic.cluster.uplink import resolver_file, start_uplink
from softnic.tapnic import namespaces

DEVICE = "softnic0"
MASTER_PORT = 29500
"""The default of torch.distributed: all ports of a namespace are free."""


class KernelCluster(Cluster):
    """A Cluster in which nodes have kernels of their own.

    Parameters
    ----------
    nodes : int
        The number of nodes.
    kernels : collection of int, optional
        The nodes whose applications use their kernel's sockets; those of the others use `softnic.socket`. Default: all.
    uplink : bool
        Give the nodes with kernels a route to the host's network, by slirp4netns or pasta.
    **options
        The other parameters of Cluster.

    Raises
    ------
    ValueError
        For an invalid argument.
    ClusterError
        If a NIC does not start, the system allows no namespaces, or an uplink cannot be made.
    """

    def __init__(
        self, nodes: int = 4, *, kernels: Collection[int] | None = None, uplink: bool = False, **options: Any
    ) -> None:
        self.kernels = frozenset(range(nodes) if kernels is None else kernels)
        if unknown := self.kernels.difference(range(nodes)):
            raise ValueError(f"node {min(unknown)} is to have a kernel: the nodes are 0 to {nodes - 1}")
        self._uplink = uplink
        super().__init__(nodes, **options)

    def env(self, rank: int) -> dict[str, str]:
        return {**super().env(rank), "MASTER_ADDR": node_ip(0), "MASTER_PORT": str(MASTER_PORT)}

    def spawn(
        self, rank: int, argv: Sequence[str], fds: Sequence[int], env: Mapping[str, str] | None = None
    ) -> SupervisedProcess:
        return super().spawn(rank, self.within(rank, argv), fds, env)

    def within(self, node: int, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a node: in its namespace, if it has one."""
        if node not in self.kernels:
            return list(argv)
        resolver = ["--resolver", str(self.directory / "resolv.conf")] if self._uplink else []
        return namespaces.program("enter", str(self._holders[node].pid), *resolver, *argv)

    def nic_arguments(self, node: int) -> list[str]:
        if node not in self.kernels:
            return []
        return ["--tap", DEVICE, "--namespace", str(self._holders[node].pid)]

    def stop(self) -> None:
        super().stop()
        while self._holder_pipes:
            os.close(self._holder_pipes.pop())

    def _start(self, flags: list[str]) -> None:
        self._holders: dict[int, SupervisedProcess] = {}
        """Idle processes that keep the namespaces of nodes."""
        self._holder_pipes: list[int] = []
        """File descriptors; closing one ends its holder."""
        for node in sorted(self.kernels):
            self._hold(node)
        super()._start(flags)
        if self._uplink:
            resolver_file(self.directory)
            for node, holder in self._holders.items():
                start_uplink(self._supervisor, holder.pid, self.directory / f"uplink{node}.log")

    def _hold(self, node: int) -> None:
        log = self.directory / f"kernel{node}.log"
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stdin, stdin_write = os.pipe()
        ready, ready_write = os.pipe()
        self._holder_pipes.append(stdin_write)
        try:
            fds = [stdin, ready_write, output]
            self._holders[node] = self._supervisor.start(namespaces.program("hold"), fds)
        finally:
            for fd in (stdin, ready_write, output):
                os.close(fd)
        try:
            if not wait([ready], START_S) or not os.read(ready, 64):
                raise ClusterError(f"no network namespace for node {node}: {last_line(log)}")
        finally:
            os.close(ready)
