"""A batch of frames as the kernel delivers it: the memory of `sn_vxlan_receive`, which the next batch overwrites."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.packet.frames import Frames

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
