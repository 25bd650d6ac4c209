"""Buffer specifications: converts the buffer arguments of calls to flat numpy arrays over the same memory.

A buffer is an object with the buffer protocol, or with `__array_interface__` or `__array__` if they share its memory
(torch CPU tensors, bfloat16 included). It is given alone or in one of mpi4py's lists: [data, count], [data, datatype],
[data, count, datatype], [data, count, displacement, datatype]. (count, displacement) may replace the count. Both are
numbers of elements; None: as the buffer itself has it. Nothing is copied or converted.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from softnic.collectives.elements import BFLOAT16, kind_of, name_of, named
from softnic.collectives.operations import DATATYPES, Datatype

Array = npt.NDArray[Any]
_KINDS = "biufc"


class InPlace:
    """The type of MPI.IN_PLACE: the input is in the receive buffer."""

    def __repr__(self) -> str:
        return "MPI.IN_PLACE"

    def __reduce__(self) -> str:
        return "IN_PLACE"


IN_PLACE: Final = InPlace()


def is_in_place(send: Any) -> bool:
    """Return whether a send buffer is MPI.IN_PLACE, or None, which means the same in mpi4py."""
    return send is None or isinstance(send, InPlace)


def flat(spec: Any, *, writable: bool = False, what: str = "the buffer", blocks: int = 1) -> Array:
    """Return the flat array of a buffer specification.

    Parameters
    ----------
    spec
        The buffer, alone or in a list.
    writable
        Whether the call writes to the buffer.
    what
        The buffer's name in errors.
    blocks
        Number of blocks in the buffer, as in Allgather's receive buffer; a count in `spec` is that of one block.

    Raises
    ------
    ValueError
        If `spec` is not a valid specification.
    """
    if isinstance(spec, (list, tuple)):
        return _listed(spec, writable, what, blocks)
    array = _memory(spec, what)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # of ml_dtypes
        array = array.view(np.uint16).view(BFLOAT16)
    if kind_of(array.dtype) not in _KINDS:
        raise ValueError(f"{what} holds {array.dtype}; a buffer holds booleans, integers, floats or complex numbers")
    if not array.dtype.isnative:
        raise ValueError(f"{what} holds {array.dtype} in another byte order than this machine's")
    if writable and not array.flags.writeable:
        raise ValueError(f"{what} is read-only, and the call writes to it")
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise ValueError(f"{what} is not contiguous: copy it first (numpy.ascontiguousarray)")


def _memory(data: Any, what: str) -> Array:
    """Return an array over an object's own memory."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, InPlace):
        raise ValueError(f"{what} cannot be MPI.IN_PLACE")
    if data is None:
        raise ValueError(f"{what} is missing")
    try:
        view = memoryview(data)
    except TypeError:
        return _foreign(data, what)
    try:
        array = np.asarray(view)
    except (ValueError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{what} has the element format {view.format!r}, which numpy does not know") from error
    return array.view(np.uint8) if array.dtype.kind == "S" else array


def _foreign(data: Any, what: str) -> Array:
    """Return an array over the memory of an object without the buffer protocol."""
    detached = data.detach() if hasattr(data, "detach") else data
    if str(getattr(detached, "dtype", "")) == "torch.bfloat16":  # torch exports it as integers only
        integers = detached.view(sys.modules[type(detached.dtype).__module__].int16)
        return _foreign(integers, what).view(np.uint16).view(BFLOAT16)
    if not hasattr(detached, "__array_interface__") and not hasattr(detached, "__array__"):
        raise ValueError(f"{what} is a {type(data).__name__}: an array or another buffer is expected")
    try:
        first, second = np.asarray(detached), np.asarray(detached)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what} is a {type(data).__name__} that numpy has no view of: {error}") from error
    if first.size and not np.shares_memory(first, second):
        raise ValueError(f"{what} is a {type(data).__name__} that gives numpy copies of its memory only")
    return first


class _Spec(NamedTuple):
    """The parts of one of mpi4py's lists. Fields set to None follow from the buffer."""

    data: Any
    count: Any = None
    displacement: Any = None
    datatype: Any = None


def _unpacked(spec: Sequence[Any], what: str) -> _Spec:
    match list(spec):
        case [data]:
            return _Spec(data)
        case [data, (Datatype() | str()) as datatype]:
            return _Spec(data, datatype=datatype)
        case [data, (count, displacement)]:
            return _Spec(data, count, displacement)
        case [data, count]:
            return _Spec(data, count)
        case [data, (count, displacement), datatype]:
            return _Spec(data, count, displacement, datatype)
        case [data, count, datatype]:
            return _Spec(data, count, datatype=datatype)
        case [data, count, displacement, datatype]:
            return _Spec(data, count, displacement, datatype)
    raise ValueError(f"{what} is a list of {len(spec)}: [data, count, datatype] is expected")


def _listed(spec: Sequence[Any], writable: bool, what: str, blocks: int) -> Array:
    data, count, displacement, datatype = _unpacked(spec, what)
    count = None if count is None else _integer(count, "count", what)
    displacement = 0 if displacement is None else _integer(displacement, "displacement", what)
    if data is None:
        return _empty(count, datatype, what)
    array = flat(data, writable=writable, what=what)
    if datatype is not None:
        array = _as_type(array, _dtype(datatype, what), what)
    if count is None:
        count, blocks = max(0, array.size - displacement), 1
    asked = displacement + count * blocks
    if asked > array.size:
        each = f" ({count} for each of {blocks} ranks)" if blocks > 1 else ""
        raise ValueError(f"{what} has {array.size} elements, fewer than the {asked} asked for{each}")
    return array[displacement:asked]


def _empty(count: int | None, datatype: Any, what: str) -> Array:
    """Return the array of [None, 0, datatype]."""
    if datatype is None:
        raise ValueError(f"{what} is None: a datatype is expected with it, as in [None, 0, MPI.BYTE]")
    if count:
        raise ValueError(f"{what} is None, and its count is {count}")
    return np.empty(0, _dtype(datatype, what))


def _integer(number: Any, name: str, what: str) -> int:
    """Return a count or a displacement. Raises ValueError."""
    with suppress(TypeError):
        if (value := operator.index(number)) >= 0:
            return value
    raise ValueError(f"{what} has the {name} {number!r}: an integer, 0 or more, is expected")


def _dtype(datatype: Any, what: str) -> np.dtype[Any]:
    if isinstance(datatype, Datatype):
        return datatype.dtype
    if isinstance(datatype, str):
        if datatype in DATATYPES:
            return DATATYPES[datatype].dtype
        with suppress(ValueError):
            return named(datatype)
    raise ValueError(f"{what} names the datatype {datatype!r}, which is none (MPI.FLOAT and 'f' are)")


def _as_type(array: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Return the array as elements of `dtype`: bytes may be any type, and 16-bit integers bfloat16.

    Other arrays must have this kind and size already.
    """
    if array.dtype == dtype:
        return array
    if dtype == BFLOAT16 and array.dtype in (np.uint16, np.int16):
        return array.view(np.uint16).view(BFLOAT16)
    if BFLOAT16 not in (array.dtype, dtype) and (array.dtype.kind, array.dtype.itemsize) == (
        dtype.kind,
        dtype.itemsize,
    ):
        return array
    if array.dtype != np.uint8 and dtype != np.uint8:
        raise ValueError(f"{what} holds {name_of(array.dtype)}, and the datatype given is {name_of(dtype)}")
    if array.nbytes % dtype.itemsize:
        raise ValueError(f"{what} has {array.nbytes} bytes, no whole number of {name_of(dtype)}")
    return array.view(dtype)
