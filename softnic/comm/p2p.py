"""Send and Recv, their compressed twins, and send and recv of objects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from softnic.comm import buffers, wire
from softnic.comm.base import Base
from softnic.comm.buffers import Array
from softnic.comm.errors import CommError
from softnic.comm.matching import ANY, Message, Receive
from softnic.comm.operations import Datatype
from softnic.comm.world import Session

ANY_SOURCE = ANY
ANY_TAG = ANY
PROC_NULL = -2
"""No rank: sending to it and receiving from it do nothing."""


class Status:
    """What a receive tells about its message."""

    def __init__(self) -> None:
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.count = 0
        """Bytes."""

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_count(self, datatype: Datatype | None = None) -> int:
        """Elements of the datatype; bytes without one."""
        return self.count // (datatype.Get_size() if datatype is not None else 1)

    def fill(self, source: int, tag: int, count: int) -> None:
        self.source, self.tag, self.count = source, tag, count


class PointToPoint(Base):
    """The calls with one message. A message waits at the receiver until it is received, in the order of sending."""

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Returns when `buf` may be used again; the message is on its way by then, not yet received."""
        with self._world.call("Send") as session:
            array = buffers.flat(buf, what="the send buffer")
            self._send(session, dest, tag, buffers.raw(array), array.dtype.name)

    def Send_comp(self, buf: Any, dest: int, tag: int = 0, *, codec: Any = None) -> None:
        """Sends float32 that arrive as decode(encode(x)); only Recv_comp receives them."""
        with self._world.call("Send_comp") as session:
            array = buffers.floats(buffers.flat(buf, what="the send buffer"))
            name = self._chosen(session, codec).name
            self._send(session, dest, tag, buffers.raw(array), array.dtype.name, name)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Sends any object that pickle takes."""
        with self._world.call("send") as session:
            self._send(session, dest, tag, memoryview(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)), "")

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receives a message of at most as many elements as `buf` has, and of their type."""
        with self._world.call("Recv") as session:
            array = buffers.flat(buf, writable=True, what="the receive buffer")
            self._receive(session, source, tag, lambda message: _fitting(message, array, None), status)

    def Recv_comp(
        self,
        buf: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
        *,
        codec: Any = None,
    ) -> None:
        """Receives what Send_comp sent: with `codec`, if one is named here."""
        with self._world.call("Recv_comp") as session:
            array = buffers.floats(buffers.flat(buf, writable=True, what="the receive buffer"))
            name = "" if codec is None else str(buffers.codec_of(codec))
            self._receive(session, source, tag, lambda message: _fitting(message, array, name), status)

    def recv(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receives an object. As with pickle everywhere: only from ranks that are trusted."""
        place: list[memoryview] = []

        def room(message: Message) -> memoryview:
            if message.announce.dtype:
                raise _misfit(message, "recv takes objects")
            place.append(memoryview(bytearray(message.announce.size)))
            return place[0]

        with self._world.call("recv") as session:
            self._receive(session, source, tag, room, status)
            return pickle.loads(place[0]) if place else None

    def _send(self, session: Session, dest: int, tag: int, data: memoryview, dtype: str, codec: str = "") -> None:
        tag = buffers.tag_of(tag)
        if dest == PROC_NULL:
            return
        dest = buffers.rank_in(dest, self.size, "dest")
        session.matcher.send(dest, wire.Announce(tag, data.nbytes, dtype, codec), data)

    def _receive(self, session: Session, source: int, tag: int, place: Any, status: Status | None) -> None:
        if source == PROC_NULL:
            if status is not None:
                status.fill(PROC_NULL, ANY_TAG, 0)
            return
        source = source if source == ANY_SOURCE else buffers.rank_in(source, self.size, "source")
        tag = tag if tag == ANY_TAG else buffers.tag_of(tag)
        message = session.matcher.receive(Receive(source, tag, place))
        if status is not None:
            status.fill(message.source, message.announce.tag, message.announce.size)


def _fitting(message: Message, array: Array, codec: str | None) -> memoryview:
    """Where in `array` a message belongs. `codec` None: it must not be compressed; empty: by whichever codec."""
    announce = message.announce
    if announce.dtype != array.dtype.name or announce.size > array.nbytes:
        raise _misfit(message, f"the receive buffer takes {array.size} x {array.dtype.name}")
    if (codec is None) != (not announce.codec):
        raise _misfit(message, "Recv receives what Send sent, Recv_comp what Send_comp sent")
    if codec and codec != announce.codec:
        raise _misfit(message, f"Recv_comp names {codec}")
    return buffers.raw(array)[: announce.size]


def _misfit(message: Message, expected: str) -> CommError:
    announce = message.announce
    size = np.dtype(announce.dtype).itemsize if announce.dtype else 1
    what = f"{announce.size // size} x {announce.dtype}" if announce.dtype else "an object"
    by = f" with {announce.codec}" if announce.codec else ""
    return CommError(f"rank {message.source} sent {what}{by}, tag {announce.tag}: {expected}", rank=message.source)
