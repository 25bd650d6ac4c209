"""Batches of Ethernet frames in one buffer, as NIC and links exchange them.

The frames of a sent batch have one destination MAC address. Every frame has `HEADROOM` free bytes before it, where a
link may write its own header. The receiver of a batch owns it, and frame bytes do not change after that (a link that
corrupts frames copies them first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib

HEADROOM: int = lib.SN_HEADROOM


@dataclass(slots=True)
class Frames:
    """`len(frames)` Ethernet frames, without FCS, at `offsets` of `data`, `lengths` bytes each."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.uint32]
    packet_id: int = 0
    """Number of the segment that the frames were cut from; 0: none."""
    total: int = -1
    """Bytes of all frames if known, else -1 (`nbytes`)."""
    _arrays: Any = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, frames: Iterable[bytes], packet_id: int = 0) -> Frames:
        """Returns a batch with copies of these frames."""
        parts = list(frames)
        lengths = np.array([len(part) for part in parts], dtype=np.uint32)
        ends = np.cumsum(lengths + np.uint32(HEADROOM), dtype=np.uint32)
        gap = bytes(HEADROOM)
        data = np.frombuffer(bytearray(b"".join(gap + part for part in parts)), dtype=np.uint8)
        return cls(data, ends - lengths, lengths, packet_id)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> bytes:
        start = int(self.offsets[index])
        return self.data[start : start + int(self.lengths[index])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))

    @property
    def arrays(self) -> Any:
        """`data`, `offsets` and `lengths` as C has them."""
        if self._arrays is None:
            self._arrays = (
                ffi.from_buffer("uint8_t[]", self.data),
                ffi.from_buffer("uint32_t[]", self.offsets),
                ffi.from_buffer("uint32_t[]", self.lengths),
            )
        return self._arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        if self.total < 0:
            count = len(self.lengths)  # usual for a small message
            self.total = self.lengths.item(0) if count == 1 else lib.sn_sum_lengths(self.arrays[2], count)
        return self.total

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Frames:
        """Returns the chosen frames, by mask, index or slice; they share this batch's buffer."""
        return Frames(self.data, self.offsets[chosen], self.lengths[chosen], self.packet_id)
