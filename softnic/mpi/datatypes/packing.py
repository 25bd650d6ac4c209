"""Pack and Unpack: the elements of a message as bytes in the program's own memory, in this machine's format or MPI's.

MPI's format, `external32`, is big-endian; a long has four bytes there, and a long double 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.collectives.elements import Array
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments.buffers import message
from softnic.mpi.datatypes.contents import DatatypeContents
from softnic.mpi.datatypes.layout import Bytes, TypeMap

_EXTERNAL = "external32"
_SHORTER = {"l": ">i4", "L": ">u4"}
_LONG_DOUBLES = "gG"
_MANTISSA_BITS = 63
"""Of an x87 number of 80 bits, without the leading bit, which it has and a quadruple number has not."""


class DatatypePacking(DatatypeContents):
    """The calls that pack.

    Parameters of the calls:

    inbuf, outbuf
        Buffers; the packed one is bytes, the other has items of this type.
    position
        Where in the packed buffer the packed items start, in bytes.
    comm
        Not used: all ranks have the same format.
    count
        Number of items.
    datarep
        The format, "external32".
    """

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:  # noqa: ARG002
        """Copy all items of `inbuf` to `outbuf`, and return the position behind them."""
        packed = message([inbuf, self], what="the input").array.view(np.uint8)
        return _put(packed, outbuf, position)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:  # noqa: ARG002
        """Copy packed items to `outbuf`, as many as it has, and return the position behind them."""
        target = message([outbuf, self], writable=True, what="the output")
        items = target.array.view(np.uint8)
        items[:] = _get(inbuf, position, items.size)
        target.write_back()
        return position + items.size

    def Pack_size(self, count: int, comm: Any) -> int:  # noqa: ARG002
        """Return the bytes of packed items."""
        return count * self._layout.size

    def Pack_external(self, datarep: str, inbuf: Any, outbuf: Any, position: int) -> int:
        """Copy all items of `inbuf` to `outbuf` in MPI's format, and return the position behind them."""
        _check(datarep)
        packed = message([inbuf, self], what="the input").array.view(np.uint8)
        return _put(_recoded(self._layout, packed, to_external=True), outbuf, position)

    def Unpack_external(self, datarep: str, inbuf: Any, position: int, outbuf: Any) -> int:
        """Copy packed items in MPI's format to `outbuf`, as many as it has, and return the position behind them."""
        _check(datarep)
        target = message([outbuf, self], writable=True, what="the output")
        items = target.array.view(np.uint8)
        size = target.count * _external_size(self._layout)
        items[:] = _recoded(self._layout, _get(inbuf, position, size), to_external=False)
        target.write_back()
        return position + size

    def Pack_external_size(self, datarep: str, count: int) -> int:
        """Return the bytes of items in MPI's format."""
        _check(datarep)
        return count * _external_size(self._layout)


def _check(datarep: str) -> None:
    if datarep != _EXTERNAL:
        raise ArgumentError(f"the format is {datarep!r}: {_EXTERNAL!r} is expected")


def _put(packed: Bytes, outbuf: Any, position: int) -> int:
    target = message([outbuf, "B"], writable=True, what="the output").array
    end = position + packed.size
    if not 0 <= position <= end <= target.size:
        raise ArgumentError(f"the output has {target.size} bytes: {packed.size} from {position} on do not fit")
    target[position:end] = packed
    return end


def _get(inbuf: Any, position: int, size: int) -> Bytes:
    source = message([inbuf, "B"], what="the input").array
    if not 0 <= position <= position + size <= source.size:
        raise ArgumentError(f"the input has {source.size} bytes, not {size} from {position} on")
    return source[position : position + size]


def _external(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return how elements are in MPI's format; long doubles are pairs of 64 bits."""
    if dtype.char in _LONG_DOUBLES and dtype.itemsize > np.dtype("d").itemsize:
        return np.dtype((">u8", dtype.itemsize // 8))
    return np.dtype(_SHORTER[dtype.char]) if dtype.char in _SHORTER else dtype.newbyteorder(">")


def _external_size(layout: TypeMap) -> int:
    sizes = [_external(dtype).itemsize / dtype.itemsize for dtype in layout.elements]
    return int(sum(length * sizes[kind] for length, kind in zip(layout.lengths, layout.kinds, strict=True)))


def _recoded(layout: TypeMap, packed: Bytes, *, to_external: bool) -> Bytes:
    """Return the bytes of packed items in the other format."""
    own, external = layout.size, _external_size(layout)
    items = packed.reshape(-1, (own if to_external else external) or 1)
    result = np.empty((len(items), external if to_external else own), np.uint8)
    at = to = 0
    for length, kind in zip(layout.lengths.tolist(), layout.kinds.tolist(), strict=True):
        dtype = layout.elements[kind]
        other = length // dtype.itemsize * _external(dtype).itemsize
        size, new_size = (length, other) if to_external else (other, length)
        run = np.ascontiguousarray(items[:, at : at + size]).reshape(-1)
        elements = _to_external(run.view(dtype)) if to_external else _to_own(run, dtype)
        result[:, to : to + new_size] = elements.view(np.uint8).reshape(len(items), new_size)
        at, to = at + size, to + new_size
    return result.reshape(-1)


def _to_external(elements: Array) -> Array:
    dtype = elements.dtype
    if dtype.char in _LONG_DOUBLES and dtype.itemsize > np.dtype("d").itemsize:
        words = elements.view("<u8").reshape(-1, 2)
        mantissa, head = words[:, 0], words[:, 1]
        if np.finfo(np.longdouble).nmant == _MANTISSA_BITS:
            fraction = mantissa << np.uint64(1)
            head = (head & np.uint64(0xFFFF)) << np.uint64(48) | fraction >> np.uint64(16)
            mantissa = fraction << np.uint64(48)
        return np.ascontiguousarray(np.stack((head, mantissa), axis=1).astype(">u8")).reshape(-1)
    result = elements.astype(_external(dtype))
    if dtype.char in _SHORTER and (result != elements).any():
        raise ArgumentError(f"{_EXTERNAL} has four bytes for a long, and a number needs more")
    return result


def _to_own(run: Bytes, dtype: np.dtype[Any]) -> Array:
    if dtype.char in _LONG_DOUBLES and dtype.itemsize > np.dtype("d").itemsize:
        words = run.view(">u8").astype("<u8").reshape(-1, 2)
        head, mantissa = words[:, 0], words[:, 1]
        if np.finfo(np.longdouble).nmant == _MANTISSA_BITS:
            fraction = head << np.uint64(16) | mantissa >> np.uint64(48)
            head = head >> np.uint64(48)
            exponent = head & np.uint64(0x7FFF)
            mantissa = fraction >> np.uint64(1) | np.where(exponent > 0, np.uint64(1) << np.uint64(63), np.uint64(0))
        own: Array = np.stack((mantissa, head), axis=1).reshape(-1).view(dtype)
        return own
    return run.view(_external(dtype)).astype(dtype)
