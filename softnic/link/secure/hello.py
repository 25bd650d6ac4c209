"""The datagram by which two NICs agree on a session: 88 bytes, all fields big-endian.

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
_SIGNED: int = LENGTH - lib.SN_HELLO_MAC
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

    def pack(self, vni: int, key: bytes) -> bytes:
        flags = self.settled * _SETTLED | self.asks * _ASKS | self.lanes * _LANES
        fields = _FIELDS.pack(KIND << 24 | vni, flags << 24, self.share, self.answers)
        return fields + hmac.digest(key, fields, hashlib.sha256)[: LENGTH - _SIGNED]


def peek(datagram: bytes) -> SecureHello:
    """Return the fields of a datagram of LENGTH bytes unchecked, to decide whether `parse` is worth its cost."""
    return _hello(datagram[4], datagram[8:40], datagram[40:72])


def _hello(flags: int, share: bytes, answers: bytes) -> SecureHello:
    return SecureHello(share, answers, bool(flags & _SETTLED), bool(flags & _ASKS), bool(flags & _LANES))


def parse(datagram: bytes, vni: int, key: bytes) -> SecureHello:
    """Check and parse a hello. Raises HelloError.

    sn_decrypt has dropped hellos under other keys before, to make floods of them cheap; the check that counts is this
    one.
    """
    if len(datagram) != LENGTH:
        raise HelloError(f"a hello of {len(datagram)} bytes")
    expected = hmac.digest(key, datagram[:_SIGNED], hashlib.sha256)[: LENGTH - _SIGNED]
    if not hmac.compare_digest(expected, datagram[_SIGNED:]):
        raise HelloError("a hello made under another key")
    first, second, share, answers = _FIELDS.unpack_from(datagram)
    flags = second >> 24
    if first != KIND << 24 | vni:
        raise HelloError(f"a hello of network {first & 0xFFFFFF}, or none")
    if second & 0xFFFFFF or flags & ~(_SETTLED | _ASKS | _LANES) or share == NO_SHARE:
        raise HelloError("a hello with fields that have no meaning")
    return _hello(flags, share, answers)
