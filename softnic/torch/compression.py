"""Which calls of a process group cross the network compressed.

Only sums and means of floats can be rounded without a program noticing more than noise: all-reduces and
reduce-scatters with SUM, AVG or PREMUL_SUM. All else is exact whatever is set here: broadcasts of weights and buffers,
gathered shards, integers, MIN and MAX, objects. So are sums of fewer bytes than `floor_bytes`: losses, counts and
norms, whose transfer costs a latency and no bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from softnic import codecs
from softnic.torch.reduction import Reduction

FLOOR_BYTES = 4096
"""Less travels exactly, unless said otherwise."""
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Compression:
    """`codec` for sums of at least `floor_bytes`; None: exact."""

    codec: str | None = None
    floor_bytes: int = FLOOR_BYTES

    def __post_init__(self) -> None:
        if self.codec is not None:
            codecs.get(self.codec)

    def codec_for(self, reduction: Reduction, dtype: torch.dtype, count: int) -> str | None:
        """What a reduction of so many elements is compressed by."""
        suits = reduction.sums and dtype in _FLOATS and count * dtype.itemsize >= self.floor_bytes
        return self.codec if suits else None


EXACT = Compression()
