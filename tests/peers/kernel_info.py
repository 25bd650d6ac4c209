"""The kernel's statistics of a TCP connection: part of struct tcp_info (linux/tcp.h)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_OPTIONS = {"timestamps": 1, "sack": 2, "window scaling": 4}
_LAYOUT = struct.Struct("=8B24I4Q6I4Q2I2Q3I")


@dataclass(frozen=True)
class KernelInfo:
    options: frozenset[str]
    """Negotiated ones, of those that _OPTIONS names."""
    mss: int
    """Of what it sends."""
    retransmitted: int
    """Segments that it sent again."""
    out_of_order: int
    """Segments that came before those that they follow."""

    @classmethod
    def of(cls, connection: socket.socket) -> KernelInfo:
        raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        values = _LAYOUT.unpack(raw[: _LAYOUT.size])
        return cls(
            options=frozenset(name for name, bit in _OPTIONS.items() if values[5] & bit),
            mss=values[8 + 2],
            retransmitted=values[8 + 23],
            out_of_order=values[52],
        )
