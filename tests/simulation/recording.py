"""A world's capture: every node's host side and wire side in one pcapng file.

What a node's turn records in C is queued, and written before anything else and at the end of the turn; so everything is
in the order in which it happened, and recording changes nothing in a world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from softnic._native import ffi
from softnic.capture import pcapng
from softnic.capture.host_side import record_segment
from softnic.capture.pcapng import Direction
from softnic.capture.ring import CaptureRing
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.packet.segment import Segment, Transmitted

EPOCH_NS = 1_767_225_600 * 10**9
"""The capture's time at the beginning of a world: 2026-01-01."""
_LIMIT_BYTES = 32 << 20
"""More than is recorded in a turn."""


class WorldRecording:
    """Writes a pcapng file of nodes with these addresses."""

    def __init__(self, output: BinaryIO, ips: Sequence[int]) -> None:
        self._output = output
        self._ips = list(ips)
        self.host_rings = [_ring(2 * index, -1) for index in range(len(ips))]
        self._wire_rings = [_ring(-1, 2 * index + 1) for index in range(len(ips))]
        output.write(pcapng.section_header("softnic"))
        for index, ip in enumerate(ips):
            for side in ("host", "wire"):
                description = f"node{index}, {side} side"
                output.write(pcapng.interface_description(f"node{index}:{side}", description, ip=ip, mac=mac_of(ip)))

    def wire(self, index: int, frames: Frames, now: float, outgoing: bool) -> None:
        """Write a batch on the wire side of node `index`."""
        number = self._ips[index] << 32 | frames.packet_id & 0xFFFFFFFF if outgoing and frames.packet_id else 0
        self.drain(index)
        self._write(self._wire_rings[index], 2 * index + 1, frames, now, outgoing, number)

    def host(self, index: int, frame: bytes, now: float, outgoing: bool) -> None:
        """Write a frame that is not TCP on the host side of node `index`."""
        self._write(self.host_rings[index], 2 * index, Frames.of([frame]), now, outgoing, 0)

    def host_observer(self, index: int, time: Callable[[], float]) -> HostRecorder:
        """Return the observer of node `index`."""
        return HostRecorder(self, index, time)

    def drain(self, index: int) -> None:
        """Write what node `index` has recorded on its host side."""
        self._take(self.host_rings[index])

    def _take(self, ring: CaptureRing) -> None:
        assert not any(ring.dropped.values())
        if ring.queued_bytes:
            self._output.write(ring.take())

    def address(self, index: int) -> int:
        """Return the address of node `index`."""
        return self._ips[index]

    def _write(
        self, ring: CaptureRing, interface: int, frames: Frames, now: float, outgoing: bool, number: int
    ) -> None:
        direction = Direction.OUTBOUND if outgoing else Direction.INBOUND
        ring.write(interface, time_ns(now), frames, direction, number)
        self._take(ring)


def _ring(host_interface: int, wire_interface: int) -> CaptureRing:
    return CaptureRing(host_interface, wire_interface, snaplen=0, limit_bytes=_LIMIT_BYTES)


def time_ns(now: float) -> int:
    """Return a time of the world as the capture shows it."""
    return EPOCH_NS + round(now * 1e9)


class HostRecorder:
    """Observer between a node's TCP and its NIC. Times in the capture are the world's, not the node's own."""

    def __init__(self, recording: WorldRecording, index: int, time: Callable[[], float]) -> None:
        self._recording = recording
        self._index = index
        self._time = time
        self.c = ffi.new("sn_capture *")
        """What the node's turn records with: the host side alone, since the link records the wire."""
        ip = recording.address(index)
        self.c.ip, self.c.mac_prefix, self.c.flush_at = ip, list(mac_of(ip)[:3]), float("inf")
        self.c.interval_s = float("inf")
        self.c.rings[0], self.c.count = recording.host_rings[index].c, 1

    @contextmanager
    def turn(self, local: float) -> Iterator[None]:
        """Record a turn at this time of the node's own clock."""
        self._use_time(local)
        try:
            yield
        finally:
            self._recording.drain(self._index)

    def _use_time(self, local: float) -> None:
        """Have the world's time recorded where the node's own clock shows `local`."""
        self.c.epoch_ns = time_ns(self._time()) - round(local * 1e9)

    @property
    def active(self) -> bool:
        return True

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:
        if transmitted.frames:
            self._record(segment, transmitted.consumed, Direction.OUTBOUND, transmitted.packet_id, now)

    def received(self, segment: Segment, now: float) -> None:
        self._record(segment, len(segment.payload), Direction.INBOUND, 0, now)

    def _record(self, segment: Segment, consumed: int, direction: Direction, packet_id: int, now: float) -> None:
        self._use_time(now)
        record_segment(self.c, segment, consumed, direction, packet_id, now)
        self._recording.drain(self._index)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:  # noqa: ARG002
        self._recording.host(self._index, data, self._time(), outgoing)
