"""SYN cookies (RFC 4987, section 3.6): half-open connections without state.

A listener remembers a limited number of half-open connections. Further SYNs are answered by a SYN-ACK whose sequence
number encodes what its ACK must acknowledge: a keyed hash of addresses, ports, the peer's number and the time, and
three bits for the MSS. Window scaling and SACK are encoded in the timestamp that the peer echoes (without timestamps
there are none). So a SYN flood occupies no memory, and no peer that answers is shut out.

Limits: such a connection has no NIC option, because the negotiation is not remembered, so its floats are sent
uncompressed; a lost SYN-ACK is not retransmitted; a guess opens a connection once in 2^24 ACKs.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from softnic.packet.segment import Options, Segment
from softnic.tcp import seq

PERIOD_S = 64.0
"""A cookie is valid in the period of its creation and in the next one."""
_SIZES = (536, 776, 1000, 1220, 1360, 1400, 1440, 1460)
"""Encodable MSSs: others are rounded down."""
_FIELDS = struct.Struct("!IHIHI")
_COUNT_BITS = 5
_SCALE_MASK = 0xF
_NO_SCALE = 0xF
_SACK = 0x10
_MARKS = _SCALE_MASK | _SACK
"""The bits of a timestamp that encode options."""
_HASH_MASK = (1 << 24) - 1


class Offer(NamedTuple):
    """Options of a peer's SYN, as far as a cookie encodes them."""

    mss: int
    window_scale: int | None
    sack_permitted: bool

    @property
    def options(self) -> Options:
        return Options(self.mss, self.window_scale, self.sack_permitted)


class SynCookies:
    """`secret` is the node's own key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def number(self, s: Segment, now: float) -> int:
        """Returns the sequence number of the SYN-ACK for a SYN."""
        mss = s.options.mss if s.options is not None and s.options.mss else _SIZES[0]
        index = sum(size <= mss for size in _SIZES[1:])
        return self._cookie(s, s.seq, int(now // PERIOD_S), index)

    def opened(self, s: Segment, now: float) -> Offer | None:
        """Returns the options of the SYN if this ACK acknowledges a cookie; None if not."""
        period = int(now // PERIOD_S)
        cookie, irs = seq.number(s.ack, -1), seq.number(s.seq, -1)
        for made in (period, period - 1):
            if cookie >> (32 - _COUNT_BITS) == made & ((1 << _COUNT_BITS) - 1):
                index = cookie >> 24 & 7
                if cookie == self._cookie(s, irs, made, index):
                    return Offer(_SIZES[index], *_marks_in(s))
        return None

    def _cookie(self, s: Segment, irs: int, period: int, index: int) -> int:
        """The time in the highest five bits, the MSS in three, the hash in 24."""
        fields = _FIELDS.pack(s.src, s.sport, s.dst, s.dport, irs) + period.to_bytes(8, "big", signed=True)
        hashed = hashlib.blake2s(fields + bytes([index]), key=self._secret, digest_size=4, person=b"cookie").digest()
        return (period & 31) << 27 | index << 24 | int.from_bytes(hashed, "big") & _HASH_MASK


def stamp(value: int, s: Segment) -> int:
    """Returns the SYN-ACK's timestamp: not later than `value`, with the SYN's options in its last bits."""
    options = s.options or Options()
    marks = _NO_SCALE if options.window_scale is None else min(options.window_scale, 14)
    marked = value & ~_MARKS | marks | (_SACK if options.sack_permitted else 0)
    return seq.number(marked, -_MARKS - 1 if marked > value else 0)


def _marks_in(s: Segment) -> tuple[int | None, bool]:
    """Returns window scale (None: no scaling) and SACK from the echoed timestamp."""
    if s.timestamps is None:
        return None, False
    scale = s.timestamps[1] & _SCALE_MASK
    return None if scale == _NO_SCALE else scale, bool(s.timestamps[1] & _SACK)
