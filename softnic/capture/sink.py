"""The outlet of one capture: its queue of pcapng blocks (ring.py) and the stream socket that `softnic capture` reads.

Batches that do not fit into the queue are dropped, and counted. The reader ends a capture by shutting down
its writing side (the sink then sends the queued blocks and the statistics, and closes) or by closing its socket (queued
blocks are lost).
"""

from __future__ import annotations

import errno
import socket

from softnic.capture import pcapng
from softnic.capture.pcapng import Direction
from softnic.capture.ring import CaptureRing
from softnic.packet.frames import Frames

QUEUE_BYTES = 32 << 20
"""Limit of queued blocks."""
_NO_WAIT = socket.MSG_DONTWAIT
"""Needed beside O_NONBLOCK, which a process that kept a copy of the file descriptor can clear."""


class CaptureSink:
    """One capture of one node: numbers the interfaces of its blocks, queues them and counts frames.

    Parameters
    ----------
    descriptor : int
        A Unix stream socket; the sink owns it from now on.
    host_interface, wire_interface : int
        Interface numbers in the file; -1 omits that side.
    snaplen : int
        Bytes of each packet to keep; 0 keeps all.
    start_ns : int
        Begin of the capture, for its statistics.
    limit_bytes : int
        Limit of queued blocks.

    Raises
    ------
    OSError
        With EINVAL or ENOTSOCK if `descriptor` is no Unix stream socket or a number is out of range. The file
        descriptor is then left open.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        host_interface: int,
        wire_interface: int,
        snaplen: int = 0,
        start_ns: int = 0,
        limit_bytes: int = QUEUE_BYTES,
    ) -> None:
        if not all(-1 <= number < 1 << 16 for number in (host_interface, wire_interface)):
            raise OSError(errno.EINVAL, "an interface number is from -1 to 65535")
        if not 0 <= snaplen <= pcapng.MAX_SNAPLEN:
            raise OSError(errno.EINVAL, f"snaplen is from 0 to {pcapng.MAX_SNAPLEN}")
        self._socket = _stream_socket(descriptor)
        self.host_interface = host_interface
        self.wire_interface = wire_interface
        self._start_ns = start_ns
        self.is_ending = False
        """Whether only what is queued is still to be sent."""
        self.closed = False
        try:
            self.ring = CaptureRing(
                host_interface,
                wire_interface,
                snaplen=snaplen,
                limit_bytes=limit_bytes,
                descriptor=self._socket.fileno(),
            )
        except OSError:
            self._socket.detach()
            raise

    @property
    def queued_bytes(self) -> int:
        """Bytes of blocks that wait for the reader."""
        return self.ring.queued_bytes

    @property
    def received(self) -> dict[int, int]:
        """Frames seen, by interface."""
        return self.ring.received

    @property
    def dropped(self) -> dict[int, int]:
        """Of the frames seen, those dropped, by interface."""
        return self.ring.dropped

    def write(self, interface: int, timestamp_ns: int, frames: Frames, direction: Direction, packet_id: int) -> None:
        """Queue a batch, or drop it if the queue is full. Batches of an omitted interface (-1) are ignored."""
        if interface < 0 or self.is_ending or self.closed or not len(frames):
            return
        self.ring.write(interface, timestamp_ns, frames, direction, packet_id)
        self.flush()

    def poll(self, now_ns: int) -> None:
        """Check whether the reader has ended the capture, and send queued blocks."""
        if not self.is_ending and not self.closed:
            try:
                if not self._socket.recv(1, _NO_WAIT):
                    self._end(now_ns)
            except BlockingIOError:
                pass
            except OSError:
                self.close()
        self.flush()

    def flush(self) -> None:
        """Send as much as the reader accepts now. Closes if the reader is gone or the capture has been sent in full."""
        self.ring.flush()
        if self.ring.has_failed or (self.is_ending and not self.queued_bytes):
            self.close()

    def close(self) -> None:
        self.closed = True
        self.ring.close()
        self._socket.close()

    def _end(self, now_ns: int) -> None:
        """Queue the statistics of each interface as the last blocks."""
        self.is_ending = True
        dropped = self.dropped
        statistics = [
            pcapng.InterfaceStatistics(
                interface, start_ns=self._start_ns, end_ns=now_ns, received=received, dropped=dropped[interface]
            ).block()
            for interface, received in self.received.items()
        ]
        self.ring.end(b"".join(statistics))


def _stream_socket(descriptor: int) -> socket.socket:
    owned = socket.socket(fileno=descriptor)
    if (owned.family, owned.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        owned.detach()
        raise OSError(errno.EINVAL, "a capture needs a Unix stream socket")
    owned.setblocking(False)
    return owned
