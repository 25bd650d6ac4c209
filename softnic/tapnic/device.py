"""A kernel's TAP device, seen from the card's side: what the kernel sends is read here, what it is to receive written.

Super-segments of up to 64 KiB cross it both ways, each with virtio-net's header (native/tap.h), so that the kernel
segments nothing and sums nothing. Those that continue each other become one here, and of bare ACKs that wait together
the last is enough: what is done to each in Python costs more than its bytes. Any descriptor that keeps the ends of
packets will do for one, a pair of Unix sockets too; `softnic.tapnic.namespaces` makes the real ones.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softnic._native import ffi, lib

BUFFER_BYTES = 16 * lib.SN_TAP_PACKET
"""Of one read: some super-segments, or many small packets."""
MAX_PACKETS = 256
_PACKET = struct.Struct("=8I5H3B3x")
TCP: int = lib.SN_KIND_TCP
OTHER: int = lib.SN_KIND_OTHER
CData = Any


class TapPacket(NamedTuple):
    """What the kernel has sent, one packet or a run of them: an `sn_tap_packet` (native/tap.h)."""

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
    """Packets as they cross the device; super-segments count as one."""

    read: int = 0
    written: int = 0
    dropped_write: int = 0
    """Frames that the kernel did not take: its device was down, or it had no memory."""


class TapDevice:
    """The card's end of a device. Takes the descriptor over, which must not block."""

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
        """There may be something to read: an owner who waits for `fileno()` says so. A read that leaves nothing denies
        it."""
        self.counted = TapCounters()

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> list[TapPacket]:
        """What the kernel has sent, as much as one buffer holds. Nothing where the device is down or gone."""
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
        """A copy of the headers of a TCP segment that was read last."""
        return self._headers[packet.header : packet.header + packet.header_length]

    def payload(self, packet: TapPacket) -> memoryview:
        """Its payload, or the whole frame of what is not TCP. Valid until the next `read`."""
        return self._buffer.data[packet.offset : packet.offset + packet.length]

    def write_run(self, header: bytearray | bytes, data: CData, payloads: CData, count: int, segment: int = 0) -> None:
        """Hands up the bytes of some payloads of `data` behind this header (`sn_tap_write`), which says what flags the
        last packet has. `segment`: payload bytes of a frame that it is to have come in; 0: as it did. Frames that the
        kernel does not take are counted: TCP will see to them."""
        ours = ffi.from_buffer("uint8_t[]", header)
        if lib.sn_tap_write(
            self._descriptor, ours, len(header), data, len(data), payloads, count, segment, self._written
        ):
            self.counted.dropped_write += count
        self.counted.written += self._written[0]

    def write_bytes(self, header: bytearray | bytes, payload: memoryview, segment: int) -> None:
        """The same for a payload that lies in one payload_ref."""
        self._payload_ref.offset, self._payload_ref.length = 0, len(payload)
        self.write_run(header, ffi.from_buffer("uint8_t[]", payload), self._payload_ref, 1, segment)

    def write_frame(self, frame: bytes) -> None:
        """Hands up a frame as it is."""
        if lib.sn_tap_write_frame(self._descriptor, frame, len(frame)):
            self.counted.dropped_write += 1
        else:
            self.counted.written += 1

    def close(self) -> None:
        os.close(self._descriptor)
