"""The NIC of an unmodified kernel: a TAP device, its flows, and the retransmit cache."""
