"""Initial sequence numbers (RFC 6528): a 4 us clock plus a keyed hash of the connection's addresses and ports."""

from __future__ import annotations

import hashlib
import struct

_TUPLE = struct.Struct("!IHIH")


def initial_sequence(secret: bytes, local: tuple[int, int], peer: tuple[int, int], now: float) -> int:
    """ISN = M + F(localip, localport, remoteip, remoteport, secretkey)."""
    hashed = hashlib.blake2s(_TUPLE.pack(*local, *peer), key=secret, digest_size=4).digest()
    return (int(now * 250_000) + int.from_bytes(hashed, "big")) & 0xFFFFFFFF


def timestamp_offset(secret: bytes, local: int, peer: int) -> int:
    """Returns the offset of the timestamp clock, which hides the uptime (RFC 7323, section 5.4).

    The same for all connections between two addresses: a SYN may then follow a connection in TIME-WAIT (RFC 6191).
    """
    hashed = hashlib.blake2s(_TUPLE.pack(local, 0, peer, 0), key=secret, digest_size=4, person=b"stamp").digest()
    return int.from_bytes(hashed, "big")
