"""Reads classic pcap files (draft-ietf-opsawg-pcap), of either byte order, in microseconds or nanoseconds.

Such a file has one interface without a name. A short loop walks from record to record; the fields of all records are
then gathered at once.
"""

from __future__ import annotations

import mmap
import struct

import numpy as np

from softnic.capture.capture_file import CaptureError, CaptureFile, Column, Interface

_FORMATS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""By magic: the struct prefix of the byte order, and nanoseconds per unit of a record's fraction of a second."""
_HEADER, _RECORD = 24, 16
_LINK_TYPE = 0x03FFFFFF
"""The bits above are about frame check sequences."""


def is_classic(buffer: bytes | mmap.mmap) -> bool:
    """Return whether a file starts as a classic pcap file."""
    return buffer[:4] in _FORMATS


def parse_classic(buffer: bytes | mmap.mmap) -> CaptureFile:
    """Parse a classic pcap file in memory. Raises CaptureError."""
    order, nanoseconds = _FORMATS[buffer[:4]]
    capture = CaptureFile(np.frombuffer(buffer, dtype=np.uint8))
    if len(buffer) < _HEADER:
        raise CaptureError(0, f"a pcap file header of {len(buffer)} bytes")
    major, minor = struct.unpack_from(order + "HH", buffer, 4)
    snaplen, link_type = struct.unpack_from(order + "II", buffer, 16)
    if major != 2:
        raise CaptureError(4, f"a pcap file of version {major}.{minor}")
    starts = np.array(_walk(buffer, struct.Struct(order + "I")), dtype=np.int64)

    def word(distance: int) -> Column:
        places = [distance + byte for byte in ((3, 2, 1, 0) if order == "<" else (0, 1, 2, 3))]
        value = np.zeros(len(starts), np.int64)
        for place in places:
            value = value << 8 | capture.data[starts + place]
        return value

    capture.interfaces = [Interface("interface 0", "", link_type & _LINK_TYPE, snaplen)]
    capture.interface = np.zeros(len(starts), np.int64)
    capture.time_ns = word(0) * 10**9 + word(4) * nanoseconds
    capture.offset, capture.captured = starts + _RECORD, word(8)
    capture.length = np.maximum(word(12), capture.captured)
    capture.direction, capture.packet_id = np.zeros(len(starts), np.uint8), np.zeros(len(starts), np.uint64)
    return capture


def _walk(buffer: bytes | mmap.mmap, word: struct.Struct) -> list[int]:
    """Return the offsets of the records, all of which are complete."""
    unpack_from, size = word.unpack_from, len(buffer)
    starts: list[int] = []
    at = _HEADER
    while at <= size - _RECORD:
        (captured,) = unpack_from(buffer, at + 8)
        left = size - at - _RECORD
        if captured > left:
            rest = f"{left} left (cut short, or still being written)"
            raise CaptureError(at, f"a packet of {captured} bytes where the file has {rest}")
        starts.append(at)
        at += _RECORD + captured
    if at < size:
        raise CaptureError(at, f"{size - at} bytes too many after the last packet")
    return starts
