"""Many nodes on one machine: processes, kernels in namespaces, supervision."""

from __future__ import annotations

from softnic import cluster, namespaces
from softnic.cluster import Cluster, ClusterError, node_ip, read_stats, running_nics, start_nic, wait_for_nic
from softnic.kernel_cluster import KernelCluster
from softnic.warden import Process
from softnic.warden import Warden as ProcessSupervisor

__all__ = [
    "Cluster",
    "ClusterError",
    "KernelCluster",
    "Process",
    "ProcessSupervisor",
    "cluster",
    "namespaces",
    "node_ip",
    "read_stats",
    "running_nics",
    "start_nic",
    "wait_for_nic",
]
