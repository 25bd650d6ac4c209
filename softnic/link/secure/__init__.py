"""Datagrams that only holders of the network's key can read or make (docs/FORMAT.md, "Sealed datagrams"; threats:
docs/keys.md)."""
