"""Frames whose lengths and checksums are right, whatever else is in them."""

from __future__ import annotations

import struct

from softnic._native import ffi, lib

_ETHERNET = 14
_TCP, _ICMP = 6, 1
_ADDRESSES = struct.Struct("!4H")


def repaired(frame: bytes) -> bytes:
    """An IPv4 frame with its length, its checksum and that of TCP or ICMP made right; others as they are."""
    if len(frame) < _ETHERNET + 20 or frame[12:14] != b"\x08\x00":
        return frame
    size = 4 * (frame[_ETHERNET] & 15)
    inner = _ETHERNET + size
    room = len(frame) - inner
    if size < 20 or room < 0:
        return frame
    fixed = bytearray(frame)
    fixed[16:18] = (len(frame) - _ETHERNET).to_bytes(2, "big")
    place = ffi.from_buffer("uint8_t[]", fixed)

    def mend(at: int, start: int, length: int, before: int) -> None:
        fixed[at : at + 2] = bytes(2)
        fixed[at : at + 2] = lib.sn_checksum(place + start, length, before).to_bytes(2, "big")

    mend(24, _ETHERNET, size, 0)
    if fixed[23] == _TCP and room >= 20:
        mend(inner + 16, inner, room, sum(_ADDRESSES.unpack_from(fixed, 26)) + _TCP + room)
    elif fixed[23] == _ICMP and room >= 8:
        mend(inner + 2, inner, room, 0)
    return bytes(fixed)
