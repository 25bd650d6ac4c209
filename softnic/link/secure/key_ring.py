"""Which keys a node uses with which peer.

A peer whose public key is known is talked to by handshake version 2 alone. Any other is talked to by version 1 if the
network has a key and `require_identity` is not set, and else not at all. A revoked key is used with nobody.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping

from softnic.link.secure.identity import NodeIdentity, key_text
from softnic.link.secure.identity_keys import NO_KEY, IdentityKeys, NodePair
from softnic.link.secure.keys import SHARE_BYTES, PairKeys

AnyKeys = PairKeys | IdentityKeys
MAX_REVOKED = 4096
"""Keys that a NIC remembers as revoked."""


class KeyRing:
    """The keys of a node and of its peers.

    Parameters
    ----------
    network_key : bytes
        The network's key; empty: there is none.
    identity : NodeIdentity, optional
        Private keys of the node.
    peer_keys : mapping of bytes to tuple of bytes
        Public keys of peers by MAC, the newest first.
    revoked : collection of bytes
        Public keys that are used no more.
    require_identity : bool
        Talk to no peer without a public key.
    """

    def __init__(
        self,
        network_key: bytes,
        identity: NodeIdentity | None = None,
        *,
        peer_keys: Mapping[bytes, tuple[bytes, ...]] | None = None,
        revoked: Collection[bytes] = (),
        require_identity: bool = False,
    ) -> None:
        self._network_key, self._identity, self._require_identity = network_key, identity, require_identity
        self._peer_keys = dict(peer_keys or {})
        self._revoked = set(revoked)

    @property
    def has_identity(self) -> bool:
        """Whether the node has private keys."""
        return self._identity is not None

    def replace_identity(self, identity: NodeIdentity) -> None:
        """Use these private keys from now on."""
        self._identity = identity

    def set_keys(self, mac: bytes, keys: tuple[bytes, ...]) -> None:
        """Set the public keys of the peer that has a MAC."""
        self._peer_keys[mac] = keys

    def keys_of(self, mac: bytes) -> tuple[bytes, ...]:
        """Return the public keys of a peer that are not revoked, the newest first."""
        return tuple(key for key in self._peer_keys.get(mac, ()) if key not in self._revoked)

    def is_revoked(self, mac: bytes) -> bool:
        """Return whether a key of a peer is revoked."""
        return not self._revoked.isdisjoint(self._peer_keys.get(mac, ()))

    def revoke(self, key: bytes) -> None:
        """Use a public key no more, be it a peer's or the node's own. Raises OSError (ENOBUFS) beyond MAX_REVOKED."""
        if key not in self._revoked and len(self._revoked) >= MAX_REVOKED:
            raise OSError(
                errno.ENOBUFS, f"the NIC remembers {MAX_REVOKED} revoked keys already, and not {key_text(key)}"
            )
        self._revoked.add(key)

    def can_reach(self, mac: bytes) -> bool:
        """Return whether the node has keys with a peer."""
        if mac not in self._peer_keys:
            return bool(self._network_key) and not self._require_identity
        return self._identity is not None and bool(self.keys_of(mac))

    def allows(self, mac: bytes, pair: bytes) -> bool:
        """Return whether sessions with a peer by the keys with this name may go on. Those of a generation of this node
        that was replaced may."""
        if not pair:
            return mac not in self._peer_keys and not self._require_identity
        return pair[:SHARE_BYTES] not in self._revoked and pair[SHARE_BYTES:] in self.keys_of(mac)

    def with_peer(self, vni: int, own: bytes, other: bytes) -> list[AnyKeys]:
        """Return the keys that the node with the MAC `own` has with a peer, those to try first before others."""
        if other not in self._peer_keys:
            if not self._network_key or self._require_identity:
                return []
            return [PairKeys(self._network_key, vni, own, other)]
        if self._identity is None:
            return []
        nodes = NodePair(vni, own, other)
        mine = zip(self._identity.private, self._identity.public, strict=True)
        usable = [private for private, public in mine if public not in self._revoked]
        network_key = self._network_key or NO_KEY
        return [IdentityKeys(network_key, nodes, private, key) for key in self.keys_of(other) for private in usable]
