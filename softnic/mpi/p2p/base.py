"""What all calls with one message share: the checks of their arguments, and how messages begin."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from softnic.collectives.elements import Array, name_of, raw
from softnic.comm import messages
from softnic.comm.arrivals import Arrival, PendingRecv
from softnic.comm.connections import CommConnections
from softnic.comm.outbox import SENT
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.buffers import bytes_of
from softnic.mpi.arguments.message_target import MessageTarget, outgoing
from softnic.mpi.base import Base
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from softnic.mpi.p2p import bsend
from softnic.mpi.pickling import pickle
from softnic.mpi.requests.operations import (
    ExchangeOperation,
    Operation,
    RecvOperation,
    SendOperation,
    fill_received,
    sent_at_once,
)
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.status import Status


class SendMode(Enum):
    """When a send is complete. A ready send is a standard one."""

    STANDARD = "when the buffer may be used again"
    SYNCHRONOUS = "when a receive has taken the message"
    BUFFERED = "at once: the message is copied to the attached buffer"


class PreparedMessage:
    """A message to send: `data`, announced as elements of `dtype` and compressed by `codec`."""

    __slots__ = ("codec", "data", "dtype")

    def __init__(self, data: memoryview, dtype: str, codec: str = "") -> None:
        self.data = data
        self.dtype = dtype
        self.codec = codec


class MessageCalls(Base):
    """The ways in which messages begin."""

    def _array(self, buf: Any) -> PreparedMessage:
        if (found := bytes_of(buf)) is not None:
            return PreparedMessage(*found)
        array = buffers.flat(buf, what="the send buffer")
        return PreparedMessage(raw(array), name_of(array.dtype))

    def _compressed(self, connections: CommConnections, buf: Any, codec: Any) -> PreparedMessage:
        given: Array = buffers.flat(buf, what="the send buffer")
        array, carrier = outgoing(given, self._options(connections, codec).codec)
        return PreparedMessage(raw(array), name_of(given.dtype), carrier)

    def _object(self, obj: Any) -> PreparedMessage:
        return PreparedMessage(memoryview(pickle.dumps(obj)), "")

    def _send(self, connections: CommConnections, dest: int, tag: int, message: PreparedMessage) -> None:
        """Send a message by the standard mode."""
        tag = checks.tag_of(tag)
        dest = self._other_rank(connections, dest, "dest")
        connections.matcher.send(dest, _announce(tag, message), message.data)

    def _start_send(
        self, call: str, prepare: Callable[[Any], PreparedMessage], buf: Any, dest: int, tag: int, mode: SendMode
    ) -> Operation:
        """Start to send the message that `prepare` makes of `buf`."""
        with self._state.call(call) as connections:
            if is_null(dest):
                return Operation(call)
            return self._begin_send(connections, call, (dest, tag), prepare(buf), mode)

    def _begin_send(
        self,
        connections: CommConnections,
        call: str,
        place: tuple[int, int],
        message: PreparedMessage,
        mode: SendMode = SendMode.STANDARD,
    ) -> Operation:
        """Start to send a message to the rank and with the tag of `place`."""
        dest = self._other_rank(connections, place[0], "dest")
        announce, data = _announce(checks.tag_of(place[1]), message), message.data
        if mode is SendMode.BUFFERED:
            data = bsend.reserve(self._state, data)
        transfer = connections.matcher.begin_send(dest, announce, data, synchronous=mode is SendMode.SYNCHRONOUS)
        if transfer is SENT:
            return sent_at_once(call)
        operation = SendOperation(connections.engine, call, dest, transfer)
        if mode is SendMode.BUFFERED:
            bsend.keep(self._state, operation, data.nbytes)
            return sent_at_once(call)
        return operation

    def _receive(
        self, connections: CommConnections, source: int, tag: int, target: MessageTarget, status: Status | None
    ) -> Any:
        """Receive a message; return the object, if it is one."""
        place = self._matched_by(connections, source, tag)
        message = connections.matcher.receive(PendingRecv(*place, target.place))
        target.finish()
        if status is not None:
            fill_received(status, message, target)
        return target.value()

    def _start_receive(self, call: str, target: Callable[[], MessageTarget], source: int, tag: int) -> Operation:
        """Start to receive a message to where `target` says."""
        with self._state.call(call) as connections:
            if is_null(source):
                return Operation(call)
            return self._begin_receive(connections, call, (source, tag), target())

    def _begin_receive(
        self,
        connections: CommConnections,
        call: str,
        place: tuple[int, int],
        target: MessageTarget,
        message: Arrival | None = None,
    ) -> RecvOperation:
        """Start to receive a message of the source and with the tag of `place`."""
        return RecvOperation(connections.engine, call, self._matched_by(connections, *place), target, message)

    def _exchange(self, call: str, receiving: Operation, send: Callable[[], Operation]) -> Request:
        """Return the Request of a receive and of the send that is started now, which ends the receive if it fails."""
        try:
            sending = send()
        except BaseException:
            receiving.cancel()
            raise
        return Request(ExchangeOperation(call, sending, receiving))

    def _matched_by(self, connections: CommConnections, source: int, tag: int) -> tuple[int, int]:
        """Return the source and tag of a receive, checked."""
        if source != ANY_SOURCE:
            source = self._other_rank(connections, source, "source")
        return source, tag if tag == ANY_TAG else checks.tag_of(tag)

    def _other_rank(self, connections: CommConnections, rank: Any, what: str) -> int:
        """Return the rank to send to or to receive from, checked; in two groups, that of the other group."""
        inter = self._state.properties.inter
        if inter is None:
            if type(rank) is int and rank in connections.progress.peers:
                return rank
            return checks.rank_in(rank, len(connections.progress.peers) + 1, what)
        return inter.first_remote + checks.rank_in(rank, inter.remote_size, what)


def is_null(rank: Any) -> bool:
    """Return whether there is no rank to talk to, and no argument but this one matters."""
    return rank == PROC_NULL if type(rank) is int else isinstance(rank, (int, np.integer)) and int(rank) == PROC_NULL


def received_nothing(status: Status | None) -> None:
    """Fill the Status of a receive from PROC_NULL."""
    if status is not None:
        status.fill(PROC_NULL, ANY_TAG, 0)


def _announce(tag: int, message: PreparedMessage) -> messages.Announce:
    return messages.Announce(tag, message.data.nbytes, message.dtype, message.codec)
