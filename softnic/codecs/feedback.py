"""Error feedback, in one pass over the gradients (native/codecs/feedback.h)."""

from __future__ import annotations

from collections.abc import Sequence

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
        _check(array, gradient.size)
    kept, to = (ffi.from_buffer("uint8_t[]", array, require_writable=True) for array in (residual, out))
    given = ffi.from_buffer("uint8_t[]", gradient)
    return int(lib.sn_feedback(codec.parameter, scale, given, kept, gradient.size, to))


def round_parts(codec: Codec, gradients: Sequence[Floats], residuals: Sequence[Floats], out: Floats) -> int:
    """Round gradient + residual of parameters one after the other as the codec does, and keep the errors.

    Parameters
    ----------
    codec : Codec
        Any codec. Its blocks are counted from the start of `out`, and reach over parameters.
    gradients : sequence of float32 arrays
        The new values, by parameter.
    residuals : sequence of float32 arrays
        Errors of earlier calls, replaced by the new ones; 0 for infinities and NaNs.
    out : float32 array
        Receives the rounded sums. What is longer than all gradients is filled with zeros.

    Returns
    -------
    int
        Bytes of `out` encoded with the codec.

    Raises
    ------
    TypeError, ValueError
        If the arrays are not float32 of sizes that fit. They must be contiguous and not overlap.
    """
    parts = ffi.new("sn_feedback_part[]", len(gradients))
    held = []
    for part, gradient, residual in zip(parts, gradients, residuals, strict=True):
        _check(gradient, gradient.size)
        _check(residual, gradient.size)
        given, kept = ffi.from_buffer("uint8_t[]", gradient), ffi.from_buffer("uint8_t[]", residual, True)
        part.gradient, part.residual, part.count = given, kept, gradient.size
        held += [given, kept]
    padding = out.size - sum(gradient.size for gradient in gradients)
    if padding < 0:
        raise ValueError(f"{out.size} words are not enough for {out.size - padding}")
    _check(out, out.size)
    to = ffi.from_buffer("uint8_t[]", out, require_writable=True)
    return int(lib.sn_feedback_parts(codec.number, codec.parameter, parts, len(gradients), to, padding))


def _check(array: Floats, size: int) -> None:
    if array.dtype != np.float32:
        raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")
    if array.size != size:
        raise ValueError(f"{array.size} words go with {size}")
