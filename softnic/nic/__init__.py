"""The NIC: what lies between TCP and a link."""
