"""The queue of one capture, in C (native/nic/capture_ring.h): a bounded ring of pcapng blocks.

The turn of a NIC writes to it without Python; what Python sends and receives itself is written here, in the same order.
"""

from __future__ import annotations

import errno
import os

from softnic._native import ffi, lib
from softnic.capture.pcapng import MAX_SNAPLEN, Direction
from softnic.packet.frames import Frames


class CaptureRing:
    """Enhanced packet blocks of the host and the wire side of a node.

    Parameters
    ----------
    host_interface, wire_interface : int
        Interface numbers in the file; -1 omits that side.
    snaplen : int
        Bytes of each packet to keep; 0 keeps all.
    limit_bytes : int
        Limit of queued blocks.
    descriptor : int
        A stream socket to which `flush` sends; -1: the owner calls `take`.

    Raises
    ------
    OSError
        With ENOMEM if there is no memory.
    """

    def __init__(
        self, host_interface: int, wire_interface: int, *, snaplen: int, limit_bytes: int, descriptor: int = -1
    ) -> None:
        self.c = ffi.gc(ffi.new("sn_capture_ring *"), lib.sn_capture_ring_close)
        self._numbers = (host_interface, wire_interface)
        self._batch = ffi.new("sn_capture_batch *")
        ring = self.c
        ring.fd, ring.interfaces = descriptor, self._numbers
        ring.snaplen, ring.limit = snaplen or MAX_SNAPLEN, limit_bytes
        if lib.sn_capture_ring_open(ring):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    @property
    def queued_bytes(self) -> int:
        """Bytes of blocks that wait for the reader."""
        return int(self.c.used)

    @property
    def has_failed(self) -> bool:
        """Whether the reader is gone."""
        return bool(self.c.error)

    @property
    def received(self) -> dict[int, int]:
        """Packets seen, by interface."""
        return self._by_interface(self.c.received)

    @property
    def dropped(self) -> dict[int, int]:
        """Packets that did not fit into the queue, by interface."""
        return self._by_interface(self.c.dropped)

    def _by_interface(self, counts: list[int]) -> dict[int, int]:
        result: dict[int, int] = {}
        for number, count in zip(self._numbers, counts, strict=True):
            if number >= 0:
                result[number] = result.get(number, 0) + count
        return result

    def write(self, interface: int, timestamp_ns: int, frames: Frames, direction: Direction, packet_id: int) -> None:
        """Queue a batch, all of one time and direction, or drop it if it does not fit. `packet_id` 0: none."""
        if interface not in self._numbers:
            raise ValueError(f"interface {interface} is not of this capture, which has {self._numbers}")
        batch = self._batch
        batch.time_ns, batch.number = timestamp_ns, packet_id
        batch.side, batch.direction = self._numbers.index(interface), direction
        lib.sn_capture_ring_frames(self.c, batch, *frames.arrays, len(frames))

    def end(self, blocks: bytes) -> None:
        """Record no more packets. The last blocks are queued even if the queue is full."""
        self.c.is_ending = True
        if not lib.sn_capture_ring_append(self.c, blocks, len(blocks)):
            raise ValueError(f"{len(blocks)} bytes are too many for the end of a capture")

    def flush(self) -> None:
        """Send as much as the reader accepts now."""
        lib.sn_capture_ring_flush(self.c)

    def take(self) -> bytes:
        """Return all queued blocks, which are then queued no longer."""
        out = ffi.new("uint8_t[]", self.queued_bytes)
        return bytes(ffi.buffer(out, lib.sn_capture_ring_take(self.c, out, len(out))))

    def close(self) -> None:
        """Drop what is queued, and free its memory. Counts stay."""
        lib.sn_capture_ring_close(self.c)
