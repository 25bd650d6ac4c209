"""Send and Recv in all modes, blocking and nonblocking, and their compressed twins."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.mpi.arguments import buffers
from softnic.mpi.arguments.message_target import BufferTarget, CompressedTarget
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG
from softnic.mpi.p2p import bsend
from softnic.mpi.p2p.base import MessageCalls, SendMode, is_null, received_nothing
from softnic.mpi.requests.operations import Operation
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.status import Status


class BufferMessages(MessageCalls):
    """The calls with a buffer. Messages are kept at the receiver, in the order of sending, until received."""

    # Blocking

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message; returns when `buf` may be used again, which may be before the message is received."""
        with self._state.call("Send") as connections:
            if not is_null(dest):
                self._send(connections, dest, tag, self._array(buf))

    def Send_comp(self, buf: Any, dest: int, tag: int = 0, *, codec: Any = None) -> None:
        """Send floats that arrive as decode(encode(x)), and elements of other types as they are.

        Only Recv_comp receives them.
        """
        with self._state.call("Send_comp") as connections:
            if not is_null(dest):
                self._send(connections, dest, tag, self._compressed(connections, buf, codec))

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receive a message of at most as many elements as `buf` has, and of their type.

        Bytes, on either side, fit any type, and integers other integers of the same size.
        """
        with self._state.call("Recv") as connections:
            if is_null(source):
                received_nothing(status)
                return
            self._receive(connections, source, tag, BufferTarget(buf), status)

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
            if is_null(source):
                received_nothing(status)
                return
            self._receive(connections, source, tag, CompressedTarget(buf, codec), status)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message; returns when a receive has taken it."""
        self._isend("Ssend", buf, dest, tag, SendMode.SYNCHRONOUS).Wait()

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message out of the attached buffer (Attach_buffer), to which it is copied."""
        self._isend("Bsend", buf, dest, tag, SendMode.BUFFERED).Wait()

    def Rsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message that a receive waits for; the same as Send."""
        self.Send(buf, dest, tag)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a message and receive another one, at the same time."""
        self._isendrecv("Sendrecv", (sendbuf, dest, sendtag), (recvbuf, source, recvtag)).Wait(status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send the contents of a buffer, and receive a message into it."""
        self.Isendrecv_replace(buf, dest, sendtag, source, recvtag).Wait(status)

    # Nonblocking

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start Send, and return its Request."""
        return self._isend("Isend", buf, dest, tag, SendMode.STANDARD)

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start Ssend, and return its Request."""
        return self._isend("Issend", buf, dest, tag, SendMode.SYNCHRONOUS)

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start Bsend, and return its Request, which is complete."""
        return self._isend("Ibsend", buf, dest, tag, SendMode.BUFFERED)

    def Irsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start Rsend, and return its Request."""
        return self._isend("Irsend", buf, dest, tag, SendMode.STANDARD)

    def Isend_comp(self, buf: Any, dest: int, tag: int = 0, *, codec: Any = None) -> Request:
        """Start Send_comp, and return its Request."""
        with self._state.call("Isend_comp") as connections:
            if is_null(dest):
                return Request(Operation("Isend_comp"))
            message = self._compressed(connections, buf, codec)
            return Request(self._begin_send(connections, "Isend_comp", (dest, tag), message))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start Recv, and return its Request."""
        return Request.for_operation(self._start_irecv("Irecv", buf, source, tag))

    def Irecv_comp(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, codec: Any = None) -> Request:
        """Start Recv_comp, and return its Request."""
        return Request(self._start_receive("Irecv_comp", lambda: CompressedTarget(buf, codec), source, tag))

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Start Sendrecv, and return its Request."""
        return self._isendrecv("Isendrecv", (sendbuf, dest, sendtag), (recvbuf, source, recvtag))

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Start Sendrecv_replace, and return its Request."""
        copied = None if is_null(dest) else np.array(buffers.message(buf, what="the send buffer").array)
        return self._isendrecv("Isendrecv_replace", (copied, dest, sendtag), (buf, source, recvtag))

    # Buffers of buffered sends

    def Attach_buffer(self, buf: Any) -> None:
        """Use a buffer for the buffered sends of this communicator; MPI.BUFFER_AUTOMATIC has no limit."""
        bsend.attach(self._state, buf)

    def Detach_buffer(self) -> Any:
        """Return the attached buffer, once all messages in it are sent."""
        return bsend.detach(self._state)

    def Flush_buffer(self) -> None:
        """Return when all messages in the attached buffer are sent."""
        bsend.flush(self._state)

    def Iflush_buffer(self) -> Request:
        """Start Flush_buffer, and return its Request."""
        return Request(bsend.Flush("Iflush_buffer", self._state))

    # ----------------------------------------------------------------------------------------------------------------

    def _isend(self, call: str, buf: Any, dest: int, tag: int, mode: SendMode) -> Request:
        return Request.for_operation(self._start_isend(call, buf, dest, tag, mode))

    def _start_isend(self, call: str, buf: Any, dest: int, tag: int, mode: SendMode) -> Operation:
        return self._start_send(call, self._array, buf, dest, tag, mode)

    def _start_irecv(self, call: str, buf: Any, source: int, tag: int) -> Operation:
        return self._start_receive(call, lambda: BufferTarget(buf), source, tag)

    def _isendrecv(self, call: str, sent: tuple[Any, int, int], received: tuple[Any, int, int]) -> Request:
        receiving = self._start_irecv(call, *received)
        return self._exchange(call, receiving, lambda: self._start_isend(call, *sent, SendMode.STANDARD))
