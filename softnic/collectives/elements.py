"""Element types: numpy's, and bfloat16, which numpy has not. What they are called, and which of them NICs compress.

An array of bfloat16 is one of BFLOAT16, a structure with a field of 16 bits: it is viewed, cut and copied like any
other, and whoever would compute with it has to say so (softnic/codecs/combine.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.codecs.combine import BFLOAT16, is_half, narrow, widen

__all__ = ["BFLOAT16", "carried", "convert", "kind_of", "name_of", "named"]

Array = npt.NDArray[Any]
_KINDS = "biufc"
_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_AS_SHORT = {"bfp": 15, "truncate": 16}
"""From which parameter on a codec's word is no shorter than a half."""


def name_of(dtype: np.dtype[Any]) -> str:
    """numpy's name, or `bfloat16`."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def named(name: str) -> np.dtype[Any]:
    """The type that has this name, or one of numpy's other names for it (`e`, `f4`). Raises ValueError where buffers
    cannot be of it: booleans, integers, floats and complex numbers of this machine's byte order can."""
    if name == "bfloat16":
        return BFLOAT16
    try:
        dtype = np.dtype(name)
    except TypeError:
        pass
    else:
        if dtype.kind in _KINDS and dtype.isnative:
            return dtype
    raise ValueError(f"{name!r} is no element type of buffers")


def kind_of(dtype: np.dtype[Any]) -> str:
    """b, i, u, f or c, as numpy has it; another letter for what is no element type of buffers."""
    return "f" if dtype == BFLOAT16 else dtype.kind


def carried(dtype: np.dtype[Any], codec: Codec | None) -> tuple[np.dtype[Any], Codec | None]:
    """What elements of a compressed call cross the network as, and by which codec; None: exactly, as they are.

    Codecs are for float32. float64 is rounded to it. float16 and bfloat16 are widened to it, and partial results too
    stay float32 on the way; but where a codec's words are no shorter than theirs, they travel and are combined as they
    are. All other types are exact.
    """
    if codec is None or dtype == _FLOAT32:
        return dtype, codec
    if is_half(dtype):
        shorter = codec.parameter < _AS_SHORT.get(codec.name, np.inf)
        return (_FLOAT32, codec) if shorter else (dtype, None)
    return (_FLOAT32, codec) if dtype == np.float64 else (dtype, None)


def convert(source: Array, target: Array) -> None:
    """Copies elements from one type to the other, of which one is float32: rounded half to even where they are
    narrowed, to infinity where they are too large."""
    if is_half(source.dtype):
        widen(source, target)
    elif is_half(target.dtype):
        narrow(source, target)
    else:
        with np.errstate(over="ignore"):
            np.copyto(target, source, casting="same_kind")
