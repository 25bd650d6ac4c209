"""Selects the calls of a process group that are compressed.

Rounding is only noise in sums and means of floats: all-reduce and reduce-scatter with SUM, AVG or PREMUL_SUM. All other
calls are always exact: broadcasts of weights and buffers, gathered shards, integers, MIN and MAX, objects. So are sums
of fewer than `floor_bytes`, such as losses, counts and norms, whose cost is latency and not bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from softnic.comm.buffers import codec_of
from softnic.torch.reduction import Reduction

FLOOR_BYTES = 4096
"""Default size below which sums are exact."""
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Compression:
    """The codec for sums of at least `floor_bytes`; None: exact. Raises ValueError."""

    codec: str | None = None
    floor_bytes: int = FLOOR_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", codec_name(self.codec))
        object.__setattr__(self, "floor_bytes", floor_of(self.floor_bytes))

    def codec_for(self, reduction: Reduction, dtype: torch.dtype, count: int) -> str | None:
        """Return the codec for a reduction of `count` elements; None: exact."""
        applies = reduction.sums and dtype in _FLOATS and count * dtype.itemsize >= self.floor_bytes
        return self.codec if applies else None


def codec_name(codec: Any) -> str | None:
    """Return the name of a codec, given as such or by name. Raises ValueError."""
    return None if codec is None else str(codec_of(codec))


def floor_of(floor_bytes: Any) -> int:
    """Return a size as an int. Raises ValueError if it is not a number of bytes."""
    if not isinstance(floor_bytes, (int, np.integer)) or isinstance(floor_bytes, bool) or floor_bytes < 0:
        raise ValueError(f"floor_bytes is {floor_bytes!r}: an integer, 0 or more, is expected")
    return int(floor_bytes)


EXACT = Compression()
