"""Where a wire's peers are, and behind which of them a station is: a learning switch's table.

A configured station stays where it is configured, any other is where it was last heard. An address is a peer's as long
as a configured station is there: one that is configured anew elsewhere takes its place along.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from softnic._native import ffi

MAX_LEARNED = 4096
"""Stations remembered beside the configured ones; the oldest goes first."""


@dataclass(slots=True, eq=False)
class Peer:
    """An address that frames are heard from and sent to."""

    address: int
    """IPv4, in host order."""
    port: int
    station: bytes
    """The first MAC that was configured to be there: its node's."""
    gso: bool = True
    """The way there takes datagrams that the kernel is to cut."""

    def __str__(self) -> str:
        return endpoint(self.address, self.port)


def endpoint(address: int, port: int) -> str:
    return f"{'.'.join(str(part) for part in address.to_bytes(4, 'big'))}:{port}"


class Places:
    def __init__(self) -> None:
        self._peers: dict[tuple[int, int], Peer] = {}
        self._stations: dict[bytes, Peer] = {}
        self._learned: dict[bytes, Peer] = {}
        self._order: list[Peer] | None = None
        self._keys: Any = None

    def __len__(self) -> int:
        """Configured stations."""
        return len(self._stations)

    @property
    def peers(self) -> Collection[Peer]:
        return self._peers.values()

    def at(self, address: int, port: int) -> Peer | None:
        return self._peers.get((address, port))

    def add(self, station: bytes, address: int, port: int) -> Peer | None:
        """Configures a station. Returns the peer that is none any more because of that."""
        peer = self._peers.setdefault((address, port), Peer(address, port, station))
        before = self._stations.get(station)
        self._stations[station] = peer
        self._learned.pop(station, None)
        self._order = None
        if before is None or any(other is before for other in self._stations.values()):
            return None
        del self._peers[before.address, before.port]
        self._learned = {mac: other for mac, other in self._learned.items() if other is not before}
        return before

    def of(self, station: bytes) -> Peer | None:
        return self._stations.get(station) or self._learned.get(station)

    def learn(self, station: bytes, peer: Peer) -> None:
        if station in self._stations or self._learned.get(station) is peer or station[0] & 1:
            return
        self._learned.pop(station, None)
        if len(self._learned) == MAX_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._learned[station] = peer

    def ordered(self) -> tuple[list[Peer], Any]:
        """All peers, and for the C the list that it finds them in: address << 16 | port, ascending."""
        if self._order is None:
            self._order = [self._peers[key] for key in sorted(self._peers)]
            keys = np.array([peer.address << 16 | peer.port for peer in self._order], np.uint64)
            self._keys = ffi.from_buffer("uint64_t[]", keys)
        return self._order, self._keys

    def clear(self) -> None:
        self._peers.clear()
        self._stations.clear()
        self._learned.clear()
        self._order = None
