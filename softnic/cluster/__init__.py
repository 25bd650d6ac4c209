"""Many nodes on one machine: processes, kernels in namespaces, supervision."""

from softnic.cluster.cluster import Cluster

__all__ = ["Cluster"]
