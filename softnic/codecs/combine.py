"""Elementwise reductions, alone and fused with codecs.

The kernels are in C (native/codecs/reduce.h, which specifies NaNs, zeros and overflow; native/codecs/combine.h). Each
fused function saves a pass over memory and gives the same bits as the separate calls. All release the GIL. Arrays may
have any shape, must be contiguous and of equal size; `out` may be an operand but not overlap one otherwise.
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


class ReduceOp(IntEnum):
    """Arithmetic reduction operators, numbered as in C."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3


class LogicOp(IntEnum):
    """Reduction operators of integers and booleans, numbered as in C. Logical ones give 0 or 1."""

    LAND = 4
    LOR = 5
    LXOR = 6
    BAND = 7
    BOR = 8
    BXOR = 9


BFLOAT16: np.dtype[Any] = np.dtype([("bfloat16", np.uint16)])
"""The upper halves of float32s, for which numpy has no type. A structure, so that arrays of it can be viewed, cut and
copied, but numpy never computes with its bits."""
_TYPES = {
    np.dtype(name): number
    for number, name in enumerate(
        ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16")
    )
}
_TYPES |= {BFLOAT16: lib.SN_BFLOAT16, np.dtype(bool): lib.SN_BOOL}
_TYPES |= {np.dtype(np.complex64): lib.SN_COMPLEX64, np.dtype(np.complex128): lib.SN_COMPLEX128}
if np.dtype(np.longdouble) != np.dtype(np.float64):
    _TYPES |= {np.dtype(np.longdouble): lib.SN_LONG_DOUBLE, np.dtype(np.clongdouble): lib.SN_LONG_COMPLEX}
_HALVES = (np.dtype(np.float16), BFLOAT16)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether `widen` and `narrow` accept the type: float16 and BFLOAT16."""
    return dtype in _HALVES


def widen(halves: Array, out: Floats | None = None) -> Floats:
    """Convert 16-bit floats to float32.

    Parameters
    ----------
    halves : array of float16 or BFLOAT16
        The numbers to convert.
    out : float32 array, optional
        Where to write the result.

    Returns
    -------
    array of float32
        `out`, or a new array.

    Raises
    ------
    TypeError
        For another type.
    """
    target = np.empty(halves.shape, np.float32) if out is None else out
    _convert(lib.sn_widen, halves.dtype, halves, target, target)
    return target


def narrow(floats: Floats, out: Array) -> Array:
    """Convert float32 to 16-bit floats, rounding half to even; numbers too large become infinity.

    Parameters
    ----------
    floats : float32 array
        The numbers to convert.
    out : array of float16 or BFLOAT16
        Where to write the result.

    Returns
    -------
    array of float16 or BFLOAT16
        `out`.

    Raises
    ------
    TypeError
        For another type.
    """
    _convert(lib.sn_narrow, out.dtype, floats, out, floats)
    return out


def _convert(call: Any, half: np.dtype[Any], source: Array, target: Array, floats: Floats) -> None:
    if not is_half(half):
        raise TypeError(f"{half} is not a type of 16-bit floats")
    _check_floats(floats)
    if source.size != target.size:
        raise ValueError(f"{source.size} elements do not fit into {target.size}")
    if np.may_share_memory(source, target):
        raise ValueError("out overlaps the input")
    call(_TYPES[half], _pointer(source), source.size, ffi.from_buffer("uint8_t[]", target, require_writable=True))


def combine(operation: ReduceOp | LogicOp, left: Array, right: Array, out: Array | None = None) -> Array:
    """Compute left op right.

    Parameters
    ----------
    operation : ReduceOp or LogicOp
        The operator.
    left, right : array
        Operands of one type, in native byte order.
    out : array, optional
        Where to write the result; may be an operand.

    Returns
    -------
    array
        `out`, or a new array.

    Raises
    ------
    TypeError
        If the types differ, or the operator is not defined for them.
    """
    number = type_number(left.dtype)
    if not lib.sn_reduces(operation, number):
        raise TypeError(f"{operation.name} of {left.dtype} is not supported")
    a, b, to, target = _operands(left, right, out)
    lib.sn_parallel_reduce(threads_for(left.nbytes), operation, number, a, b, left.size, to)
    return target


def divide(array: Array, divisor: int) -> None:
    """Divide floats or complex numbers in place, as NICs do for averages. Raises TypeError for other types."""
    elements = ffi.from_buffer("uint8_t[]", array, require_writable=True)
    if lib.sn_divide(type_number(array.dtype), elements, array.size, divisor):
        raise TypeError(f"{array.dtype} is not divided")


def type_number(dtype: np.dtype[Any]) -> int:
    """Return the number in C of an element type, -1 of those that buffers cannot have."""
    return _TYPES.get(dtype, -1)


def combine_roundtrip(
    codec: Codec, operation: ReduceOp, left: Floats, right: Floats, out: Floats | None = None
) -> Floats:
    """Compute decode(encode(left op right)) of float32 arrays: what the owner of a block keeps."""
    _check_floats(left)
    a, b, to, target = _operands(left, right, out)
    lib.sn_combine_roundtrip(codec.number, codec.parameter, operation, a, b, left.size, to)
    return target


def combine_encode(codec: Codec, operation: ReduceOp, left: Floats, right: Floats) -> bytes:
    """Compute encode(left op right) of float32 arrays."""
    _check_floats(left)
    _check_same(left, right)
    room, consumed = np.empty(codec.bound(left.size), np.uint8), ffi.new("size_t *")
    a, b, to = _pointer(left), _pointer(right), _pointer(room)
    cut = codec.block_bytes // 4
    used = lib.sn_combine_encode(
        codec.number, codec.parameter, operation, a, b, left.size, cut, to, room.size, consumed
    )
    return room[:used].tobytes()


def decode_combine(codec: Codec, body: Bytes, operation: ReduceOp, right: Floats, out: Floats | None = None) -> Floats:
    """Compute decode(body) op right, for float32.

    After a DecodeError the contents of `out`, which may be `right`, are undefined.
    """
    _check_floats(right)
    view = _pointer(body)
    _, b, to, target = _operands(right, right, out)
    if lib.sn_decode_combine(codec.number, codec.parameter, view, len(view), operation, b, to, right.size):
        raise DecodeError(f"{len(view)} bytes are not a {codec} encoding of {right.size} words")
    return target


def _check_floats(array: Floats) -> None:
    if array.dtype != np.float32:
        raise TypeError(f"codecs work on float32 arrays, not {array.dtype}")


def _check_same(left: Array, right: Array) -> None:
    if left.dtype != right.dtype:
        raise TypeError(f"{left.dtype} and {right.dtype} cannot be combined")
    if left.size != right.size:
        raise ValueError(f"the operands have {left.size} and {right.size} elements")


def _operands(left: Array, right: Array, out: Array | None) -> tuple[Any, Any, Any, Array]:
    """Return operands and result as C pointers, and the result: `out` if it is legal, or a new array."""
    _check_same(left, right)
    a, b = _pointer(left), _pointer(right)
    if out is None:
        target = np.empty(left.shape, left.dtype)
        return a, b, _pointer(target), target
    _check_same(left, out)
    to = ffi.from_buffer("uint8_t[]", out, require_writable=True)
    if (to != a and np.may_share_memory(out, left)) or (to != b and np.may_share_memory(out, right)):
        raise ValueError("out overlaps an operand but is not the same")
    return a, b, to, out


def _pointer(array: Array | Bytes) -> Any:
    """Return a C pointer. cffi raises ValueError if the array is not contiguous."""
    return ffi.from_buffer("uint8_t[]", array)
