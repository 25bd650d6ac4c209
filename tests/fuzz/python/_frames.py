"""Frames whose lengths and checksums are right, whatever else is in them."""

from __future__ import annotations

from softnic._native import ffi, lib
from tests.nic.harness import checksum

_ETHERNET = 14
_TCP = 6


def _sum(data: bytes, initial: int = 0) -> int:
    return int(lib.sn_checksum(ffi.from_buffer(data), len(data), initial))


def repaired(frame: bytes) -> bytes:
    """An IPv4 frame with its length, its checksum and that of TCP or ICMP made right; others as they are."""
    if len(frame) < _ETHERNET + 20 or frame[12:14] != b"\x08\x00":
        return frame
    ip = bytearray(frame[_ETHERNET:])
    size = 4 * (ip[0] & 15)
    if size < 20 or size > len(ip):
        return frame
    ip[2:4] = len(ip).to_bytes(2, "big")
    ip[10:12] = bytes(2)
    ip[10:12] = _sum(bytes(ip[:size])).to_bytes(2, "big")
    inner = ip[size:]
    if ip[9] == _TCP and len(inner) >= 20:
        inner[16:18] = bytes(2)
        pseudo = checksum(bytes(ip[12:20]) + bytes([0, _TCP]) + len(inner).to_bytes(2, "big")) ^ 0xFFFF
        inner[16:18] = _sum(bytes(inner), pseudo).to_bytes(2, "big")
    elif ip[9] == 1 and len(inner) >= 8:
        inner[2:4] = bytes(2)
        inner[2:4] = _sum(bytes(inner)).to_bytes(2, "big")
    return frame[:_ETHERNET] + bytes(ip[:size]) + bytes(inner)
