"""Element types of buffers: numpy's and bfloat16, their names, and which of them NICs compress.

numpy has no bfloat16. Such an array has the dtype BFLOAT16, a structure with one 16-bit field: it can be viewed, sliced
and copied; arithmetic is in softnic/codecs/combine.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.codecs.combine import BFLOAT16, is_half, narrow, widen

__all__ = ["BFLOAT16", "Array", "carried", "convert", "kind_of", "name_of", "named", "raw"]

Array = npt.NDArray[Any]
_KINDS = "biufc"
_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_AS_SHORT = {"bfp": 15, "truncate": 16, "exact": 16}
"""By codec, the smallest parameter at which its words are no shorter than 16 bits."""


def raw(array: Array) -> memoryview:
    """Return the bytes of a flat array."""
    return array.view(np.uint8).data


def name_of(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of an element type, or `bfloat16`."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def named(name: str) -> np.dtype[Any]:
    """Return the element type with a name of numpy's (`float32`, `f4`, `f`), or `bfloat16`.

    Raises ValueError unless it is one of booleans, integers, floats or complex numbers in this machine's byte order.
    """
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
    """Return numpy's letter for the kind of an element type: b, i, u, f or c; others cannot be in buffers."""
    return "f" if dtype == BFLOAT16 else dtype.kind


def carried(dtype: np.dtype[Any], codec: Codec | None) -> tuple[np.dtype[Any], Codec | None]:
    """Return the type that elements of a compressed call are sent as, and the codec; None: they are sent unchanged.

    Codecs take float32. float64 is rounded to it. float16 and bfloat16 are widened to it, and partial results stay
    float32; but with a codec whose words are no shorter than 16 bits, they are sent and combined unchanged. So are all
    other types.
    """
    if codec is None or dtype == _FLOAT32:
        return dtype, codec
    if is_half(dtype):
        shorter = codec.parameter < _AS_SHORT.get(codec.name, np.inf)
        return (_FLOAT32, codec) if shorter else (dtype, None)
    return (_FLOAT32, codec) if dtype == np.float64 else (dtype, None)


def convert(source: Array, target: Array) -> None:
    """Copy elements between float32 and another floating-point type.

    Narrowing rounds half to even; values out of range become infinite.
    """
    if is_half(source.dtype):
        widen(source, target)
    elif is_half(target.dtype):
        narrow(source, target)
    else:
        with np.errstate(over="ignore"):
            np.copyto(target, source, casting="same_kind")
