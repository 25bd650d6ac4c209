"""A kernel's TAP device as the NIC sees it: reads the packets that the kernel sends and writes those it receives.

Super-segments of up to 64 KiB cross it both ways, each with virtio-net's header (native/nic/tap.h), so that the kernel
neither segments nor computes checksums. Consecutive segments of a flow are joined and of consecutive bare ACKs only the
last is kept, because Python's cost per packet exceeds that of the bytes. Any file descriptor with packet boundaries
works, also one of a pair of Unix sockets; `softnic.tapnic.namespaces` opens real devices.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softnic._native import ffi, lib

BUFFER_BYTES = 16 * lib.SN_TAP_PACKET
"""Buffer of one read: a few super-segments, or many small packets."""
MAX_PACKETS = 256
_PACKET = struct.Struct("=8I5H3B3x")
TCP: int = lib.SN_KIND_TCP
OTHER: int = lib.SN_KIND_OTHER
CData = Any


class TapPacket(NamedTuple):
    """A packet sent by the kernel, or several joined: an `sn_tap_packet` (native/nic/tap.h)."""

    header: int
    offset: int
    length: int
    packets: int
    src: int
    dst: int
    seq: int
    ack: int
    sport: int
    dport: int
    header_length: int
    segment: int
    window: int
    kind: int
    flags: int
    tos: int


@dataclass(slots=True)
class TapCounters:
    """Packets that cross the device; super-segments count as one."""

    read: int = 0
    written: int = 0
    dropped_write: int = 0
    """Frames that the kernel refused: its device was down, or it had no memory."""


class TapDevice:
    """The NIC's end of a TAP device. Owns the file descriptor, which must be non-blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = np.empty(BUFFER_BYTES, np.uint8)
        self._into = ffi.from_buffer("uint8_t[]", self._buffer)
        self._headers = bytearray(MAX_PACKETS * lib.SN_TAP_SLOT)
        self._headers_into = ffi.from_buffer("uint8_t[]", self._headers)
        self._packets = ffi.new("sn_tap_packet[]", MAX_PACKETS)
        self._more = ffi.new("int *")
        self._written = ffi.new("uint32_t *")
        self._payload_ref = ffi.new("sn_payload_ref *")
        self.readable = True
        """Whether there may be something to read. An owner that waits for `fileno()` sets it; a read that empties the
        device resets it."""
        self.counted = TapCounters()

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> list[TapPacket]:
        """Return the packets that the kernel has sent, up to one buffer; none if the device is down or gone."""
        if not self.readable:
            return []
        into = (self._headers_into, self._into, BUFFER_BYTES, self._packets, MAX_PACKETS, self._more)
        found = lib.sn_tap_read(self._descriptor, *into)
        self.readable = bool(self._more[0])
        if found <= 0:
            return []
        packets = list(map(TapPacket._make, _PACKET.iter_unpack(ffi.buffer(self._packets, found * _PACKET.size))))
        self.counted.read += sum(packet.packets for packet in packets)
        return packets

    def header(self, packet: TapPacket) -> bytearray:
        """Return a copy of the headers of a TCP segment of the last read."""
        return self._headers[packet.header : packet.header + packet.header_length]

    def payload(self, packet: TapPacket) -> memoryview:
        """Return its payload or, if it is not TCP, the whole frame. Valid until the next `read`."""
        return self._buffer.data[packet.offset : packet.offset + packet.length]

    def write_run(self, header: bytearray | bytes, data: CData, payloads: CData, count: int, segment: int = 0) -> None:
        """Pass TCP payloads up to the kernel behind one header (`sn_tap_write`). Frames that the kernel refuses are
        counted.

        Parameters
        ----------
        header : bytes
            Ethernet, IPv4 and TCP headers; their flags are those of the last packet.
        data, payloads, count
            The buffer, and the first of `count` payload references into it.
        segment : int
            Payload bytes per frame that the kernel is told the data came in; 0: as it came.
        """
        ours = ffi.from_buffer("uint8_t[]", header)
        if lib.sn_tap_write(
            self._descriptor, ours, len(header), data, len(data), payloads, count, segment, self._written
        ):
            self.counted.dropped_write += count
        self.counted.written += self._written[0]

    def write_bytes(self, header: bytearray | bytes, payload: memoryview, segment: int) -> None:
        """Pass up one contiguous payload, as `write_run` does."""
        self._payload_ref.offset, self._payload_ref.length = 0, len(payload)
        self.write_run(header, ffi.from_buffer("uint8_t[]", payload), self._payload_ref, 1, segment)

    def write_frame(self, frame: bytes) -> None:
        """Pass up a frame as it is."""
        if lib.sn_tap_write_frame(self._descriptor, frame, len(frame)):
            self.counted.dropped_write += 1
        else:
            self.counted.written += 1

    def close(self) -> None:
        os.close(self._descriptor)
