"""Probe and its twins, which look for a message. A matched probe takes it: nothing else receives it then."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any, Self

from softnic.comm.arrivals import Arrival, PendingRecv
from softnic.comm.connections import CommConnections
from softnic.comm.constants import ANY_SOURCE, ANY_TAG
from softnic.comm.errors import ArgumentError
from softnic.comm.message_target import BufferTarget, MessageTarget, ObjectTarget
from softnic.comm.p2p_base import MessageCalls, is_null, received_nothing
from softnic.comm.pending import Operation, RecvOperation
from softnic.comm.public_names import PublicNames
from softnic.comm.request import Request
from softnic.comm.status import Status


class Message(PublicNames):
    """A message that a matched probe has taken, until it is received; MESSAGE_NULL; or MESSAGE_NO_PROC.

    Parameters
    ----------
    message
        A Message, of which this becomes another name. None: it equals MPI.MESSAGE_NULL.
    """

    def __new__(cls, message: Message | None = None) -> Self:  # noqa: ARG004
        """Take what `__init__` takes: subclasses may pass it on."""
        return super().__new__(cls)

    def __init__(self, message: Message | None = None) -> None:
        if message is not None and not isinstance(message, Message):
            raise TypeError(f"a Message is expected, not a {type(message).__name__}")
        self._taken: TakenMessage | None = None if message is None else message._taken

    @classmethod
    def Probe(cls, comm: Probes, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Wait for a message, take it, and return it."""
        return comm.Mprobe(source, tag, status)

    @classmethod
    def Iprobe(
        cls, comm: Probes, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        """Take a message if there is one, else return None."""
        return comm.Improbe(source, tag, status)

    probe, iprobe = Probe, Iprobe

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive the message into `buf`, and fill `status`."""
        self.Irecv(buf).Wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Start to receive the message into `buf`, and return the Request."""
        return Request(self._start("Irecv", lambda: BufferTarget(buf)))

    def recv(self, status: Status | None = None) -> Any:
        """Receive and return the object, and fill `status`."""
        return self.irecv().wait(status)

    def irecv(self) -> Request:
        """Start to receive the object, and return the Request."""
        return Request(self._start("irecv", ObjectTarget))

    def _start(self, call: str, target: Callable[[], MessageTarget]) -> Operation:
        taken = self._taken
        if taken is None:
            raise ArgumentError(f"{call}: MPI.MESSAGE_NULL is no message", call=call)
        operation = taken.receive(call, target)
        if self is not MESSAGE_NO_PROC:
            self._taken = None
        return operation

    @property
    def handle(self) -> int:
        """A number for this message, 0 for MESSAGE_NULL."""
        return 0 if self._taken is None else self._taken.handle

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        """Return another name for the message of this number."""
        made = cls()
        made._taken = _by_handle[handle] if handle else None
        return made

    def toint(self) -> int:
        """Return the number of this message."""
        return self.handle

    def py2f(self) -> int:
        """Return the number of this message."""
        return self.handle

    fromint = f2py = fromhandle

    def free(self) -> None:
        """Become MESSAGE_NULL. The message is lost."""
        if self is not MESSAGE_NO_PROC:
            self._taken = None

    def __bool__(self) -> bool:
        """Whether it is not MESSAGE_NULL."""
        return self._taken is not None

    def __eq__(self, other: object) -> bool:
        return self._taken is other._taken if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in mpi4py: what is named may change

    def __reduce__(self) -> str | tuple[Any, ...]:
        for name, constant in (("MESSAGE_NULL", MESSAGE_NULL), ("MESSAGE_NO_PROC", MESSAGE_NO_PROC)):
            if self == constant:
                return name if self is constant else (type(self), (constant,))
        raise ValueError("a message cannot be pickled")

    def __repr__(self) -> str:
        known = {None: "MPI.MESSAGE_NULL", MESSAGE_NO_PROC._taken: "MPI.MESSAGE_NO_PROC"}
        return known.get(self._taken, "<Message>")


class TakenMessage:
    """A message that was taken from the waiting ones."""

    def __init__(self, comm: Probes | None, message: Arrival | None) -> None:
        self._comm = comm
        self._message = message
        self.handle = next(_handles)
        _by_handle[self.handle] = self

    def receive(self, call: str, target: Callable[[], MessageTarget]) -> Operation:
        """Start to receive it."""
        if self._comm is None or self._message is None:
            return Operation(call)
        return self._comm._receive_taken(call, target, self._message)


_handles = itertools.count(1)
_by_handle: weakref.WeakValueDictionary[int, TakenMessage] = weakref.WeakValueDictionary()
MESSAGE_NULL = Message()
"""No message."""
MESSAGE_NO_PROC = Message()
"""The message of PROC_NULL, which is empty."""
MESSAGE_NO_PROC._taken = TakenMessage(None, None)


class Probes(MessageCalls):
    """The calls that look for a message."""

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Wait for a message, which is not received, and return True."""
        self._probe("Probe", source, tag, status, wait=True, take=False)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return whether there is a message."""
        return self._probe("Iprobe", source, tag, status, wait=False, take=False) is not None

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Wait for a message, take it, and return it."""
        taken = self._probe("Mprobe", source, tag, status, wait=True, take=True)
        assert taken is not None
        return taken

    def Improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message | None:
        """Take a message if there is one, else return None."""
        return self._probe("Improbe", source, tag, status, wait=False, take=True)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Wait for a message, which is not received, and return True."""
        return self.Probe(source, tag, status)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return whether there is a message."""
        return self.Iprobe(source, tag, status)

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Wait for a message, take it, and return it."""
        return self.Mprobe(source, tag, status)

    def improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message | None:
        """Take a message if there is one, else return None."""
        return self.Improbe(source, tag, status)

    def _probe(
        self, call: str, source: int, tag: int, status: Status | None, *, wait: bool, take: bool
    ) -> Message | None:
        """Return the message found, MESSAGE_NO_PROC if it is not to be taken; None without one."""
        with self._state.call(call) as connections:
            if is_null(source):
                received_nothing(status)
                return Message(MESSAGE_NO_PROC)
            found = self._find(connections, PendingRecv(*self._matched_by(connections, source, tag), _no_place), wait)
            if found is None:
                return None
            if status is not None:
                status.fill(found.sender, found.announce.tag, found.announce.size)
            if not take:
                return MESSAGE_NO_PROC
            connections.matcher.take_this(found)
            message = Message()
            message._taken = TakenMessage(self, found)
            return message

    def _find(self, connections: CommConnections, receive: PendingRecv, wait: bool) -> Arrival | None:
        found = connections.matcher.find(receive)
        if found is None and wait:
            connections.progress.run(lambda: connections.matcher.is_waiting(receive))
            found = connections.matcher.find(receive)
        elif found is None:
            connections.progress.turn()
            found = connections.matcher.find(receive)
            if found is None:
                os.sched_yield()  # the caller may ask at once again, on a core that a NIC needs
        return found

    def _receive_taken(self, call: str, target: Callable[[], MessageTarget], message: Arrival) -> RecvOperation:
        with self._state.call(call) as connections:
            place = (message.source, message.announce.tag)
            return self._begin_receive(connections, call, place, target(), message)


def _no_place(message: Arrival) -> memoryview:
    raise NotImplementedError  # a probe receives nothing
