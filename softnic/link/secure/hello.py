"""The datagram by which two NICs agree on a session by the network's key: 88 bytes, all fields big-endian.

| offset | size | field |
|---|---|---|
| 0 | 1 | 0x10 |
| 1 | 3 | VNI |
| 4 | 1 | flags: bit 0 SETTLED (the sender has the session of these two shares), bit 1 ASKS (for an answer), |
| | | bit 2 LANES (counters of a session begin with lanes) |
| 5 | 3 | 0 |
| 8 | 32 | the sender's share: an X25519 public key |
| 40 | 32 | the receiver's share that this answers; zeros: none is known |
| 72 | 16 | the first 16 bytes of HMAC-SHA256 over what is before, under the pair's key for this direction |
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from softnic._native import lib

KIND: int = lib.SN_SECURE_HELLO
NO_SHARE = bytes(32)
LENGTH: int = lib.SN_HELLO_LENGTH
_MAC_BYTES: int = lib.SN_HELLO_MAC
_FIELDS = struct.Struct("!II32s32s")
_SETTLED, _ASKS, _LANES = 1, 2, 4


class HelloError(ValueError):
    """The bytes are not a hello, or one of another network or key."""


class SecureHello(NamedTuple):
    share: bytes
    answers: bytes = NO_SHARE
    settled: bool = False
    asks: bool = False
    lanes: bool = False
    pair: bytes = b""
    """Name of the keys of the two nodes by which it is said; empty: the network's key."""

    @property
    def flags(self) -> int:
        """The flags of its fields, for both kinds of hellos."""
        return self.settled * _SETTLED | self.asks * _ASKS | self.lanes * _LANES

    def pack(self, vni: int, key: bytes) -> bytes:
        fields = _FIELDS.pack(KIND << 24 | vni, self.flags << 24, self.share, self.answers)
        return fields + mac_of(fields, key)


def mac_of(fields: bytes, key: bytes) -> bytes:
    """Return what stands behind the fields of a hello."""
    return hmac.digest(key, fields, hashlib.sha256)[:_MAC_BYTES]


def is_authentic(datagram: bytes, length: int, key: bytes) -> bool:
    """Return whether a hello has this length, and the MAC of this key, in constant time."""
    mac = mac_of(datagram[:-_MAC_BYTES], key)
    return len(datagram) == length and hmac.compare_digest(mac, datagram[-_MAC_BYTES:])


def check_mac(datagram: bytes, length: int, key: bytes) -> None:
    """Raise HelloError for a hello of another length, or made under another key."""
    if len(datagram) != length:
        raise HelloError(f"a hello of {len(datagram)} bytes")
    if not is_authentic(datagram, length, key):
        raise HelloError("a hello made under another key")


def peek(datagram: bytes) -> SecureHello:
    """Return the fields of a datagram of LENGTH bytes unchecked, to decide whether `parse` is worth its cost."""
    return hello_of(datagram[4], datagram[8:40], datagram[40:72])


def hello_of(flags: int, share: bytes, answers: bytes, pair: bytes = b"") -> SecureHello:
    """Return a hello with these flags."""
    return SecureHello(share, answers, bool(flags & _SETTLED), bool(flags & _ASKS), bool(flags & _LANES), pair)


def has_meaning(flags: int, reserved: int, share: bytes) -> bool:
    """Return whether the fields of a hello are legal ones."""
    return not (reserved or flags & ~(_SETTLED | _ASKS | _LANES) or share == NO_SHARE)


def parse(datagram: bytes, vni: int, key: bytes) -> SecureHello:
    """Check and parse a hello. Raises HelloError.

    sn_decrypt has dropped hellos under other keys before, to make floods of them cheap; the check that counts is this
    one.
    """
    check_mac(datagram, LENGTH, key)
    first, second, share, answers = _FIELDS.unpack_from(datagram)
    flags = second >> 24
    if first != KIND << 24 | vni:
        raise HelloError(f"a hello of network {first & 0xFFFFFF}, or none")
    if not has_meaning(flags, second & 0xFFFFFF, share):
        raise HelloError("a hello with fields that have no meaning")
    return hello_of(flags, share, answers)
