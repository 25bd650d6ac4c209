"""The datagram by which two NICs that know each other's public keys agree on a session: 96 bytes, big-endian.

| offset | size | field |
|---|---|---|
| 0 | 1 | 0x12 |
| 1 | 3 | VNI |
| 4 | 1 | version of the handshake: 2 |
| 5 | 1 | flags, as in hello.py |
| 6 | 6 | the sender's MAC, by which a hello from an unknown address is attributed |
| 12 | 1 | hint: the first byte of SHA-256 over the sender's and the receiver's public key, in this order |
| 13 | 3 | 0 |
| 16 | 32 | the sender's share |
| 48 | 32 | the receiver's share that this answers; zeros: none is known |
| 80 | 16 | the first 16 bytes of HMAC-SHA256 over what is before, under the pair's key for this direction |
"""

from __future__ import annotations

import struct

from softnic._native import lib
from softnic.link.secure.hello import HelloError, SecureHello, check_mac, has_meaning, hello_of, mac_of

KIND: int = lib.SN_IDENTITY_HELLO
LENGTH: int = lib.SN_IDENTITY_HELLO_LENGTH
VERSION = 2
_HINT: int = lib.SN_HELLO_HINT
_FIELDS = struct.Struct("!IBB6sI32s32s")


def pack(hello: SecureHello, vni: int, sender: bytes, hint: int, key: bytes) -> bytes:
    """Return the datagram of a hello of the node with the MAC `sender`, with a MAC under `key`."""
    first = (KIND << 24 | vni, VERSION, hello.flags, sender, hint << 24)
    fields = _FIELDS.pack(*first, hello.share, hello.answers)
    return fields + mac_of(fields, key)


def sender_of(datagram: bytes) -> bytes:
    """Return the MAC address that a datagram of LENGTH bytes names as its sender's, unchecked."""
    return datagram[6:12]


def hint_of(datagram: bytes) -> int:
    """Return the hint of the keys by which a datagram of LENGTH bytes was made, unchecked."""
    return datagram[_HINT]


def peek(datagram: bytes, pair: bytes) -> SecureHello:
    """Return the fields of a datagram of LENGTH bytes unchecked, to decide whether `parse` is worth its cost."""
    return hello_of(datagram[5], datagram[16:48], datagram[48:80], pair)


def parse(datagram: bytes, vni: int, sender: bytes, key: bytes, pair: bytes) -> SecureHello:
    """Check and parse a hello of the node with the MAC `sender`, by the keys of this name. Raises HelloError."""
    check_mac(datagram, LENGTH, key)
    first, version, flags, mac, last, share, answers = _FIELDS.unpack_from(datagram)
    if first != KIND << 24 | vni or mac != sender:
        raise HelloError(f"a hello of network {first & 0xFFFFFF}, or of another node")
    if version != VERSION or not has_meaning(flags, last & 0xFFFFFF, share):
        raise HelloError("a hello with fields that have no meaning")
    return hello_of(flags, share, answers, pair)
