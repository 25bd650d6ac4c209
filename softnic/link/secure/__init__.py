"""Datagrams that only those who have the network's key can read or make (docs/FORMAT.md, "Sealed datagrams"; what that
protects against, and what not: docs/keys.md)."""
