"""Send and Recv, their compressed twins, and send and recv of objects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from softnic import codecs
from softnic.collectives.elements import carried, convert, name_of, named
from softnic.comm import buffers, messages
from softnic.comm.base import Base
from softnic.comm.buffers import Array
from softnic.comm.connections import CommConnections
from softnic.comm.constants import ERR_TRUNCATE
from softnic.comm.datatypes import Datatype
from softnic.comm.errors import ArgumentError
from softnic.comm.matching import ANY, Message, PendingRecv
from softnic.comm.public_names import PublicNames

ANY_SOURCE = ANY
ANY_TAG = ANY
PROC_NULL = -2
"""No rank: sends to it and receives from it do nothing."""
UNDEFINED = -32766
"""Result of a count that is not whole or an index of no Request; color for no communicator."""
RAW = "raw"
"""The codec that a message of Send_comp's names whose elements are not compressed."""
_TWINS = "Recv receives what Send sent, Recv_comp what Send_comp sent"


class Status(PublicNames):
    """The source, tag and size of a received message."""

    def __init__(self) -> None:
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.count = 0
        """Bytes."""

    def Get_source(self) -> int:
        """Return the rank of the sender."""
        return self.source

    def Get_tag(self) -> int:
        """Return the tag of the message."""
        return self.tag

    def Get_count(self, datatype: Datatype | None = None) -> int:
        """Return the elements of `datatype`, MPI.UNDEFINED if they are not whole; the bytes without it."""
        count, rest = divmod(self.count, datatype.Get_size() if datatype is not None else 1)
        return UNDEFINED if rest else count

    def fill(self, source: int, tag: int, count: int) -> None:
        """Set the source, tag and count in bytes."""
        self.source, self.tag, self.count = source, tag, count


class PointToPoint(Base):
    """The calls with one message. Messages are kept at the receiver, in the order of sending, until received."""

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message; returns when `buf` may be used again, which may be before the message is received."""
        with self._state.call("Send") as connections:
            if _is_null(dest):
                return
            array = buffers.flat(buf, what="the send buffer")
            self._send(connections, dest, tag, buffers.raw(array), name_of(array.dtype))

    def Send_comp(self, buf: Any, dest: int, tag: int = 0, *, codec: Any = None) -> None:
        """Send floats that arrive as decode(encode(x)), and elements of other types as they are.

        Only Recv_comp receives them.
        """
        with self._state.call("Send_comp") as connections:
            if _is_null(dest):
                return
            array = buffers.flat(buf, what="the send buffer")
            name = name_of(array.dtype)
            dtype, carrier = carried(array.dtype, self._options(connections, codec).codec)
            if dtype != array.dtype:
                given, array = array, np.empty(array.size, dtype)
                convert(given, array)
            self._send(connections, dest, tag, buffers.raw(array), name, str(carrier or RAW))

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send any object that can be pickled."""
        with self._state.call("send") as connections:
            if _is_null(dest):
                return
            self._send(connections, dest, tag, memoryview(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)), "")

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receive a message of at most as many elements as `buf` has, and of their type.

        Bytes, on either side, fit any type.
        """
        with self._state.call("Recv") as connections:
            if _is_null(source):
                _received_nothing(status)
                return
            array = buffers.flat(buf, writable=True, what="the receive buffer")
            self._receive(connections, source, tag, lambda message: _fitting(message, array), status)

    def Recv_comp(
        self,
        buf: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
        *,
        codec: Any = None,
    ) -> None:
        """Receive a message of Send_comp; with `codec`, only one that was sent with it."""
        with self._state.call("Recv_comp") as connections:
            if _is_null(source):
                _received_nothing(status)
                return
            array = buffers.flat(buf, writable=True, what="the receive buffer")
            wanted = None if codec is None else buffers.codec_of(codec)
            arriving = _Arriving(array, wanted)
            self._receive(connections, source, tag, arriving.place, status)
            arriving.convert(status)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive and return an object. As with pickle everywhere, ranks must be trusted.

        Parameters
        ----------
        buf
            A buffer that mpi4py would use on the way. It is not needed here, and left as it is.
        """
        place: list[memoryview] = []

        def room(message: Message) -> memoryview:
            if message.announce.dtype:
                raise _misfit(message, "recv takes objects")
            place.append(memoryview(bytearray(message.announce.size)))
            return place[0]

        with self._state.call("recv") as connections:
            if isinstance(buf, (int, np.integer)):
                raise ValueError(f"the first argument is a buffer, as in mpi4py: name the source, recv(source={buf})")
            if _is_null(source):
                _received_nothing(status)
                return None
            self._receive(connections, source, tag, room, status)
            return pickle.loads(place[0]) if place else None

    def _send(
        self, connections: CommConnections, dest: int, tag: int, data: memoryview, dtype: str, codec: str = ""
    ) -> None:
        tag = buffers.tag_of(tag)
        dest = buffers.rank_in(dest, self.size, "dest")
        connections.matcher.send(dest, messages.Announce(tag, data.nbytes, dtype, codec), data)

    def _receive(self, connections: CommConnections, source: int, tag: int, place: Any, status: Status | None) -> None:
        source = source if source == ANY_SOURCE else buffers.rank_in(source, self.size, "source")
        tag = tag if tag == ANY_TAG else buffers.tag_of(tag)
        message = connections.matcher.receive(PendingRecv(source, tag, place))
        if status is not None:
            status.fill(message.source, message.announce.tag, message.announce.size)


def _is_null(rank: Any) -> bool:
    """Whether there is no rank to talk to, and no argument but this one matters."""
    return isinstance(rank, (int, np.integer)) and int(rank) == PROC_NULL


def _received_nothing(status: Status | None) -> None:
    if status is not None:
        status.fill(PROC_NULL, ANY_TAG, 0)


def _fitting(message: Message, array: Array) -> memoryview:
    """Where in `array` a message of Send's belongs."""
    typed = _as_sent(message, array)
    if message.announce.codec:
        raise _misfit(message, _TWINS)
    return _room(message, typed, array)


class _Arriving:
    """A message of Send_comp's on its way to `array`, through float32 where it was converted."""

    def __init__(self, array: Array, wanted: codecs.Codec | None) -> None:
        self._array = array
        self._wanted = wanted
        self._scratch: Array | None = None

    def place(self, message: Message) -> memoryview:
        """Where it is to be received."""
        announce = message.announce
        given, array = self._array, _as_sent(message, self._array)
        self._array = array
        if not announce.codec:
            raise _misfit(message, _TWINS)
        if self._wanted is not None and announce.codec != _announced(array.dtype, self._wanted):
            raise _misfit(message, f"Recv_comp names {self._wanted}")
        dtype = _carried_as(array.dtype, announce.codec)
        if dtype == array.dtype:
            return _room(message, array, given)
        self._scratch = np.empty(min(array.size, announce.size // dtype.itemsize), dtype)
        return _room(message, self._scratch, given)

    def convert(self, status: Status | None) -> None:
        """Once it is there."""
        if self._scratch is not None:
            result = self._array[: self._scratch.size]
            convert(self._scratch, result)
            if status is not None:
                status.count = result.nbytes


def _carry(dtype: np.dtype[Any], codec: codecs.Codec) -> tuple[np.dtype[Any], codecs.Codec | None]:
    return carried(dtype, None if codec.name == RAW else codec)


def _announced(dtype: np.dtype[Any], codec: codecs.Codec) -> str:
    """The codec that Send_comp names for elements that it is asked to send by this one."""
    return str(_carry(dtype, codec)[1] or RAW)


def _carried_as(dtype: np.dtype[Any], codec: str) -> np.dtype[Any]:
    """What elements are that were announced so; without a codec, they are what they are."""
    return _carry(dtype, codecs.get(codec))[0] if codec else dtype


def _as_sent(message: Message, array: Array) -> Array:
    """The receive buffer with the type of the message. Bytes take any type, and any type takes bytes."""
    name = message.announce.dtype
    if name == name_of(array.dtype):
        return array
    if name and array.dtype == np.uint8:
        dtype = named(name)
        return array[: array.size // dtype.itemsize * dtype.itemsize].view(dtype)
    if name != name_of(np.dtype(np.uint8)):
        raise _misfit(message, _takes(array))
    return array.view(np.uint8)


def _room(message: Message, place: Array, array: Array) -> memoryview:
    if message.announce.size > place.nbytes:
        raise _misfit(message, _takes(array))
    return buffers.raw(place)[: message.announce.size]


def _takes(array: Array) -> str:
    return f"the receive buffer takes {array.size} x {name_of(array.dtype)}"


def _misfit(message: Message, expected: str) -> ArgumentError:
    announce = message.announce
    size = _carried_as(named(announce.dtype), announce.codec).itemsize if announce.dtype else 1
    what = f"{announce.size // size} x {announce.dtype}" if announce.dtype else "an object"
    by = f" with {announce.codec}" if announce.codec else ""
    text = f"rank {message.source} sent {what}{by}, tag {announce.tag}: {expected}"
    return ArgumentError(text, rank=message.source, code=ERR_TRUNCATE)
