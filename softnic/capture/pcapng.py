"""Builds the pcapng blocks that softnic writes (draft-ietf-opsawg-pcapng-02); packets are native/nic/capture_ring.c's.

Blocks are little-endian. A file is a section header, one interface description per vantage point, then packets and, at
the end, statistics. Times are nanoseconds since 1970 (if_tsresol 9), so that wall and virtual clocks are written alike.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION = 1
OBSOLETE_PACKET = 2
SIMPLE_PACKET = 3
INTERFACE_STATISTICS = 5
ENHANCED_PACKET = 6

BYTE_ORDER_MAGIC = 0x1A2B3C4D
LINKTYPE_ETHERNET = 1

MAX_SNAPLEN = 1 << 18
"""The snaplen of an interface that keeps all bytes; Wireshark's limit."""

END_OF_OPTIONS = 0
IF_NAME = 2
IF_DESCRIPTION = 3
IF_IPV4_ADDRESS = 4
IF_MAC_ADDRESS = 6
IF_TSRESOL = 9
IF_TSOFFSET = 14
EPB_FLAGS = 2
EPB_PACKETID = 5
ISB_STARTTIME = 2
ISB_ENDTIME = 3
ISB_IFRECV = 4
ISB_IFDROP = 5
SHB_OS = 3
SHB_USERAPPL = 4


class Direction(IntEnum):
    """Direction of a packet at its interface: the two low bits of epb_flags."""

    UNKNOWN = 0
    INBOUND = 1
    OUTBOUND = 2


_WORD = struct.Struct("<I")
_BLOCK = struct.Struct("<II")
_OPTION = struct.Struct("<HH")
_PADDING = (b"", bytes(3), bytes(2), bytes(1))


def _option(code: int, value: bytes) -> bytes:
    return _OPTION.pack(code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes, options: Iterable[tuple[int, bytes]]) -> bytes:
    coded = b"".join(_option(code, value) for code, value in options if value)
    if coded:
        coded += _option(END_OF_OPTIONS, b"")
    length = 12 + len(body) + len(coded)
    return b"".join((_BLOCK.pack(kind, length), body, coded, _WORD.pack(length)))


def _halves(value: int) -> bytes:
    """Return a 64-bit time as pcapng stores it: the high word first, in either byte order."""
    return _BLOCK.pack(value >> 32 & 0xFFFFFFFF, value & 0xFFFFFFFF)


def section_header(application: str, system: str = "") -> bytes:
    """Return the block at the start of a file."""
    body = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
    return _block(SECTION_HEADER, body, [(SHB_OS, system.encode()), (SHB_USERAPPL, application.encode())])


def interface_description(
    name: str, description: str = "", *, ip: int | None = None, mac: bytes = b"", snaplen: int = 0
) -> bytes:
    """Return the description of the next interface. `snaplen` 0: packets are not truncated."""
    options = [
        (IF_NAME, name.encode()),
        (IF_DESCRIPTION, description.encode()),
        (IF_IPV4_ADDRESS, b"" if ip is None else ip.to_bytes(4, "big") + b"\xff" * 4),
        (IF_MAC_ADDRESS, mac),
        (IF_TSRESOL, b"\x09"),
    ]
    return _block(INTERFACE_DESCRIPTION, struct.pack("<HHI", LINKTYPE_ETHERNET, 0, snaplen or MAX_SNAPLEN), options)


@dataclass(frozen=True, slots=True)
class InterfaceStatistics:
    """The packets that an interface saw from start to end, and how many of them the capture dropped."""

    interface: int
    start_ns: int
    end_ns: int
    received: int
    dropped: int

    def plus(self, other: InterfaceStatistics) -> InterfaceStatistics:
        """Return the sum with another part of the same interface."""
        start_ns, end_ns = min(self.start_ns, other.start_ns), max(self.end_ns, other.end_ns)
        received, dropped = self.received + other.received, self.dropped + other.dropped
        return InterfaceStatistics(self.interface, start_ns, end_ns, received, dropped)

    def block(self) -> bytes:
        """Return it as an Interface Statistics Block."""
        options = [
            (ISB_STARTTIME, _halves(self.start_ns)),
            (ISB_ENDTIME, _halves(self.end_ns)),
            (ISB_IFRECV, self.received.to_bytes(8, "little")),
            (ISB_IFDROP, self.dropped.to_bytes(8, "little")),
        ]
        return _block(INTERFACE_STATISTICS, _WORD.pack(self.interface) + _halves(self.end_ns), options)


def whole_blocks(blocks: bytes | memoryview, size: int) -> int:
    """Return how many of the first `size` bytes are complete blocks of this module."""
    at = 0
    while at < size:
        length: int = _BLOCK.unpack_from(blocks, at)[1]
        if at + length > size:
            break
        at += length
    return at


def statistics_of(block: bytes | memoryview) -> InterfaceStatistics | None:
    """Return the statistics of a block that `InterfaceStatistics` made; None for another block."""
    if len(block) != _STATISTICS_BYTES:
        return None
    interface, start_high, start_low, end_high, end_low, received, dropped = _STATISTICS.unpack(block)
    start_ns, end_ns = start_high << 32 | start_low, end_high << 32 | end_low
    return InterfaceStatistics(interface, start_ns, end_ns, received, dropped)


_STATISTICS = struct.Struct("<8xI8x4x2I4x2I4xQ4xQ8x")
_STATISTICS_BYTES = len(InterfaceStatistics(0, 0, 0, 0, 0).block())
assert _STATISTICS.size == _STATISTICS_BYTES
