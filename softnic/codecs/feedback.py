"""Error feedback around `bounded`, in one pass over the gradients (native/feedback.h)."""

from __future__ import annotations

import numpy as np

from softnic._native import ffi, lib
from softnic.codecs.registry import Codec, Floats


def takes(codec: Codec) -> bool:
    """Whether `leave` knows the codec: one that rounds every float to multiples of one step, and so leaves sums of what
    it has rounded alone."""
    return codec.number == int(lib.SN_BOUNDED)


def leave(codec: Codec, scale: float, gradient: Floats, residual: Floats, out: Floats) -> int:
    """Rounds gradient + residual to the codec's steps: `out` becomes that, times `scale`, a power of two, and
    `residual` what is left, 0 where there is no number. Returns the bytes that the codec makes of `out`.

    The arrays are contiguous float32 of one size, and do not overlap. Raises TypeError and ValueError."""
    if not takes(codec):
        raise ValueError(f"{codec} does not round to multiples of a step")
    for array in (gradient, residual, out):
        if array.dtype != np.float32:
            raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")
        if array.size != gradient.size:
            raise ValueError(f"{array.size} words go with {gradient.size}")
    kept, to = (ffi.from_buffer("uint8_t[]", array, require_writable=True) for array in (residual, out))
    given = ffi.from_buffer("uint8_t[]", gradient)
    return int(lib.sn_feedback(codec.parameter, scale, given, kept, gradient.size, to))
