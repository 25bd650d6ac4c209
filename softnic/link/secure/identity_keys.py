"""The keys that two nodes share because each knows the other's public key: handshake version 2.

The pattern is KK of the Noise Protocol Framework (revision 34, section 7.5) with a pre-shared key: secrets of all four
pairs of a static key or a fresh share with one of the other side. Shares cross as in version 1 (handshake.py), so that
either side may begin. docs/FORMAT.md, "Sealed datagrams", has each step.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from softnic.link.secure import identity_hello
from softnic.link.secure.hello import SecureHello, is_authentic
from softnic.link.secure.keys import KEY_BYTES, FrameKeys, agree, expand, extract, frame_keys, public_share

_SALT = b"softnic sealed datagrams 2"
_VERSION = bytes([identity_hello.VERSION])
NO_KEY = bytes(KEY_BYTES)
"""Stands for the network's key where none is set."""


@dataclass(frozen=True, slots=True)
class NodePair:
    """Two nodes of a network, seen from the one whose MAC is `own`."""

    vni: int
    own: bytes
    other: bytes


class IdentityKeys:
    """The keys of one generation of each of two nodes.

    Parameters
    ----------
    network_key : bytes
        The network's key of KEY_BYTES bytes, or NO_KEY.
    nodes : NodePair
        The two nodes.
    private : bytes
        Private key of this node.
    public : bytes
        Public key of the peer.

    Raises
    ------
    ValueError
        If the public key is of small order.
    """

    kind: int = identity_hello.KIND

    def __init__(self, network_key: bytes, nodes: NodePair, private: bytes, public: bytes) -> None:
        self._nodes, self._private, self.theirs = nodes, private, public
        self.ours = public_share(private)
        self._network = nodes.vni.to_bytes(4, "big")
        self._secret = extract(extract(_SALT, network_key), agree(private, public))
        self._out = self._network + nodes.own + nodes.other + self.ours + public
        self._back = self._network + nodes.other + nodes.own + public + self.ours
        self.hello_out = expand(self._secret, b"hello" + _VERSION + self._out, KEY_BYTES)
        """Authenticates the hellos that this node sends."""
        self.hello_in = expand(self._secret, b"hello" + _VERSION + self._back, KEY_BYTES)
        self._hint_out, self.hint_in = _hint(self.ours, public), _hint(public, self.ours)
        self.name = self.ours + public

    def agree(self, private: bytes, ours: bytes, theirs: bytes) -> tuple[FrameKeys, FrameKeys]:
        """Return the keys for outgoing and incoming frames of a session.

        Parameters
        ----------
        private, ours : bytes
            The private and the public half of this node's share.
        theirs : bytes
            The peer's share.

        Raises
        ------
        ValueError
            If the peer's share is of small order.
        """
        mixed = [agree(private, self.theirs), agree(self._private, theirs)]
        if self._nodes.own > self._nodes.other:
            mixed.reverse()
        secret = extract(self._secret, agree(private, theirs))
        for each in mixed:
            secret = extract(secret, each)
        out, back = self._out + ours + theirs, self._back + theirs + ours
        return frame_keys(secret, _VERSION + out), frame_keys(secret, _VERSION + back)

    def pack(self, hello: SecureHello) -> bytes:
        """Return the datagram of a hello to the peer."""
        return identity_hello.pack(hello, self._nodes.vni, self._nodes.own, self._hint_out, self.hello_out)

    def peek(self, datagram: bytes) -> SecureHello:
        """Return the fields of a hello of the peer unchecked."""
        return identity_hello.peek(datagram, self.name)

    def authenticates(self, datagram: bytes) -> bool:
        """Return whether a hello was made under these keys by the peer."""
        return identity_hello.hint_of(datagram) == self.hint_in and is_authentic(
            datagram, identity_hello.LENGTH, self.hello_in
        )

    def parse(self, datagram: bytes) -> SecureHello:
        """Check and parse a hello of the peer. Raises HelloError."""
        return identity_hello.parse(datagram, self._nodes.vni, self._nodes.other, self.hello_in, self.name)


def _hint(sender: bytes, receiver: bytes) -> int:
    return hashlib.sha256(sender + receiver).digest()[0]
