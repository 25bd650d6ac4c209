"""The forwarding table of a link: peers by address, and the peer behind each MAC, as in a learning switch.

A configured MAC stays at its configured address; any other is where it was last heard. An address is a peer's as long
as a configured MAC is there: one that is configured anew elsewhere moves its peer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from softnic._native import ffi

MAX_LEARNED = 4096
"""MACs learned beside the configured ones; the oldest is evicted first."""


@dataclass(slots=True, eq=False)
class LinkPeer:
    """A UDP endpoint that frames are received from and sent to."""

    address: int
    """IPv4, in host order."""
    port: int
    mac: bytes
    """The first MAC configured at this endpoint: that of its node."""
    gso: bool = True
    """Whether the path to it takes datagrams that the kernel segments (UDP GSO)."""

    def disable_gso(self) -> None:
        """Send single datagrams from now on: the path refuses GSO."""
        self.gso = False

    def __str__(self) -> str:
        return endpoint(self.address, self.port)


def endpoint(address: int, port: int) -> str:
    return f"{'.'.join(str(part) for part in address.to_bytes(4, 'big'))}:{port}"


class ForwardingTable:
    def __init__(self) -> None:
        self._peers: dict[tuple[int, int], LinkPeer] = {}
        self._by_mac: dict[bytes, LinkPeer] = {}
        self._learned: dict[bytes, LinkPeer] = {}
        self._sorted: list[LinkPeer] | None = None
        self._keys: Any = None
        self.changes = 0
        """How often the way to a MAC address may have changed."""

    def __len__(self) -> int:
        """Return the number of configured MACs."""
        return len(self._by_mac)

    @property
    def peers(self) -> Collection[LinkPeer]:
        return self._peers.values()

    def peer_at(self, address: int, port: int) -> LinkPeer | None:
        return self._peers.get((address, port))

    def add(self, mac: bytes, address: int, port: int) -> LinkPeer | None:
        """Configure a MAC. Returns the peer that this removes, if any."""
        peer = self._peers.setdefault((address, port), LinkPeer(address, port, mac))
        self.changes += 1
        before = self._by_mac.get(mac)
        self._by_mac[mac] = peer
        self._learned.pop(mac, None)
        self._sorted = None
        if before is None or any(other is before for other in self._by_mac.values()):
            return None
        del self._peers[before.address, before.port]
        self._learned = {mac: other for mac, other in self._learned.items() if other is not before}
        return before

    def find(self, mac: bytes) -> LinkPeer | None:
        return self._by_mac.get(mac) or self._learned.get(mac)

    def learn(self, mac: bytes, peer: LinkPeer) -> None:
        if mac in self._by_mac or self._learned.get(mac) is peer or mac[0] & 1:
            return
        self.changes += 1
        self._learned.pop(mac, None)
        if len(self._learned) == MAX_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._learned[mac] = peer

    def sorted_peers(self) -> tuple[list[LinkPeer], Any]:
        """Return all peers by ascending address << 16 | port, and these keys as an array for C."""
        if self._sorted is None:
            self._sorted = [self._peers[key] for key in sorted(self._peers)]
            keys = np.array([peer.address << 16 | peer.port for peer in self._sorted], np.uint64)
            self._keys = ffi.from_buffer("uint64_t[]", keys)
        return self._sorted, self._keys

    def clear(self) -> None:
        self._peers.clear()
        self._by_mac.clear()
        self._learned.clear()
        self._sorted = None
