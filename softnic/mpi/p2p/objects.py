"""send and recv of objects, in all modes."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from softnic.mpi.arguments.message_target import ObjectTarget
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG
from softnic.mpi.p2p.base import MessageCalls, SendMode, is_null, received_nothing
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.status import Status


class ObjectMessages(MessageCalls):
    """The calls with an object, which can be any that can be pickled.

    As with pickle everywhere, ranks must be trusted. `buf` is a buffer, or the size of one, that mpi4py would use on
    the way. It is not needed here, and left as it is.
    """

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object; returns when it is sent, which may be before it is received."""
        with self._state.call("send") as connections:
            if not is_null(dest):
                self._send(connections, dest, tag, self._object(obj))

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object; returns when a receive has taken it."""
        self._isend_object("ssend", obj, dest, tag, SendMode.SYNCHRONOUS).Wait()

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object out of the attached buffer (Attach_buffer), to which it is copied."""
        self._isend_object("bsend", obj, dest, tag, SendMode.BUFFERED).Wait()

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive and return an object, or what the bytes of a message are the pickle of."""
        if buf is not None and not isinstance(buf, int):
            warnings.warn("recv needs no buffer, and leaves it as it is", UserWarning, stacklevel=2)
        with self._state.call("recv") as connections:
            if is_null(source):
                received_nothing(status)
                return None
            return self._receive(connections, source, tag, ObjectTarget(), status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Send an object, and receive and return another one, at the same time."""
        del recvbuf
        receiving = self._start_receive("sendrecv", ObjectTarget, source, recvtag)
        start = partial(self._start_send, "sendrecv", self._object, sendobj, dest, sendtag, SendMode.STANDARD)
        return self._exchange("sendrecv", receiving, start).wait(status)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start send, and return its Request."""
        return self._isend_object("isend", obj, dest, tag, SendMode.STANDARD)

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start ssend, and return its Request."""
        return self._isend_object("issend", obj, dest, tag, SendMode.SYNCHRONOUS)

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start bsend, and return its Request, which is complete."""
        return self._isend_object("ibsend", obj, dest, tag, SendMode.BUFFERED)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start recv, and return its Request, whose `wait` returns the object."""
        del buf
        return Request(self._start_receive("irecv", ObjectTarget, source, tag))

    def _isend_object(self, call: str, obj: Any, dest: int, tag: int, mode: SendMode) -> Request:
        return Request(self._start_send(call, self._object, obj, dest, tag, mode))
