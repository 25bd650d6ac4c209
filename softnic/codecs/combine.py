"""Reductions element by element, alone and fused with codecs: `combine` and three that save a pass over memory.

Kernels are C (native/reduce.h, which says what becomes of NaNs, zeros and overflow; native/combine.h). Each fused
function gives the bits of the calls that it stands for. All release the GIL while they work. Arrays may have any
shape, are contiguous, and are as many elements as the result; what a result is written to may be an operand but not
overlap one otherwise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.codecs.registry import Bytes, Codec, DecodeError, Floats
from softnic.codecs.threads import threads_for

Array = npt.NDArray[Any]


class Operation(IntEnum):
    """The C's numbers."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3


BFLOAT16: np.dtype[Any] = np.dtype([("bfloat16", np.uint16)])
"""The upper halves of float32s, which numpy has no type for. A structure of its own, so that arrays of them can be
viewed, cut and copied, and numpy takes their bits for numbers nowhere."""
_TYPES = {
    np.dtype(name): number
    for number, name in enumerate(
        ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16")
    )
}
_TYPES[BFLOAT16] = lib.SN_BFLOAT16
_HALVES = (np.dtype(np.float16), BFLOAT16)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `widen` and `narrow` know it: float16 and BFLOAT16."""
    return dtype in _HALVES


def widen(halves: Array, out: Floats | None = None) -> Floats:
    """float16s or bfloat16s as the float32s that they are, in `out` or a new array. TypeError for others."""
    target = np.empty(halves.shape, np.float32) if out is None else out
    _convert(lib.sn_widen, halves.dtype, halves, target, target)
    return target


def narrow(floats: Floats, out: Array) -> Array:
    """float32s rounded half to even to `out`, of float16s or bfloat16s: infinity where they are too large. TypeError
    for other types."""
    _convert(lib.sn_narrow, out.dtype, floats, out, floats)
    return out


def _convert(call: Any, half: np.dtype[Any], source: Array, target: Array, floats: Floats) -> None:
    if not is_half(half):
        raise TypeError(f"{half} is no type of 16-bit floats")
    _check_floats(floats)
    if source.size != target.size:
        raise ValueError(f"{source.size} elements do not fit {target.size}")
    if np.may_share_memory(source, target):
        raise ValueError("out overlaps what is to be converted")
    call(_TYPES[half], _pointer(source), source.size, ffi.from_buffer("uint8_t[]", target, require_writable=True))


def combine(operation: Operation, left: Array, right: Array, out: Array | None = None) -> Array:
    """left op right, into `out` or a new array. TypeError where types differ or are others than floats of 16, 32 and 64
    bits, BFLOAT16 and integers, of this machine's byte order."""
    number = _TYPES.get(left.dtype)
    if number is None:
        raise TypeError(f"there are no reductions of {left.dtype}")
    a, b, to, target = _places(left, right, out)
    lib.sn_parallel_reduce(threads_for(left.nbytes), operation, number, a, b, left.size, to)
    return target


def combine_roundtrip(
    codec: Codec, operation: Operation, left: Floats, right: Floats, out: Floats | None = None
) -> Floats:
    """decode(encode(left op right)): what the owner of a block keeps of it. float32, as everything below."""
    _check_floats(left)
    a, b, to, target = _places(left, right, out)
    lib.sn_combine_roundtrip(codec.number, codec.parameter, operation, a, b, left.size, to)
    return target


def combine_encode(codec: Codec, operation: Operation, left: Floats, right: Floats) -> bytes:
    """encode(left op right)."""
    _check_floats(left)
    _check_same(left, right)
    room, consumed = np.empty(codec.bound(left.size), np.uint8), ffi.new("size_t *")
    a, b, to = _pointer(left), _pointer(right), _pointer(room)
    cut = lib.SN_CODING_BLOCK_WORDS
    used = lib.sn_combine_encode(
        codec.number, codec.parameter, operation, a, b, left.size, cut, to, room.size, consumed
    )
    return room[:used].tobytes()


def decode_combine(codec: Codec, body: Bytes, operation: Operation, right: Floats, out: Floats | None = None) -> Floats:
    """decode(body) op right. After a DecodeError the contents of `out`, `right` itself perhaps, are undefined."""
    _check_floats(right)
    view = _pointer(body)
    _, b, to, target = _places(right, right, out)
    if lib.sn_decode_combine(codec.number, codec.parameter, view, len(view), operation, b, to, right.size):
        raise DecodeError(f"{len(view)} bytes are no {codec} encoding of {right.size} words")
    return target


def _check_floats(array: Floats) -> None:
    if array.dtype != np.float32:
        raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")


def _check_same(left: Array, right: Array) -> None:
    if left.dtype != right.dtype:
        raise TypeError(f"{left.dtype} and {right.dtype} are combined by none of the reductions")
    if left.size != right.size:
        raise ValueError(f"the operands have {left.size} and {right.size} elements")


def _places(left: Array, right: Array, out: Array | None) -> tuple[Any, Any, Any, Array]:
    """Where the operands and the result are, for C, and the result: `out` if it is legal, or a new array."""
    _check_same(left, right)
    a, b = _pointer(left), _pointer(right)
    if out is None:
        target = np.empty(left.shape, left.dtype)
        return a, b, _pointer(target), target
    _check_same(left, out)
    to = ffi.from_buffer("uint8_t[]", out, require_writable=True)
    if (to != a and np.may_share_memory(out, left)) or (to != b and np.may_share_memory(out, right)):
        raise ValueError("out overlaps an operand without being it")
    return a, b, to, out


def _pointer(array: Array | Bytes) -> Any:
    """For C. cffi raises ValueError where the array is not contiguous."""
    return ffi.from_buffer("uint8_t[]", array)
