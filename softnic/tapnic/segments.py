"""Parses the headers of a kernel's packet into a Segment, for SYN negotiation and captures."""

from __future__ import annotations

from struct import Struct

from softnic.packet.headers import HEADER_BYTES, parse_options, unpack_sacks
from softnic.packet.segment import Flags, Segment

_TOS, _FLAGS = 15, 47
_NUMBERS = Struct("!26xIIHHII")
_WINDOW = Struct("!48xH")
_STAMPS = Struct("!II")
_END, _NOP, _SACK, _TIMESTAMPS = 0, 1, 5, 8


def segment_of(header: bytearray, payload: memoryview) -> Segment:
    """Return the segment behind headers of Ethernet, IPv4 without options, and TCP."""
    src, dst, sport, dport, seq, ack = _NUMBERS.unpack_from(header)
    flags = header[_FLAGS]
    segment = Segment(src, dst, sport, dport, seq, ack, flags, _WINDOW.unpack_from(header)[0], header[_TOS])
    segment.payload = payload
    options = bytes(header[HEADER_BYTES:])
    if flags & Flags.SYN:
        segment.options = parse_options(options)
    _read_options(options, segment)
    return segment


def _read_options(options: bytes, segment: Segment) -> None:
    """Parse timestamps and SACK blocks; stops at the first malformed option, as raw sockets may send any."""
    at = 0
    while at < len(options) and options[at] != _END:
        if options[at] == _NOP:
            at += 1
            continue
        if at + 1 == len(options) or not 2 <= options[at + 1] <= len(options) - at:
            return
        kind, length = options[at], options[at + 1]
        if (kind, length) == (_TIMESTAMPS, 10):
            segment.timestamps = _STAMPS.unpack_from(options, at + 2)
        elif kind == _SACK and length % 8 == 2:
            segment.sacks = unpack_sacks(options[at + 2 : at + length])
        at += length
