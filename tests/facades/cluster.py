"""Several nodes on one machine: processes, kernels in namespaces, supervision."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from softnic.cluster import cluster
from softnic.cluster.kernel import KernelCluster
from softnic.cluster.nic_process import ClusterError, node_ip, read_stats, running_nics, start_nic, wait_for_nic
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess
from softnic.cluster.uplink import start_uplink
from softnic.tapnic import namespaces

__all__ = [
    "ClusterError",
    "KernelCluster",
    "ProcessSupervisor",
    "SupervisedProcess",
    "choose_ports",
    "free_ports",
    "namespaces",
    "node_ip",
    "read_stats",
    "running_nics",
    "start_nic",
    "start_uplink",
    "wait_for_nic",
]


free_ports = cluster._free_ports
"""Returns UDP ports of the loopback interface that are not in use. `choose_ports` does not change it."""


def choose_ports(monkeypatch: pytest.MonkeyPatch, choose: Callable[[int], list[int]]) -> None:
    """Let new clusters get the ports of their NICs from `choose`."""
    monkeypatch.setattr(cluster, "_free_ports", choose)
