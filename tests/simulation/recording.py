"""A world's capture: every machine from two sides, what its TCP and its NIC hand each other and what is on the wire.

Blocks are written as things happen, so that recording changes nothing in a world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from tests.facades.capture import Direction, host_frames, pcapng
from tests.facades.packet import Frames, Segment, Transmitted, mac_of

EPOCH_NS = 1_767_225_600 * 10**9
"""What a capture calls the time that a world begins: 2026-01-01."""


class Recording:
    """Writes a pcapng file of machines with these addresses."""

    def __init__(self, output: BinaryIO, ips: Sequence[int]) -> None:
        self._output = output
        self._ips = list(ips)
        output.write(pcapng.section_header("softnic"))
        for index, ip in enumerate(ips):
            for side in ("host", "wire"):
                description = f"node{index}, {side} side"
                output.write(pcapng.interface_description(f"node{index}:{side}", description, ip=ip, mac=mac_of(ip)))

    def wire(self, index: int, frames: Frames, now: float, outgoing: bool) -> None:
        """A batch on machine `index`'s wire."""
        number = self._number(index, frames.packet_id) if outgoing else 0
        self._write(2 * index + 1, frames, now, outgoing, number)

    def host_tap(self, index: int, world_now: Callable[[], float]) -> RecordedHost:
        """What a machine's node is to show its segments to."""
        return RecordedHost(self, index, world_now)

    def host(self, index: int, frames: Frames, now: float, outgoing: bool, packet_id: int = 0) -> None:
        self._write(2 * index, frames, now, outgoing, self._number(index, packet_id))

    def _number(self, index: int, packet_id: int) -> int:
        """Unique among machines; 0 stays 0."""
        return self._ips[index] << 32 | packet_id & 0xFFFFFFFF if packet_id else 0

    def _write(self, interface: int, frames: Frames, now: float, outgoing: bool, number: int) -> None:
        direction = Direction.OUTBOUND if outgoing else Direction.INBOUND
        time_ns = EPOCH_NS + round(now * 1e9)
        self._output.write(pcapng.packets(interface, time_ns, frames, direction, packet_id=number))


class RecordedHost:
    """Between a machine's TCP and its NIC. The node's time is its own; a capture goes by the world's."""

    @property
    def active(self) -> bool:
        return True

    def __init__(self, recording: Recording, index: int, world_now: Callable[[], float]) -> None:
        self._recording = recording
        self._index = index
        self._world_now = world_now

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:  # noqa: ARG002
        if transmitted.frames:
            frames = host_frames(segment, transmitted.consumed, transmitted.packet_id)
            self._recording.host(self._index, frames, self._world_now(), True, transmitted.packet_id)

    def received(self, segment: Segment, now: float) -> None:  # noqa: ARG002
        self._recording.host(self._index, host_frames(segment, len(segment.payload)), self._world_now(), False)

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:  # noqa: ARG002
        self._recording.host(self._index, Frames.of([data]), self._world_now(), outgoing)
