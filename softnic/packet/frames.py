"""A batch of Ethernet frames in one buffer: what NIC and links hand each other.

Rules: the frames of one batch that is being sent all go to one destination MAC; every frame has `HEADROOM`
free bytes before it, where a link may write its own header; whoever is handed a batch owns it, and nobody
changes frame bytes after that (a link that corrupts copies first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
    """Of the host segment these frames were cut from; 0 where there is none."""
    total: int = -1
    """Bytes of all frames, where that is known (`nbytes`)."""

    @classmethod
    def of(cls, frames: Iterable[bytes], packet_id: int = 0) -> Frames:
        """A batch holding copies of these frames."""
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
    def nbytes(self) -> int:
        """Bytes of all frames."""
        if self.total < 0:
            count = len(self.lengths)  # one, for a small message: worth a case of its own
            array = self.lengths
            self.total = (
                array.item(0) if count == 1 else lib.sn_sum_lengths(ffi.from_buffer("uint32_t[]", array), count)
            )
        return self.total

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Frames:
        """The chosen frames, by mask, index or slice, sharing this batch's buffer."""
        return Frames(self.data, self.offsets[chosen], self.lengths[chosen], self.packet_id)
