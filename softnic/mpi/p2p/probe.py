"""Probe and its twins, which look for a message. A matched probe takes it: nothing else receives it then."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from softnic.comm.arrivals import Arrival, PendingRecv
from softnic.comm.connections import CommConnections
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments.message_target import BufferTarget, MessageTarget, ObjectTarget
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG
from softnic.mpi.handles import Handle, constant
from softnic.mpi.p2p.base import MessageCalls, is_null, received_nothing
from softnic.mpi.requests.operations import Operation, RecvOperation
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.status import Status


class Message(Handle):
    """A message that a matched probe has taken, until it is received; MESSAGE_NULL; or MESSAGE_NO_PROC.

    A receive into a buffer that is too small is an error, as that of any message: the message is dropped, and this
    becomes MESSAGE_NULL.
    """

    _target: TakenMessage | None

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
        Request(self._start("Recv", lambda: BufferTarget(buf))).Wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Start to receive the message into `buf`, and return the Request."""
        return Request(self._start("Irecv", lambda: BufferTarget(buf)))

    def recv(self, status: Status | None = None) -> Any:
        """Receive and return the object, and fill `status`."""
        return Request(self._start("recv", ObjectTarget)).wait(status)

    def irecv(self) -> Request:
        """Start to receive the object, and return the Request."""
        return Request(self._start("irecv", ObjectTarget))

    def _start(self, call: str, target: Callable[[], MessageTarget]) -> Operation:
        taken = self._target
        if taken is None:
            raise ArgumentError(f"{call}: MPI.MESSAGE_NULL is no message", call=call)
        operation = taken.receive(call, target)
        self.free()
        return operation

    def free(self) -> None:
        """Become MESSAGE_NULL. The message is lost."""
        if not self._is_the_constant():
            self._target = None

    def __repr__(self) -> str:
        name = self._constant_name()
        return "<Message>" if name is None else f"MPI.{name}"


class TakenMessage:
    """A message that was taken from the waiting ones."""

    def __init__(self, comm: Probes | None, message: Arrival | None) -> None:
        self._comm = comm
        self._message = message

    def receive(self, call: str, target: Callable[[], MessageTarget]) -> Operation:
        """Start to receive it."""
        if self._comm is None or self._message is None:
            return Operation(call)
        return self._comm._receive_taken(call, target, self._message)


MESSAGE_NULL = constant("MESSAGE_NULL", Message())
"""No message."""
MESSAGE_NO_PROC = constant("MESSAGE_NO_PROC", Message._named(TakenMessage(None, None)))
"""The message of PROC_NULL, which is empty."""


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
            return Message._named(TakenMessage(self, found))

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
