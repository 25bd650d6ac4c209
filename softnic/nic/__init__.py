"""The NIC: what stands between TCP and a link."""
