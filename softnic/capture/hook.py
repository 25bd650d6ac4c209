"""Observes a node for `softnic capture`: its segments between TCP and NIC, and its frames on the link.

One CaptureHook per node holds the captures in progress. While there is none, each batch costs one look at an empty
list. Nothing waits for a reader: the sinks (sink.py) drop and count what does not fit into their queues.
"""

from __future__ import annotations

import errno

from softnic.capture.frames import host_frames
from softnic.capture.pcapng import Direction
from softnic.capture.sink import CaptureSink
from softnic.packet.frames import Frames
from softnic.packet.segment import Segment, Transmitted

MAX_CAPTURES = 8
"""Captures of one node at a time."""
_FLUSH_S = 0.001
"""Interval between polls while blocks are queued."""
_WATCH_S = 0.05
"""Interval between polls otherwise: how late the end of a reader is noticed."""


class CaptureHook:
    """The captures of one node.

    Parameters
    ----------
    ip : int
        The node's address, which makes packet numbers unique among nodes.
    epoch_ns : int
        Time since the epoch, in nanoseconds, at which the node's clock was 0.
    """

    def __init__(self, ip: int, epoch_ns: int = 0) -> None:
        self._ip = ip
        self._epoch_ns = epoch_ns
        self.sinks: list[CaptureSink] = []
        self._frames = 0
        self._dropped = 0
        """Frames offered to captures that have ended, and how many of them were dropped."""

    @property
    def active(self) -> bool:
        """Whether any capture is in progress."""
        return bool(self.sinks)

    def start(
        self, descriptor: int, now: float, *, host_interface: int, wire_interface: int, snaplen: int = 0
    ) -> CaptureSink:
        """Begin a capture into a stream socket; it ends when its reader closes.

        Raises
        ------
        OSError
            For arguments that CaptureSink refuses, and with EBUSY beyond MAX_CAPTURES. The file descriptor is then
            left open.
        """
        if len(self.sinks) >= MAX_CAPTURES:
            raise OSError(errno.EBUSY, f"{MAX_CAPTURES} captures are in progress at this NIC: end one first")
        sink = CaptureSink(
            descriptor,
            host_interface=host_interface,
            wire_interface=wire_interface,
            snaplen=snaplen,
            start_ns=self.time_ns(now),
        )
        self.sinks.append(sink)
        return sink

    def time_ns(self, now: float) -> int:
        """Return a time of the node's clock as nanoseconds since the epoch."""
        return self._epoch_ns + round(now * 1e9)

    def _packet_number(self, packet_id: int) -> int:
        """Return a number unique among nodes for a packet that this NIC numbered; 0 (no number) stays 0."""
        return self._ip << 32 | packet_id & 0xFFFFFFFF if packet_id else 0

    # --- host side

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:
        """Record the part of a segment that the NIC accepted from TCP."""
        if self.sinks and transmitted.frames:
            frames = host_frames(segment, transmitted.consumed, transmitted.packet_id)
            self._record_host(frames, now, Direction.OUTBOUND, self._packet_number(transmitted.packet_id))

    def received(self, segment: Segment, now: float) -> None:
        """Record a segment that the NIC passed up, its floats decoded."""
        if self.sinks:
            self._record_host(host_frames(segment, len(segment.payload)), now, Direction.INBOUND, 0)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:
        """Record a frame that is not TCP: ARP, ICMP."""
        if self.sinks:
            self._record_host(Frames.of([data]), now, Direction.OUTBOUND if outgoing else Direction.INBOUND, 0)

    def _record_host(self, frames: Frames, now: float, direction: Direction, number: int) -> None:
        time_ns = self.time_ns(now)
        for sink in self.sinks:
            sink.write(sink.host_interface, time_ns, frames, direction, number)

    # --- wire side

    def record_wire(self, frames: Frames, now: float, direction: Direction) -> None:
        """Record a batch of frames that leaves or has arrived."""
        number = self._packet_number(frames.packet_id) if direction is Direction.OUTBOUND else 0
        time_ns = self.time_ns(now)
        for sink in self.sinks:
            sink.write(sink.wire_interface, time_ns, frames, direction, number)

    # --- housekeeping

    def poll(self, now: float) -> None:
        """Send queued blocks and forget captures that have ended."""
        for sink in self.sinks:
            sink.poll(self.time_ns(now))
        self._remove_closed()

    def next_time(self, now: float) -> float | None:
        """Return when to poll again; None without captures."""
        if not self.sinks:
            return None
        return now + (_FLUSH_S if any(sink.queued_bytes for sink in self.sinks) else _WATCH_S)

    def counters(self) -> dict[str, int]:
        """Return the frames offered to captures and those dropped, by the names of `softnic stat`."""
        frames = self._frames + sum(sum(sink.received.values()) for sink in self.sinks)
        dropped = self._dropped + sum(sum(sink.dropped.values()) for sink in self.sinks)
        return {"capture_frames": frames, "capture_dropped": dropped}

    def close(self) -> None:
        """End all captures at once; blocks that their readers do not accept now are lost."""
        for sink in self.sinks:
            sink.flush()
            sink.close()
        self._remove_closed()

    def _remove_closed(self) -> None:
        for sink in [sink for sink in self.sinks if sink.closed]:
            self._frames += sum(sink.received.values())
            self._dropped += sum(sink.dropped.values())
            self.sinks.remove(sink)
