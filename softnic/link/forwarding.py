"""The forwarding table of a link: peers by address, and the peer behind each MAC, as in a learning switch.

A configured MAC stays at its configured address; any other is where it was last heard. An address is a peer's as long
as a configured MAC is there: one that is configured anew elsewhere moves its peer.

A peer may have several addresses, of IPv4 and IPv6: those of its name. Frames from any of them are its own. Until the
first is heard, frames to it go to all of them, which are few: nothing precedes the answer to an ARP request or a hello.
Then it is reached where it was heard last.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from softnic import underlay
from softnic._native import ffi
from softnic.link.endpoint import packed
from softnic.link.reach.candidates import Reach
from softnic.underlay import IPV4, Address

MAX_LEARNED = 4096
"""MACs learned beside the configured ones; the oldest is evicted first."""
MOVE_S = 1.0
"""A peer that is heard from two of its addresses by turns moves no more often."""


@dataclass(slots=True, eq=False)
class LinkPeer:
    """A UDP endpoint that frames are received from and sent to."""

    address: Address
    """Where it is reached: an IP address and port."""
    mac: bytes
    """The first MAC configured at this endpoint: that of its node."""
    endpoint: Any
    """The address, as an array of one `sn_endpoint`."""
    unheard: dict[Address, Any] = field(default_factory=dict)
    """Its other addresses, and their endpoints, until one of all is heard."""
    moves_at: float = -math.inf
    """When it may move to another one of its addresses."""
    followed: Address | None = None
    """The address that it was followed to, beside those that are configured."""
    reach: Reach | None = None
    """The candidates among which its address is chosen; None: it has those of its configuration."""
    since: float | None = None
    """When it was first heard at `address`; None: it is there by configuration."""
    moves: int = 0
    """How often it has moved to another address."""
    gso: bool = True
    """Whether the path to it takes datagrams that the kernel segments (UDP GSO)."""

    def disable_gso(self) -> None:
        """Send single datagrams from now on: the path refuses GSO."""
        self.gso = False

    def __str__(self) -> str:
        return underlay.text(self.address)


class PeerPath(NamedTuple):
    """How a peer is reached."""

    address: Address
    relayed: bool
    """A relay is at the address."""
    since: float | None
    """When it was first heard there, by the clock of the link; None: it is there by configuration."""
    moves: int
    """How often it has moved."""


class ForwardingTable:
    """The table of one link, whose socket has this family."""

    def __init__(self, family: int = IPV4) -> None:
        self._family = family
        self._peers: dict[Address, LinkPeer] = {}
        self._by_mac: dict[bytes, LinkPeer] = {}
        self._learned: dict[bytes, LinkPeer] = {}
        self._sorted: list[LinkPeer] | None = None
        self._keys: Any = None
        self._sorted_addresses: list[Address] = []
        self._packed: dict[Address, bytes] = {}
        """The addresses as C has them."""
        self.changes = 0
        """How often the way to a MAC address may have changed."""

    def __len__(self) -> int:
        """Return the number of configured MACs."""
        return len(self._by_mac)

    @property
    def peers(self) -> Collection[LinkPeer]:
        return dict.fromkeys(self._peers.values())

    @property
    def addresses(self) -> Collection[Address]:
        """Where peers are heard from."""
        return self._peers.keys()

    @property
    def reached(self) -> dict[bytes, PeerPath]:
        """How each configured MAC is reached."""
        return {
            mac: PeerPath(peer.address, bool(peer.reach and peer.reach.relays(peer.address)), peer.since, peer.moves)
            for mac, peer in self._by_mac.items()
        }

    def configured(self, mac: bytes) -> LinkPeer | None:
        """Return the peer at which a MAC is configured."""
        return self._by_mac.get(mac)

    def peer_at(self, address: Address) -> LinkPeer | None:
        return self._peers.get(address)

    def add(self, mac: bytes, addresses: Sequence[Address]) -> LinkPeer | None:
        """Configure a MAC, which is reached at the first of its IP addresses. Returns the peer that this removes, if
        any."""
        before = self._by_mac.pop(mac, None)
        if before is not None and self._addresses_of(before) - {before.followed} != set(addresses):
            self._remove_unused(before)
        peer = self._peers.get(addresses[0])
        if peer is None:
            own, *others = addresses
            peer = LinkPeer(own, mac, self._endpoint(own), {other: self._endpoint(other) for other in others})
        for address in addresses:
            self._peers.setdefault(address, peer)
        self.changes += 1
        self._by_mac[mac] = peer
        self._learned.pop(mac, None)
        self._sorted = None
        return None if before is None or before in self._peers.values() else before

    def _addresses_of(self, peer: LinkPeer) -> set[Address]:
        return {address for address, other in self._peers.items() if other is peer}

    def _remove_unused(self, peer: LinkPeer) -> None:
        """Remove a peer at which no configured MAC is."""
        if all(other is not peer for other in self._by_mac.values()):
            self._peers = {address: other for address, other in self._peers.items() if other is not peer}
            self._learned = {mac: other for mac, other in self._learned.items() if other is not peer}

    def _endpoint(self, address: Address) -> Any:
        return ffi.from_buffer("sn_endpoint[]", packed(address, self._family))

    def hear(self, peer: LinkPeer, place: int, now: float) -> None:
        """Note that a peer was heard from the address at a place of `sorted_peers`."""
        address = self._sorted_addresses[place]
        if peer.unheard or (peer.address != address and now >= peer.moves_at):
            self.reach_at(peer, address, now)

    def reach_at(self, peer: LinkPeer, address: Address, now: float) -> None:
        """Reach a peer at one of its addresses from now on."""
        if peer.address != address:
            was_there = peer.since is not None or not peer.unheard
            peer.moves += was_there
            peer.gso = True  # of another path
        peer.since = now
        peer.address, peer.endpoint, peer.unheard = address, self._endpoint(address), {}
        peer.moves_at = now + MOVE_S
        self.changes += 1

    def follow(self, peer: LinkPeer, address: Address, now: float) -> bool:
        """Reach a peer at an address that nobody has configured for it. It leaves the one that it was followed to
        before, and keeps its others. Another peer's address is taken from that one, unless it is its only one: then
        nothing changes, and the result is False."""
        other = self._peers.get(address)
        if other is not peer:
            if other is not None and not self._take_from(other, address):
                return False
            self._leave_followed(peer)
            self._peers[address] = peer
            peer.followed = address
            self._sorted = None
        self.reach_at(peer, address, now)
        return True

    def _take_from(self, peer: LinkPeer, address: Address) -> bool:
        """Take an address from a peer that has others, at which it is sought if it was reached there."""
        left = self._addresses_of(peer) - {address}
        if not left:
            return False
        del self._peers[address]
        peer.unheard.pop(address, None)
        if peer.address == address:
            peer.address = min(left)
            peer.endpoint = self._endpoint(peer.address)
            self.seek(peer)
        return True

    def _leave_followed(self, peer: LinkPeer) -> None:
        before = peer.followed
        is_offered = peer.reach is not None and before in peer.reach.candidates
        if before is not None and self._peers.get(before) is peer and not is_offered:
            del self._peers[before]

    def offer(self, peer: LinkPeer, reach: Reach) -> None:
        """Let a peer have the addresses of these candidates, beside the one where it is reached. Those of other peers
        stay theirs."""
        peer.reach = reach
        kept = {*reach.candidates, peer.address, peer.followed}
        for address in self._addresses_of(peer) - kept:
            del self._peers[address]
        for address in reach.candidates:
            self._peers.setdefault(address, peer)
        self._sorted = None
        if peer.since is None:
            self.seek(peer)
        self.changes += 1

    def seek(self, peer: LinkPeer) -> None:
        """Send to all addresses of a peer until one is heard."""
        others = self._addresses_of(peer) - {peer.address}
        peer.unheard = {address: self._endpoint(address) for address in others}
        self.changes += 1

    def sorted_addresses(self) -> list[Address]:
        """Return the addresses of `sorted_peers`."""
        self.sorted_peers()
        return self._sorted_addresses

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
        """Return the peers by ascending address, and the addresses as an array for C."""
        if self._sorted is None:
            before = self._packed
            self._packed = {address: before.get(address) or packed(address, self._family) for address in self._peers}
            keys = sorted((key, address) for address, key in self._packed.items())
            self._sorted = [self._peers[address] for _, address in keys]
            self._sorted_addresses = [address for _, address in keys]
            self._keys = ffi.from_buffer("sn_endpoint[]", b"".join(key for key, _ in keys))
        return self._sorted, self._keys

    def sender_macs(self) -> list[int]:
        """Return the MAC configured at each of these addresses; 0 where a peer is not reached, which it may move to."""
        pairs = zip(self.sorted_peers()[0], self._sorted_addresses, strict=True)
        return [
            int.from_bytes(peer.mac) if peer.address == address and not peer.unheard else 0 for peer, address in pairs
        ]

    def place(self, peer: LinkPeer) -> int:
        """Return the place, in these lists, of the address where a peer is reached."""
        self.sorted_peers()
        return self._sorted_addresses.index(peer.address)

    def clear(self) -> None:
        self._peers.clear()
        self._by_mac.clear()
        self._learned.clear()
        self._sorted = None
