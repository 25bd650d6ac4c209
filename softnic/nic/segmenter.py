"""Cuts segments into frames: the plan, the buffers and the result of `sn_cut`.

Frames for the kernel are cut into one buffer that the next cut overwrites (`send_udp`), frames that a link keeps into
memory of their own (`take`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.link.base import UdpPath
from softnic.nic.offload import CodecChoice
from softnic.packet.frames import HEADROOM, Frames

MAX_FRAMES: int = lib.SN_MOST_FRAMES
"""Limit of the frames of one segment; only part of a longer one is consumed."""
OFFLOADED_BYTES: int = lib.SN_OFFLOADED_BYTES
"""Limit of the frame bytes of one offloaded segment; only part of a longer one is consumed."""

CData = Any
"""A cffi buffer."""
PlanFields = tuple[int, int, int, int, bool, int, int]
"""Fields of an `sn_cut_plan`: header_length, max_payload, codec, parameter, raw, block_offset, max_frames."""
_FIRST_OFFSET = np.array([HEADROOM], np.uint32)
_FIRST_OFFSET.flags.writeable = False
"""Offsets of a batch of one frame."""
_NO_BYTES = np.empty(0, np.uint8)


def _space(length: int, max_payload: int, overhead: int, max_frames: int, offloaded: bool) -> int:
    """Return the bytes to allocate for the frames of a segment. The size of an offloaded one is known only afterwards;
    if this is too little, the rest becomes another segment."""
    frames = -(-length // max_payload) or 1
    if offloaded:
        return min(OFFLOADED_BYTES, min(2 * frames + 1, max_frames) * (overhead + max_payload))
    frames = min(frames, max_frames)
    return frames * overhead + min(length, frames * max_payload)


class Segmenter:
    """`packet_mode` and `equal_sizes` are those of an `sn_cut_plan`."""

    def __init__(self, packet_mode: bool, equal_sizes: bool) -> None:
        self._plan = ffi.new("sn_cut_plan *")
        self._plan.packet_mode = packet_mode
        self._plan.equal_sizes = equal_sizes
        self._planned: PlanFields = (0, 0, 0, 0, False, 0, 0)
        self.result = ffi.new("sn_cut_result *")
        """Of the latest cut."""
        self._make_buffer(1 << 17)
        self._kept = _NO_BYTES
        self._offsets = np.empty(MAX_FRAMES, np.uint32)
        self._lengths = np.empty(MAX_FRAMES, np.uint32)
        self._c_offsets = ffi.from_buffer("uint32_t[]", self._offsets)
        self._c_lengths = ffi.from_buffer("uint32_t[]", self._lengths)

    def cut(
        self,
        header: bytes | CData,
        header_length: int,
        source: CData,
        length: int,
        max_payload: int,
        choice: CodecChoice,
        raw: bool,
        block_offset: int,
        max_frames: int,
        kept: bool,
    ) -> CData:
        """Cut `length` bytes of `source` behind this header. Return `result`, valid until the next cut.

        `kept`: the frames will be taken.

        Raises ValueError for a segment that no TCP makes, e.g. cut inside a word.
        """
        plan = (header_length, max_payload, choice.number, choice.parameter, raw, block_offset, max_frames)
        if plan != self._planned:
            self._make_plan(plan)
        size = _space(length, max_payload, HEADROOM + header_length, max_frames, choice.number >= 0)
        if kept:
            self._kept = np.empty(size, np.uint8)
        elif size > len(self._buffer):
            self._make_buffer(1 << (size - 1).bit_length())
        out = ffi.from_buffer("uint8_t[]", self._kept) if kept else self._c_buffer
        arrays = (out, size, self._c_offsets, self._c_lengths, self.result)
        if lib.sn_cut(self._plan, header, source, length, *arrays):
            raise ValueError(f"a segment with {header_length} bytes of headers cannot be cut like that")
        return self.result

    def _make_plan(self, fields: PlanFields) -> None:
        """Set the parameters of `sn_cut`; those of consecutive segments are often the same."""
        self._planned = fields
        plan = self._plan
        (
            plan.header_length,
            plan.max_payload,
            plan.codec,
            plan.parameter,
            plan.raw,
            plan.block_offset,
            plan.max_frames,
        ) = fields

    def _make_buffer(self, size: int) -> None:
        self._buffer = np.empty(size, np.uint8)
        self._c_buffer = ffi.from_buffer("uint8_t[]", self._buffer)

    def lend(self, turn: Any, size: int) -> None:
        """Have an `sn_turn` cut segments into the buffer of this segmenter, which gets `size` bytes."""
        self._make_buffer(size)
        tx = turn.tx
        tx.data, tx.size, tx.offsets, tx.lengths = self._c_buffer, size, self._c_offsets, self._c_lengths
        tx.frames, tx.plan, tx.result = MAX_FRAMES, self._plan, self.result

    def copy(self, packet_id: int) -> Frames:
        """Return a copy of the frames of the latest cut, which were not to be kept."""
        self._kept = self._buffer[: self.result.frame_bytes + self.result.frames * HEADROOM].copy()
        return self.take(packet_id)

    def send_udp(self, path: UdpPath) -> int:
        """Send the frames of the latest cut. Return how many the kernel accepted, or a negative errno."""
        arrays = (self._c_buffer, self._c_offsets, self._c_lengths)
        accepted: int = lib.sn_vxlan_send(path.fd, path.to, path.vni, *arrays, self.result.frames, path.gso)
        return accepted

    def take(self, packet_id: int) -> Frames:
        """Return the frames of the latest cut, which were to be kept, once."""
        count, wire_bytes = self.result.frames, self.result.frame_bytes
        data, self._kept = self._kept, _NO_BYTES
        data.resize(wire_bytes + count * HEADROOM, refcheck=False)
        offsets: npt.NDArray[np.uint32] = _FIRST_OFFSET if count == 1 else self._offsets[:count].copy()
        return Frames(data, offsets, self._lengths[:count].copy(), packet_id, wire_bytes)
