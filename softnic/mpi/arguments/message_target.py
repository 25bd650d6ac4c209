"""Where received messages go, and which messages fit: buffers, arrays, buffers of compressed messages, and objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic import codecs
from softnic.collectives.elements import Array, carried, convert, name_of, named, raw
from softnic.comm.arrivals import Arrival
from softnic.comm.error_classes import ERR_TRUNCATE
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.buffers import bytes_of
from softnic.mpi.pickling import pickle
from softnic.terminal import printable

RAW = "raw"
"""The codec that a message of Send_comp's names whose elements are not compressed."""
_TWINS = "Recv receives what Send sent, Recv_comp what Send_comp sent"
_UINT8: np.dtype[Any] = np.dtype(np.uint8)
_INTEGERS = "biu"


class MessageTarget:
    """Where a message goes. This one drops messages of PROC_NULL, of which there are none."""

    __slots__ = ()

    def place(self, message: Arrival) -> memoryview:
        """Return the memory for a message. Raises ArgumentError if it does not fit."""
        raise NotImplementedError

    def finish(self) -> None:
        """Put the message in its final form, once it has arrived."""

    def value(self) -> Any:
        """Return the object received, None for a buffer."""

    def count(self, message: Arrival) -> int:
        """Return the number of bytes received."""
        return message.announce.size


class BufferTarget(MessageTarget):
    """A buffer for a message of Send's."""

    __slots__ = ("_buffer", "_dtype", "_received", "_spec", "_view")

    def __init__(self, buf: Any) -> None:
        self._buffer: buffers.MessageBuffer | None = None
        """None: the buffer is one of the usual ones, and nothing unusual has come for it."""
        self._received = 0
        found = bytes_of(buf)
        if found is None or found[0].readonly:
            self._buffer = buffers.message(buf, writable=True, what="the receive buffer")
        else:
            self._view, self._dtype = found
            self._spec = tuple(buf) if isinstance(buf, list) else buf

    def place(self, message: Arrival) -> memoryview:
        announce = message.announce
        if self._buffer is None:
            if announce.dtype == self._dtype and announce.size <= self._view.nbytes and not announce.codec:
                return self._view[: announce.size]
            self._buffer = buffers.message(self._spec, writable=True, what="the receive buffer")
        array = self._buffer.array
        self._received = announce.size
        typed = _as_sent(message, array)
        if announce.codec:
            raise _misfit(message, _TWINS)
        return _room(message, typed, array)

    def finish(self) -> None:
        if self._buffer is not None:
            self._buffer.write_back(self._received)


class CompressedTarget(MessageTarget):
    """A buffer for a message of Send_comp's, which arrives as float32 where it was converted."""

    def __init__(self, buf: Any, codec: Any) -> None:
        self._array = buffers.flat(buf, writable=True, what="the receive buffer")
        self._wanted = None if codec is None else checks.codec_of(codec)
        self._scratch: Array | None = None

    def place(self, message: Arrival) -> memoryview:
        announce = message.announce
        given, array = self._array, _as_sent(message, self._array)
        if not announce.codec:
            raise _misfit(message, _TWINS)
        if self._wanted is not None and announce.codec != _announced(array.dtype, self._wanted):
            raise _misfit(message, f"Recv_comp names {self._wanted}")
        self._array = array
        dtype = _carried_as(array.dtype, announce.codec)
        if dtype == array.dtype:
            return _room(message, array, given)
        self._scratch = np.empty(min(array.size, announce.size // dtype.itemsize), dtype)
        return _room(message, self._scratch, given)

    def finish(self) -> None:
        if self._scratch is not None:
            convert(self._scratch, self._array[: self._scratch.size])

    def count(self, message: Arrival) -> int:
        if self._scratch is None:
            return super().count(message)
        return self._scratch.size * self._array.itemsize


class BytesTarget(MessageTarget):
    """Memory for the bytes of a message, whatever they are; without it, it is made when the message comes."""

    __slots__ = ("memory",)

    def __init__(self, memory: memoryview | None = None) -> None:
        self.memory = memory

    def place(self, message: Arrival) -> memoryview:
        size = message.announce.size
        if self.memory is None:
            self.memory = memoryview(bytearray(size))
        if size > self.memory.nbytes:
            text = f"rank {message.source} sent {size} bytes: the receive buffer takes {self.memory.nbytes}"
            raise ArgumentError(text, rank=message.source, code=ERR_TRUNCATE)
        return self.memory[:size]


class ObjectTarget(BytesTarget):
    """An object, or the bytes of a pickled one. An empty message is None."""

    __slots__ = ()

    def place(self, message: Arrival) -> memoryview:
        if message.announce.dtype not in ("", name_of(_UINT8)):
            raise _misfit(message, "recv takes objects")
        return super().place(message)

    def value(self) -> Any:
        return pickle.loads(self.memory) if self.memory else None


class ExactTarget(MessageTarget):
    """A flat array for a message of exactly as many elements and of their type."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def place(self, message: Arrival) -> memoryview:
        announce, array = message.announce, self._array
        if (announce.size, announce.dtype) != (array.nbytes, name_of(array.dtype)):
            text = f"rank {message.source} sent {announce.size} bytes of {printable(announce.dtype) or 'an object'}"
            wanted = f"{array.nbytes} of {name_of(array.dtype)}"
            raise ArgumentError(f"{text} where {wanted} are expected", rank=message.source)
        return raw(array)


def outgoing(array: Array, codec: codecs.Codec | None) -> tuple[Array, str]:
    """Return the elements that cross the network for those of a compressed message, and the codec to announce."""
    dtype, carrier = carried(array.dtype, codec)
    if dtype != array.dtype:
        given, array = array, np.empty(array.size, dtype)
        convert(given, array)
    return array, str(carrier or RAW)


def _carry(dtype: np.dtype[Any], codec: codecs.Codec) -> tuple[np.dtype[Any], codecs.Codec | None]:
    return carried(dtype, None if codec.name == RAW else codec)


def _announced(dtype: np.dtype[Any], codec: codecs.Codec) -> str:
    """The codec that Send_comp names for elements that it is asked to send by this one."""
    return str(_carry(dtype, codec)[1] or RAW)


def _carried_as(dtype: np.dtype[Any], codec: str) -> np.dtype[Any]:
    """What elements are that were announced so; without a codec, they are what they are."""
    return _carry(dtype, codecs.get(codec))[0] if codec else dtype


def _as_sent(message: Arrival, array: Array) -> Array:
    """The receive buffer with the type of the message.

    Bytes take any type, and any type takes bytes and objects; integers take integers of the same size.
    """
    name = message.announce.dtype
    if name == name_of(array.dtype):
        return array
    if name in ("", name_of(_UINT8)):
        return array.view(_UINT8)
    dtype = named(name)
    if array.dtype == _UINT8:
        return array[: array.size // dtype.itemsize * dtype.itemsize].view(dtype)
    if dtype.kind in _INTEGERS and array.dtype.kind in _INTEGERS and dtype.itemsize == array.itemsize:
        return array
    raise _misfit(message, _takes(array))


def _room(message: Arrival, place: Array, array: Array) -> memoryview:
    if message.announce.size > place.nbytes:
        raise _misfit(message, _takes(array))
    return raw(place)[: message.announce.size]


def _takes(array: Array) -> str:
    return f"the receive buffer takes {array.size} x {name_of(array.dtype)}"


def _misfit(message: Arrival, expected: str) -> ArgumentError:
    announce = message.announce
    size = _carried_as(named(announce.dtype), announce.codec).itemsize if announce.dtype else 1
    what = f"{announce.size // size} x {announce.dtype}" if announce.dtype else "an object"
    by = f" with {printable(announce.codec)}" if announce.codec else ""
    text = f"rank {message.source} sent {what}{by}, tag {announce.tag}: {expected}"
    return ArgumentError(text, rank=message.source, code=ERR_TRUNCATE)
