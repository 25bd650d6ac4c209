"""Observes a node for `softnic capture`: its segments between TCP and NIC, and its frames on the link.

One CaptureHook per node holds the captures in progress. The turn of the node records what it moves in C
(native/nic/capture.h), in the same queues and so in the right order; this file what Python sends and receives. Nothing
waits for a reader: what does not fit into a queue (sink.py) is dropped, and counted.
"""

from __future__ import annotations

import errno

from softnic._native import ffi, lib
from softnic.capture.host_side import record_segment
from softnic.capture.pcapng import Direction
from softnic.capture.sink import CaptureSink
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import Segment, Transmitted

MAX_CAPTURES: int = lib.SN_MOST_CAPTURES
"""Captures of one node at a time."""
_FLUSH_S = 0.001
"""Limit of the time that blocks are queued, and interval between attempts to send them."""
_WATCH_S = 0.05
"""Interval between polls: how late the end of a reader is noticed."""
_NEVER = float("inf")


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
        self._epoch_ns = epoch_ns
        self.sinks: list[CaptureSink] = []
        self.poll_at: float | None = None
        """When `poll` must be called; None: not before a capture begins."""
        self.c = ffi.new("sn_capture *")
        """What the turn of the node records with."""
        self.c.ip, self.c.mac_prefix, self.c.epoch_ns = ip, list(mac_of(ip)[:3]), epoch_ns
        self.c.interval_s, self.c.flush_at = _FLUSH_S, _NEVER
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
        self.c.rings[self.c.count] = sink.ring.c
        self.c.count += 1
        self.poll_at = 0.0
        return sink

    def time_ns(self, now: float) -> int:
        """Return a time of the node's clock as nanoseconds since the epoch."""
        return self._epoch_ns + round(now * 1e9)

    # --- host side

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:
        """Record the part of a segment that the NIC accepted from TCP."""
        if self.sinks and transmitted.frames:
            record_segment(self.c, segment, transmitted.consumed, Direction.OUTBOUND, transmitted.packet_id, now)

    def received(self, segment: Segment, now: float) -> None:
        """Record a segment that the NIC passed up, its floats decoded."""
        if self.sinks:
            record_segment(self.c, segment, len(segment.payload), Direction.INBOUND, 0, now)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:
        """Record a frame that is not TCP: ARP, ICMP."""
        time_ns, direction = self.time_ns(now), Direction.OUTBOUND if outgoing else Direction.INBOUND
        for sink in self.sinks:
            sink.write(sink.host_interface, time_ns, Frames.of([data]), direction, 0)
        self._settle(now)

    # --- wire side

    def record_wire(self, frames: Frames, now: float, direction: Direction) -> None:
        """Record a batch of frames that leaves or has arrived."""
        number = frames.packet_id if direction is Direction.OUTBOUND else 0
        if number:
            number = self.c.ip << 32 | number & 0xFFFFFFFF
        time_ns = self.time_ns(now)
        for sink in self.sinks:
            sink.write(sink.wire_interface, time_ns, frames, direction, number)
        self._settle(now)

    # --- housekeeping

    def poll(self, now: float) -> None:
        """Send queued blocks and forget captures that have ended."""
        for sink in self.sinks:
            sink.poll(self.time_ns(now))
        self._remove_closed()
        self.c.flush_at = _NEVER
        ending = any(sink.is_ending for sink in self.sinks)
        self.poll_at = now + (_FLUSH_S if ending else _WATCH_S) if self.sinks else None
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Have what is queued sent in time."""
        if self.c.flush_at == _NEVER and any(sink.queued_bytes for sink in self.sinks):
            self.c.flush_at = now + _FLUSH_S

    def next_time(self) -> float | None:
        """Return when to poll again, or to flush; None without captures."""
        return None if self.poll_at is None else min(self.poll_at, self.c.flush_at)

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
        self.c.count = len(self.sinks)
        for index, sink in enumerate(self.sinks):
            self.c.rings[index] = sink.ring.c
