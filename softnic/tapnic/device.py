"""A kernel's TAP device as the NIC sees it: where the kernel's packets come from, and those for it go to.

Super-segments of up to 64 KiB cross it both ways, each with virtio-net's header (native/nic/tap.h), so that the kernel
neither segments nor computes checksums. Consecutive segments of a flow are joined and of consecutive bare ACKs only the
last is kept, because the cost per packet exceeds that of the bytes. Any file descriptor with packet boundaries
works, also one of a pair of Unix sockets; `softnic.tapnic.namespaces` opens real devices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from softnic._native import ffi, lib

BUFFER_BYTES = 16 * lib.SN_TAP_PACKET
"""Buffer of one read: a few super-segments, or many small packets."""
MAX_PACKETS = 256


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
        self._buffer = ffi.new("uint8_t[]", BUFFER_BYTES)
        self._headers = ffi.new("uint8_t[]", MAX_PACKETS * lib.SN_TAP_SLOT)
        self._packets = ffi.new("sn_tap_packet[]", MAX_PACKETS)
        self._written = ffi.new("uint32_t *")
        self.c = c = ffi.gc(ffi.new("sn_tap_nic *"), lib.sn_tap_nic_clear)
        """The NIC of the kernel in C (native/nic/tap_nic.h)."""
        c.fd, c.readable = descriptor, True
        c.headers, c.buffer, c.size = self._headers, self._buffer, BUFFER_BYTES
        c.packets, c.most = self._packets, MAX_PACKETS
        self.counted = TapCounters()

    def fileno(self) -> int:
        return int(self.c.fd)

    @property
    def readable(self) -> bool:
        """Whether there may be something to read. Set when `fileno()` is readable; a read that empties the device
        resets it."""
        return bool(self.c.readable)

    @readable.setter
    def readable(self, value: bool) -> None:
        self.c.readable = value

    @property
    def is_busy(self) -> bool:
        """Whether there may be packets that are not sent."""
        return bool(self.c.readable or self.c.next < self.c.count)

    def write(self, header: bytes) -> None:
        """Pass a TCP segment without payload up to the kernel: its Ethernet, IPv4 and TCP headers."""
        nothing = ffi.new("sn_payload_ref *")
        if lib.sn_tap_write(self.fileno(), header, len(header), ffi.NULL, 0, nothing, 1, 1, self._written):
            self.counted.dropped_write += 1
        self.counted.written += self._written[0]

    def close(self) -> None:
        os.close(self.fileno())
