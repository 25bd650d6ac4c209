"""Which calls of a process group cross the network compressed.

Only sums and means of floats can be rounded without a program noticing more than noise: all-reduces and
reduce-scatters with SUM, AVG or PREMUL_SUM. All else is exact whatever is set here: broadcasts of weights and buffers,
gathered shards, integers, MIN and MAX, objects. So are sums of fewer bytes than `floor_bytes`: losses, counts and
norms, whose transfer costs a latency and no bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from softnic.comm.buffers import codec_of
from softnic.torch.reduction import Reduction

FLOOR_BYTES = 4096
"""Less travels exactly, unless said otherwise."""
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Compression:
    """`codec` for sums of at least `floor_bytes`; None: exact. Raises ValueError."""

    codec: str | None = None
    floor_bytes: int = FLOOR_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", codec_name(self.codec))
        object.__setattr__(self, "floor_bytes", floor_of(self.floor_bytes))

    def codec_for(self, reduction: Reduction, dtype: torch.dtype, count: int) -> str | None:
        """What a reduction of so many elements is compressed by."""
        suits = reduction.sums and dtype in _FLOATS and count * dtype.itemsize >= self.floor_bytes
        return self.codec if suits else None


def codec_name(codec: Any) -> str | None:
    """Of a codec, given as such or by its name. Raises ValueError."""
    return None if codec is None else str(codec_of(codec))


def floor_of(floor_bytes: Any) -> int:
    """Raises ValueError for what is no number of bytes."""
    if not isinstance(floor_bytes, (int, np.integer)) or isinstance(floor_bytes, bool) or floor_bytes < 0:
        raise ValueError(f"floor_bytes is {floor_bytes!r}: an integer, 0 or more, is expected")
    return int(floor_bytes)


EXACT = Compression()
