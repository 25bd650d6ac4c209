"""Initial sequence numbers (RFC 6528): a 4 us clock plus a keyed hash of the connection's addresses and ports."""

from __future__ import annotations

import hashlib
import struct

_TUPLE = struct.Struct("!IHIH")


def initial_sequence(secret: bytes, local: tuple[int, int], peer: tuple[int, int], now: float) -> int:
    """ISN = M + F(localip, localport, remoteip, remoteport, secretkey)."""
    hashed = hashlib.blake2s(_TUPLE.pack(*local, *peer), key=secret, digest_size=4).digest()
    return (int(now * 250_000) + int.from_bytes(hashed, "big")) & 0xFFFFFFFF
