"""A world's capture: every node's host side and wire side in one pcapng file.

Blocks are written as things happen, so recording changes nothing in a world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from tests.facades.capture import Direction, host_frames, pcapng
from tests.facades.packet import Frames, Segment, Transmitted, mac_of

EPOCH_NS = 1_767_225_600 * 10**9
"""The capture's time at the beginning of a world: 2026-01-01."""


class WorldRecording:
    """Writes a pcapng file of nodes with these addresses."""

    def __init__(self, output: BinaryIO, ips: Sequence[int]) -> None:
        self._output = output
        self._ips = list(ips)
        output.write(pcapng.section_header("softnic"))
        for index, ip in enumerate(ips):
            for side in ("host", "wire"):
                description = f"node{index}, {side} side"
                output.write(pcapng.interface_description(f"node{index}:{side}", description, ip=ip, mac=mac_of(ip)))

    def wire(self, index: int, frames: Frames, now: float, outgoing: bool) -> None:
        """Write a batch on the wire side of node `index`."""
        number = self._number(index, frames.packet_id) if outgoing else 0
        self._write(2 * index + 1, frames, now, outgoing, number)

    def host(self, index: int, frames: Frames, now: float, outgoing: bool, packet_id: int = 0) -> None:
        """Write a batch on the host side of node `index`."""
        self._write(2 * index, frames, now, outgoing, self._number(index, packet_id))

    def host_observer(self, index: int, time: Callable[[], float]) -> HostRecorder:
        """Return the observer of node `index`."""
        return HostRecorder(self, index, time)

    def _number(self, index: int, packet_id: int) -> int:
        """Make a packet ID unique among nodes; 0 stays 0."""
        return self._ips[index] << 32 | packet_id & 0xFFFFFFFF if packet_id else 0

    def _write(self, interface: int, frames: Frames, now: float, outgoing: bool, number: int) -> None:
        direction = Direction.OUTBOUND if outgoing else Direction.INBOUND
        time_ns = EPOCH_NS + round(now * 1e9)
        self._output.write(pcapng.packets(interface, time_ns, frames, direction, packet_id=number))


class HostRecorder:
    """Observer between a node's TCP and its NIC. Times in the capture are the world's, not the node's own."""

    def __init__(self, recording: WorldRecording, index: int, time: Callable[[], float]) -> None:
        self._recording = recording
        self._index = index
        self._time = time

    @property
    def active(self) -> bool:
        return True

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:  # noqa: ARG002
        if transmitted.frames:
            frames = host_frames(segment, transmitted.consumed, transmitted.packet_id)
            self._recording.host(self._index, frames, self._time(), True, transmitted.packet_id)

    def received(self, segment: Segment, now: float) -> None:  # noqa: ARG002
        self._recording.host(self._index, host_frames(segment, len(segment.payload)), self._time(), False)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:  # noqa: ARG002
        self._recording.host(self._index, Frames.of([data]), self._time(), outgoing)
