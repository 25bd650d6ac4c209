"""Selects the calls of a process group that are compressed.

Rounding is only noise in sums and means of floats: all-reduce and reduce-scatter with SUM, AVG or PREMUL_SUM. Copies of
floats, which are weights and buffers in broadcasts and gathered shards, have a codec of their own, which is lossless as
a rule. All other calls are always exact: integers, MIN and MAX, objects. So are calls of fewer than `floor_bytes`, such
as losses, counts and norms, whose cost is latency and not bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch

from softnic.mpi.arguments.checks import codec_of
from softnic.mpi.collectives.codec_choice import either_of
from softnic.torch.reduction import Reduction

FLOOR_BYTES = 4096
"""Default size below which sums are exact."""
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_LOSSLESS = "exact"
_WORD_BYTES = 4


class Unset(Enum):
    """The type of an argument that is not given, where None means something."""

    UNSET = "not given"


UNSET = Unset.UNSET


@dataclass(frozen=True)
class DeviceUse:
    """What is done on the device of the tensors, if they are not the host's."""

    encodes: bool = True
    """Whether codecs run there, if they can; else NICs encode."""
    piece_bytes: int | None = None
    """Of a rank's part, encoded at a time; None: 1 to 4 MiB, by what there is."""


@dataclass(frozen=True)
class Compression:
    """The codecs of sums and of copies of at least `floor_bytes`; None: unencoded. Raises ValueError."""

    codec: str | None = None
    floor_bytes: int = FLOOR_BYTES
    weights: str | None = None
    use: DeviceUse = field(default_factory=DeviceUse)

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", codec_name(self.codec))
        object.__setattr__(self, "floor_bytes", floor_of(self.floor_bytes))
        object.__setattr__(self, "weights", copy_codec_name(self.weights))

    def codec_for(self, reduction: Reduction, dtype: torch.dtype, count: int) -> str | None:
        """Return the codec for a reduction of `count` elements; None: exact."""
        applies = reduction.sums and dtype in _FLOATS and count * dtype.itemsize >= self.floor_bytes
        return self.codec if applies else None

    def copied_by(self, dtype: torch.dtype, count: int) -> CopyCodec | None:
        """Return how `count` elements are copied, in pieces of that size from each rank; None: unencoded.

        A lossless codec takes the width of the elements: `exact:16` and `exact:32` are the same here. It needs whole
        words of 32 bits, so an odd number of 16-bit elements is not encoded.
        """
        size = count * dtype.itemsize
        if self.weights is None or size < self.floor_bytes:
            return None
        if not self.weights.startswith(_LOSSLESS):
            return CopyCodec(self.weights, as_words=False) if dtype in _FLOATS else None
        width = 16 if dtype.itemsize == 2 else 32
        encoded = (dtype in _FLOATS and dtype.itemsize <= _WORD_BYTES) or dtype == torch.uint8
        return CopyCodec(f"{_LOSSLESS}:{width}", as_words=True) if encoded and size % _WORD_BYTES == 0 else None


@dataclass(frozen=True)
class CopyCodec:
    """The codec of a copy."""

    name: str
    as_words: bool
    """Whether it encodes the bytes as words of 32 bits, whatever the elements, or else the elements."""


def codec_name(codec: Any) -> str | None:
    """Return the name of a codec, given as such or by name, or of `either`. Raises ValueError."""
    return None if codec is None else str(either_of(codec) or codec_of(codec))


def copy_codec_name(codec: Any) -> str | None:
    """Return the name of a codec of copies, given as such or by name. Raises ValueError."""
    return None if codec is None else str(codec_of(codec))


def floor_of(floor_bytes: Any) -> int:
    """Return a size as an int. Raises ValueError if it is not a number of bytes."""
    if not isinstance(floor_bytes, (int, np.integer)) or isinstance(floor_bytes, bool) or floor_bytes < 0:
        raise ValueError(f"floor_bytes is {floor_bytes!r}: an integer, 0 or more, is expected")
    return int(floor_bytes)


def warmup_of(warmup: Any) -> int:
    """Return a number of steps as an int. Raises ValueError if it is none."""
    if not isinstance(warmup, (int, np.integer)) or isinstance(warmup, bool) or warmup < 0:
        raise ValueError(f"warmup is {warmup!r}: a number of steps, 0 or more, is expected")
    return int(warmup)


EXACT = Compression()
