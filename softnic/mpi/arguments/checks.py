"""Checks of the arguments of calls with buffers; code behind them takes valid arguments for granted.

buffers.py converts buffers to flat arrays. Here arrays are compared with each other, and all other arguments are
checked. Errors are ValueErrors without rank and call, which the communicator adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic import codecs
from softnic.collectives.elements import Array, name_of
from softnic.collectives.schedule import offsets, parse, partition
from softnic.comm.error_classes import ERR_COUNT, ERR_RANK, ERR_ROOT, ERR_TAG
from softnic.comm.errors import Refused
from softnic.mpi.arguments.buffers import MessageBuffer
from softnic.mpi.operators import SUM, Op, UndefinedOpError


def same_type(source: Array, result: Array) -> None:
    """Raise ValueError unless both arrays have the same element type."""
    if source.dtype != result.dtype:
        raise ValueError(f"the send buffer holds {name_of(source.dtype)}, the receive buffer {name_of(result.dtype)}")


def same_memory(source: Array, result: Array) -> bool:
    """Return whether both are the same elements of the same buffer, so that the call is in place."""
    places = (source.__array_interface__["data"][0], result.__array_interface__["data"][0])
    return source.dtype == result.dtype and source.size == result.size and places[0] == places[1]


def apart(source: Array, result: Array) -> None:
    """Raise ValueError if the arrays overlap. Both are flat, so their bounds decide."""
    if np.may_share_memory(source, result):
        raise ValueError("the send and receive buffers overlap: use MPI.IN_PLACE")


def blocks_for(array: Array, size: int, what: str) -> int:
    """Return the length of each of `size` equal blocks of an array. Raises ValueError."""
    if array.size % size:
        raise ValueError(f"{what} has {array.size} elements, no multiple of the {size} ranks")
    return array.size // size


def counts_of(counts: Any, size: int) -> tuple[int, ...]:
    """Return `recvcounts` as one integer per rank, each 0 or more. Raises ValueError."""
    try:
        numbers = tuple(counts)
    except TypeError:
        numbers = ()
    if len(numbers) != size or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in numbers):
        raise Refused(ERR_COUNT, f"recvcounts is {counts!r}: {size} integers, 0 or more, are expected, one a rank")
    return tuple(int(number) for number in numbers)


def scattered(source: Array, result: Array, counts: Any, size: int, rank: int, *, in_place: bool) -> tuple[slice, ...]:
    """Return the blocks of Reduce_scatter's input. Raises ValueError if a buffer does not fit."""
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


def gathered(source: Array, result: Array, count: int, rank: int) -> Array | None:
    """Return this rank's block of an Allgather, None if it is in its place already.

    Raises ValueError if it does not fit the receive buffer.
    """
    same_type(source, result)
    if source.size != count:
        raise ValueError(f"the send buffer has {source.size} elements, and a rank's share of the result is {count}")
    if same_memory(source, result[rank * count : (rank + 1) * count]):
        return None
    apart(source, result)
    return source


def operation(op: Any, buffer: MessageBuffer | None = None) -> Op:
    """Return the operator `op`; None: SUM. Raises ValueError if it is not defined for the elements of `buffer`."""
    if op is None:
        op = SUM
    if not isinstance(op, Op) or not op:
        raise UndefinedOpError(f"op is {op!r}: an operation as MPI.SUM is expected")
    if buffer is not None and not op.takes(buffer.array.dtype, buffer.datatype):
        raise UndefinedOpError(f"MPI.{op.name} is not defined for {name_of(buffer.array.dtype)}")
    return op


def rank_in(rank: Any, size: int, what: str) -> int:
    """Return `root`, `dest` or `source` as a rank. Raises ValueError."""
    whole = _whole(rank)
    if not 0 <= whole < size:
        code = ERR_ROOT if what == "root" else ERR_RANK
        raise Refused(code, f"{what} is {rank!r}: a rank of 0..{size - 1} is expected")
    return whole


def tag_of(tag: Any) -> int:
    """Return the tag of a message. Raises ValueError."""
    whole = tag if type(tag) is int else _whole(tag)
    if not 0 <= whole < 1 << 31:
        raise Refused(ERR_TAG, f"tag is {tag!r}: an integer of 0..2^31-1 is expected")
    return whole


def _whole(number: Any) -> int:
    """Return a number as an integer, -1 if it is none. A float may be one, as `comm.size / 2`: mpi4py takes it."""
    if isinstance(number, (int, np.integer)) or (isinstance(number, (float, np.floating)) and number.is_integer()):
        return int(number)
    return -1


def codec_of(codec: Any) -> codecs.Codec:
    """Return a codec given as such or by its name, as in `bounded:10`. Raises ValueError."""
    if isinstance(codec, codecs.Codec):
        return codec
    if not isinstance(codec, str):
        raise ValueError(f"codec is {codec!r}: a name as in 'bounded:10' is expected")
    return codecs.get(codec)


def algorithm_of(algorithm: Any) -> str | None:
    """Return the name of an algorithm of softnic/collectives/schedule, or None. Raises ValueError."""
    if algorithm is None:
        return None
    if not isinstance(algorithm, str):
        raise ValueError(f"algorithm is {algorithm!r}: a name as in 'ring' is expected")
    parse(algorithm)
    return algorithm
