"""A batch of frames as the kernel delivers it: the memory of `sn_vxlan_receive`, which the next batch overwrites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.endpoint import unpacked
from softnic.packet.frames import Frames
from softnic.underlay import Address

_SLOT_BYTES = 1 << 16
_MESSAGES = 32
_FRAMES = _MESSAGES * 128


class ReceivedBatch:
    """The memory of one link."""

    def __init__(self) -> None:
        self.buffer = np.empty(_MESSAGES * _SLOT_BYTES, np.uint8)
        self.offsets, self._lengths = (np.empty(_FRAMES, np.uint32) for _ in range(2))
        self.sources = ffi.new("sn_source[]", _MESSAGES)
        self.found = ffi.new("sn_received *")
        self.memory = (
            ffi.from_buffer("uint8_t[]", self.buffer),
            ffi.from_buffer("uint32_t[]", self.offsets),
            ffi.from_buffer("uint32_t[]", self._lengths),
        )

    def read(self, fd: int, vni: int, keys: Any, peers: int) -> int:
        """Read from a UDP socket. Returns 0 or -errno."""
        data, offsets, lengths = self.memory
        memory = (data, _SLOT_BYTES, _MESSAGES, offsets, lengths, _FRAMES, self.sources, self.found)
        error: int = lib.sn_vxlan_receive(fd, vni, keys, peers, *memory)
        return error

    def readmit(self, place_of: Callable[[Address], int | None]) -> int:
        """List the datagrams of strangers that are peers now, of a batch without any other. Returns how many.

        `place_of` returns the number of the peer at an address, None if there is none.
        """
        found, offsets, lengths = self.found, self.memory[1], self.memory[2]
        count = sources = 0
        for stranger in found.stranger[0 : found.strangers]:
            place = place_of(unpacked(bytes(ffi.buffer(ffi.addressof(stranger, "from")))))
            if place is None or not stranger.size:
                continue
            source, end = self.sources[sources], stranger.offset + stranger.size
            source.peer, source.first = place, count
            for offset in range(stranger.offset, end, stranger.length):
                if count < _FRAMES:
                    offsets[count], lengths[count] = offset, min(stranger.length, end - offset)
                    count += 1
            source.count = count - source.first
            sources += 1
        found.frames, found.sources, found.strangers = count, sources, 0
        return count

    @property
    def is_last(self) -> bool:
        """Whether the socket was empty behind it."""
        return bool(self.found.messages < _MESSAGES)

    def frames(self, count: int) -> Frames:
        """Return the first `count` frames."""
        return Frames(self.buffer, self.offsets[:count], self._lengths[:count])

    def lend(self, rx: Any) -> None:
        """Have an `sn_turn` read into this memory."""
        rx.data, rx.offsets, rx.lengths = self.memory
        rx.size, rx.slot, rx.messages, rx.frames = len(self.buffer), _SLOT_BYTES, _MESSAGES, _FRAMES
        rx.sources, rx.found = self.sources, self.found
