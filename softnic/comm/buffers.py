"""All checking of what callers hand to the buffer methods; everywhere else arrays are legal.

A buffer is anything with the buffer protocol, or with `__array_interface__` or `__array__` that shares its memory
(torch CPU tensors, those of bfloat16 included), alone or in mpi4py's lists: [data, count], [data, datatype],
[data, count, datatype] and [data, (count, displacement), datatype], counts in elements. It comes out as a flat numpy
array over the same memory: nothing is ever copied or converted here. Errors are ValueErrors without rank and call,
which the communicator adds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.comm.elements import BFLOAT16, kind_of, name_of, named
from softnic.comm.operations import DATATYPES, SUM, Datatype, Op
from softnic.comm.schedule import offsets, parse, partition

Array = npt.NDArray[Any]


class InPlace:
    """The type of MPI.IN_PLACE: the input stands where the result will."""

    def __repr__(self) -> str:
        return "MPI.IN_PLACE"


IN_PLACE: Final = InPlace()
_KINDS = "biufc"


def flat(spec: Any, *, writable: bool = False, what: str = "the buffer") -> Array:
    """The array of a buffer specification. `what` names it in errors."""
    if isinstance(spec, (list, tuple)):
        return _listed(spec, writable, what)
    array = _memory(spec, what)
    if (
        array.dtype.kind == "V" and array.dtype.name == "bfloat16"
    ):  # numpy's name for what another package has added to it
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
    """The array over an object's own memory."""
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
    """Of an object that exports an array otherwise; it must be its memory and not a copy."""
    detached = data.detach() if hasattr(data, "detach") else data
    if str(getattr(detached, "dtype", "")) == "torch.bfloat16":  # which torch lets numpy have as integers only
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


def _listed(spec: Sequence[Any], writable: bool, what: str) -> Array:
    """mpi4py's lists."""
    match list(spec):
        case [data]:
            count, datatype = None, None
        case [data, (Datatype() | str()) as datatype]:
            count = None
        case [data, count]:
            datatype = None
        case [data, count, datatype]:
            pass
        case _:
            raise ValueError(f"{what} is a list of {len(spec)}: [data, count, datatype] is expected")
    array = flat(data, writable=writable, what=what)
    if datatype is not None:
        array = _as_type(array, _dtype(datatype, what), what)
    return array if count is None else _counted(array, count, what)


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
    """Raw bytes take any type, and 16-bit integers that of bfloat16; what has a type must have this one."""
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


def _counted(array: Array, count: Any, what: str) -> Array:
    count, displacement = count if isinstance(count, tuple) and len(count) == 2 else (count, 0)
    numbers = (count, displacement)
    if not all(isinstance(number, (int, np.integer)) and number >= 0 for number in numbers):
        raise ValueError(f"{what} has the count {count!r}: an integer, 0 or more, is expected")
    if displacement + count > array.size:
        raise ValueError(f"{what} has {array.size} elements, fewer than the {displacement + count} asked for")
    return array[displacement : displacement + count]


def raw(array: Array) -> memoryview:
    """The bytes of a flat array."""
    return array.view(np.uint8).data


def pair(send: Any, receive: Any) -> tuple[Array, Array]:
    """Input and output of a reduction: the same array for IN_PLACE, else two of one type and length."""
    result = flat(receive, writable=True, what="the receive buffer")
    if isinstance(send, InPlace):
        return result, result
    source = flat(send, what="the send buffer")
    same_type(source, result)
    if source.size != result.size:
        raise ValueError(f"the send buffer has {source.size} elements, the receive buffer {result.size}")
    apart(source, result)
    return source, result


def same_type(source: Array, result: Array) -> None:
    if source.dtype != result.dtype:
        raise ValueError(f"the send buffer holds {name_of(source.dtype)}, the receive buffer {name_of(result.dtype)}")


def apart(source: Array, result: Array) -> None:
    """Flat arrays overlap or not by their bounds alone."""
    if np.may_share_memory(source, result):
        raise ValueError("the send and receive buffers overlap: use MPI.IN_PLACE")


def blocks_for(array: Array, size: int, what: str) -> int:
    """The length of each of `size` equal blocks of an array."""
    if array.size % size:
        raise ValueError(f"{what} has {array.size} elements, no multiple of the {size} ranks")
    return array.size // size


def counts_of(counts: Any, size: int) -> tuple[int, ...]:
    """`recvcounts`: as many integers, 0 or more, as there are ranks."""
    try:
        numbers = tuple(counts)
    except TypeError:
        numbers = ()
    if len(numbers) != size or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in numbers):
        raise ValueError(f"recvcounts is {counts!r}: {size} integers, 0 or more, are expected, one a rank")
    return tuple(int(number) for number in numbers)


def scattered(source: Array, result: Array, counts: Any, size: int, rank: int, *, in_place: bool) -> tuple[slice, ...]:
    """The blocks of a Reduce_scatter's input, checked against both buffers."""
    blocks = partition(source.size, size) if counts is None else offsets(counts_of(counts, size))
    if blocks[-1].stop != source.size:
        raise ValueError(f"the input has {source.size} elements, and recvcounts is for {blocks[-1].stop}")
    if not in_place:
        same_type(source, result)
        own = blocks[rank].stop - blocks[rank].start
        if result.size < own:
            raise ValueError(f"the receive buffer has {result.size} elements, fewer than this rank's {own}")
        apart(source, result)
    return blocks


def gathered(source: Array, result: Array, count: int) -> Array:
    """This rank's block of an Allgather, checked against the receive buffer."""
    same_type(source, result)
    if source.size != count:
        raise ValueError(f"the send buffer has {source.size} elements, and a rank's share of the result is {count}")
    apart(source, result)
    return source


def operation(op: Any, array: Array | None = None) -> Op:
    """`op`, defined for the elements of `array`. None is SUM."""
    if op is None:
        op = SUM
    if not isinstance(op, Op):
        raise ValueError(f"op is {op!r}: MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN or MPI.AVG is expected")
    if array is not None and not op.takes(array.dtype):
        raise ValueError(f"MPI.{op.name} is not defined for {name_of(array.dtype)}")
    return op


def rank_in(rank: Any, size: int, what: str) -> int:
    """`root`, `dest` or `source`, as a rank."""
    if not isinstance(rank, (int, np.integer)) or not 0 <= rank < size:
        raise ValueError(f"{what} is {rank!r}: a rank of 0..{size - 1} is expected")
    return int(rank)


def tag_of(tag: Any) -> int:
    if not isinstance(tag, (int, np.integer)) or not 0 <= tag < 1 << 31:
        raise ValueError(f"tag is {tag!r}: an integer of 0..2^31-1 is expected")
    return int(tag)


def codec_of(codec: Any) -> codecs.Codec:
    """A codec, or its name as in `bounded:10`."""
    if isinstance(codec, codecs.Codec):
        return codec
    if not isinstance(codec, str):
        raise ValueError(f"codec is {codec!r}: a name as in 'bounded:10' is expected")
    return codecs.get(codec)


def algorithm_of(algorithm: Any) -> str | None:
    """`algorithm=`: None, or one of softnic/comm/schedule's."""
    if algorithm is None:
        return None
    if not isinstance(algorithm, str):
        raise ValueError(f"algorithm is {algorithm!r}: a name as in 'ring' is expected")
    parse(algorithm)
    return algorithm
