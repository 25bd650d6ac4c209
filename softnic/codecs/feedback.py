"""Error feedback for codec `bounded`, in one pass over the gradients (native/feedback.h)."""

from __future__ import annotations

import numpy as np

from softnic._native import ffi, lib
from softnic.codecs.registry import Codec, Floats


def supported(codec: Codec) -> bool:
    """Return whether `quantize` supports the codec.

    It does if the codec rounds every float to multiples of one step, so that it leaves sums of rounded floats
    unchanged.
    """
    return codec.number == int(lib.SN_BOUNDED)


def quantize(codec: Codec, scale: float, gradient: Floats, residual: Floats, out: Floats) -> int:
    """Round gradient + residual to the codec's steps and keep the rounding error.

    Parameters
    ----------
    codec : Codec
        A codec that is `supported`.
    scale : float
        A power of two, applied to the result.
    gradient : float32 array
        The new values.
    residual : float32 array
        Rounding error of earlier calls, replaced by the new one; 0 for infinities and NaNs.
    out : float32 array
        Receives the rounded sum times `scale`.

    Returns
    -------
    int
        Bytes of `out` encoded with the codec.

    Raises
    ------
    TypeError, ValueError
        If the codec is not supported, or the arrays are not float32 of one size. They must be contiguous and not
        overlap.
    """
    if not supported(codec):
        raise ValueError(f"{codec} does not round to multiples of a step")
    for array in (gradient, residual, out):
        if array.dtype != np.float32:
            raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")
        if array.size != gradient.size:
            raise ValueError(f"{array.size} words go with {gradient.size}")
    kept, to = (ffi.from_buffer("uint8_t[]", array, require_writable=True) for array in (residual, out))
    given = ffi.from_buffer("uint8_t[]", gradient)
    return int(lib.sn_feedback(codec.parameter, scale, given, kept, gradient.size, to))
