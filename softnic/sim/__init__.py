"""Virtual time: one clock, one network, and nodes in it."""
