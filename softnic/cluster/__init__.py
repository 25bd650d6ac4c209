"""Many nodes on one machine: processes, kernels in namespaces, supervision."""
