"""The process's end of a work queue (softnic/ipc/work_queue.py): requests to its NIC, and their completions.

The NIC makes progress by itself. The process reads completions whenever it waits (waiting.py), tests or posts. A queue
fails once and for good: every request that is not complete then fails, and nothing more can be posted. Its owner is
first asked whether it knows more about the failure, and then notified.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from softnic.comm.errors import CommError
from softnic.comm.heartbeat import Heartbeat
from softnic.comm.waiting import Waiter
from softnic.ipc import work_queue
from softnic.ipc.work_queue import (
    CancelRequest,
    LeaveRequest,
    RecvRequest,
    SendRequest,
    StagedPart,
    WorkCompletion,
    WorkFailed,
    WorkRequest,
)

ENDED = "the communicator is no more: "
"""Begins what requests of a communicator fail for that has ended."""
_READ_BYTES = 1 << 16
_KEPT = 0.95
"""Of a rate, with each call that measures a lower one: a short call measures too little, a link may become slower."""
_CLOSE_TIMEOUT_S = 0.5
"""How long `close` waits for the NIC to release the memory of this process."""


class Failure(NamedTuple):
    rank: int | None
    """At fault, None if it is not a single one."""
    text: str


class QueueOwner(Protocol):
    """What the queue reports failures to."""

    def explain(self, failure: Failure) -> Failure:
        """Return the failure with the reason that other ranks have given, if they have."""

    def on_failure(self, call: str, failure: Failure) -> None:
        """Requests have failed, that of `call` first."""


class StatusFields(Protocol):
    """Receives the source, tag and size of a completed request."""

    def fill(self, source: int, tag: int, count: int) -> None:
        """Set the source and tag, -1 for none, and the size in bytes."""


class PostedRequest:
    """A request that the NIC works on, or has completed. `finish` puts its result in place."""

    __slots__ = ("_finish", "call", "error", "failure", "number", "queue", "settled")

    def __init__(
        self,
        call: str,
        queue: OffloadQueue | None = None,
        number: int = 0,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self.call = call
        self.queue = queue
        self.number = number
        self.settled = queue is None
        """Whether it is complete or has failed."""
        self.failure: Failure | None = None
        self.error: Exception | None = None
        """What this rank raised as it put the result in its place; NICs and other ranks have done their part."""
        self._finish = finish
        """Keeps the memory alive until it is settled."""

    def complete(self) -> None:
        """Put the result in place. May be called again if it was interrupted."""
        if self._finish is not None:
            try:
                self._finish()
            except Exception as error:
                self.error = error
            self._finish = None
        self.settled = True

    def fail(self, failure: Failure) -> None:
        self.failure = failure
        self._finish = None
        self.settled = True

    def poll(self) -> bool:
        """Return whether it is settled."""
        return self.settled

    def advance(self) -> None:
        """Read completions."""
        if self.queue is not None:
            self.queue.advance()

    def cancel(self) -> None:
        """Give it up if it is not settled, and with it the communicator."""
        if self.queue is not None:
            self.queue.cancel(self)

    def fill(self, status: StatusFields) -> None:
        """Fill the Status of a call without a message."""
        status.fill(-1, -1, 0)

    def result(self) -> None:
        """Raise CommError if it failed, and what this rank raised as it put the result in its place."""
        if self.error is not None:
            raise self.error
        if self.failure is not None:
            assert self.queue is not None
            text = f"{self.call} on rank {self.queue.rank}: {self.failure.text}"
            raise CommError(text, rank=self.failure.rank, call=self.call)


class OffloadQueue:
    """Posts requests over a non-blocking socket. `leases` are the sockets of the NIC's streams, closed with it."""

    def __init__(
        self,
        rank: int,
        connection: socket.socket,
        heartbeat: Heartbeat | None,
        leases: Iterable[socket.socket],
        owner: QueueOwner,
    ) -> None:
        self.rank = rank
        self.failure: Failure | None = None
        self.posted = 0
        """Collectives posted so far."""
        self.rate = 0.0
        """Of this rank's link, as the NIC has last measured it, in wire bytes per second; 0: not yet."""
        self._connection = connection
        self._heartbeat = heartbeat
        self._leases = list(leases)
        self._owner = owner
        self._lock = threading.RLock()
        self._messages = 0
        self._outstanding: dict[int, PostedRequest] = {}
        self._unsent: deque[bytes] = deque()
        """Packets that the NIC did not take: it has as many requests in progress as it accepts."""
        self.waiter = Waiter()
        self._events = select.POLLIN
        """That the connection is polled for; 0: it is not."""
        self.waiter.register(connection.fileno())
        self._process = os.getpid()

    # Posting

    def post(self, call: str, describe: Callable[[int], WorkRequest], finish: Callable[[], None]) -> PostedRequest:
        """Post a collective, described for its number. Raises CommError if the queue has failed."""
        with self._lock:
            self.advance()
            message = describe(self.posted + 1)
            if self.failure is not None:
                with suppress(OSError):  # the NIC only reports what this rank would have called
                    self._connection.send(work_queue.encode(message))
            self._check()
            request = self._post(call, message, finish)
            self.posted += 1
            return request

    def post_message(
        self, call: str, describe: Callable[[int], SendRequest | RecvRequest], finish: Callable[[], None]
    ) -> PostedRequest:
        """Post a message or a part of one, described for its number. Raises CommError if the queue has failed."""
        with self._lock:
            self.advance()
            self._check()
            request = self._post(call, describe(-self._messages - 1), finish)
            self._messages += 1
            return request

    def stage(self, request: PostedRequest, block: int, size: int) -> None:
        """Report that the first `size` bytes of a block of its contribution are there."""
        with self._lock:
            if not request.settled:
                self._send(work_queue.encode(StagedPart(request.number, block, size)))

    def _check(self) -> None:
        if self.failure is not None:
            raise CommError(self.failure.text, rank=self.failure.rank)

    def _post(
        self, call: str, message: WorkRequest | SendRequest | RecvRequest, finish: Callable[[], None]
    ) -> PostedRequest:
        packet = work_queue.encode(message)
        if len(packet) > work_queue.MAX_PACKET:
            raise ValueError(f"its work request takes {len(packet)} bytes, more than {work_queue.MAX_PACKET}")
        request = self._outstanding[message.number] = PostedRequest(call, self, message.number, finish)
        self._send(packet)
        return request

    def cancel(self, request: PostedRequest) -> None:
        """Give up a request that is not settled, and with it the queue."""
        with self._lock:
            self.advance()
            if not request.settled:
                self._send(work_queue.encode(CancelRequest(request.number)))

    @property
    def pending(self) -> PostedRequest | None:
        """The oldest request that is not settled."""
        return next(iter(self._outstanding.values()), None)

    def is_pending_after(self, number: int) -> bool:
        """Return whether a collective later than this number is not settled."""
        return any(each > number for each in self._outstanding)

    def advance(self) -> None:
        """Read completions, and send what the NIC takes now.

        Raises CommError in a process that was forked from the queue's own, and nothing else.
        """
        if os.getpid() != self._process:
            raise CommError("it belongs to the process that this one was forked from")
        with self._lock:
            if self.failure is not None:
                return
            now = time.monotonic()
            try:
                self._flush()
                while self._read(now):
                    pass
                if self._outstanding and self._heartbeat is not None:
                    self._heartbeat.poll(now)
            except OSError as error:
                self._on_nic_lost(error)

    def lease(self, connections: Iterable[socket.socket]) -> None:
        """Close these sockets of the NIC's streams, too, with the queue."""
        self._leases += connections

    def close(self, failure: Failure, *, told: str = "", for_all: bool = False) -> None:
        """End the queue: unsettled requests fail. Returns when the NIC has released all memory, or does not answer.

        A forked process only closes its file descriptors. The NIC tells other ranks `told`, or else of the failure, if
        requests are unsettled; `for_all`: in any case.
        """
        if os.getpid() == self._process:
            with self._lock:
                self._end(failure, told or failure.text.removeprefix(ENDED), for_all)
        for connection in (self._connection, *self._leases):
            connection.close()
        self.waiter.close()

    def _end(self, failure: Failure, told: str, for_all: bool) -> None:
        pending = self.pending
        if pending is not None or for_all:
            number = 0 if pending is None else pending.number
            with suppress(OSError):
                self._connection.send(work_queue.encode(CancelRequest(number, failure.rank, told)))
        with suppress(OSError):
            self._connection.send(work_queue.encode(LeaveRequest()))
        if self.failure is None:
            self._settle_all(failure)
        if pending is not None:
            self._await_release()

    # Completions

    def _read(self, now: float) -> bool:
        """Handle one message. It leaves the socket when it is handled completely: an interrupt loses nothing."""
        try:
            packet = self._connection.recv(_READ_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not packet:
            raise ConnectionResetError(0, "it ended the work queue")
        if self._heartbeat is not None:
            self._heartbeat.on_reply(now)
        try:
            message = work_queue.decode_from_nic(packet)
        except msgspec.MsgspecError as error:
            raise OSError(0, f"it sent what is not a completion: {error}") from error
        match message:
            case WorkCompletion():
                request = self._outstanding.get(message.number)
                if request is not None:
                    self.rate = max(message.rate, _KEPT * self.rate) if message.rate else self.rate
                    request.complete()
                    del self._outstanding[message.number]
                self._connection.recv(1)
                self.waiter.notify()
            case WorkFailed():
                failure = Failure(message.rank if message.rank >= 0 else None, message.text)
                self._fail(self._owner.explain(failure))
                with suppress(OSError):  # unread, it would take with it what is sent before the socket is closed
                    self._connection.recv(1)
        return self.failure is None

    def _on_nic_lost(self, error: OSError) -> None:
        self._fail(Failure(self.rank, f"rank {self.rank} lost its NIC: {error.strerror or error}"))

    def _fail(self, failure: Failure) -> None:
        """Fail all requests. If there are none, the next post reports it."""
        first = self.pending
        self._settle_all(failure)
        if first is not None:
            self._owner.on_failure(first.call, failure)

    def _settle_all(self, failure: Failure) -> None:
        self.failure = failure
        self._unsent.clear()
        outstanding = list(self._outstanding.values())
        self._outstanding.clear()
        for request in outstanding:
            request.fail(failure)
        self._poll_for(0)  # what is unread would keep it ready
        self.waiter.notify()

    def _poll_for(self, events: int) -> None:
        if events != self._events and self._events:
            if events:
                self.waiter.modify(self._connection.fileno(), events)
            else:
                self.waiter.unregister(self._connection.fileno())
            self._events = events

    def _send(self, packet: bytes) -> None:
        self._unsent.append(packet)
        try:
            self._flush()
        except OSError as error:
            self._on_nic_lost(error)

    def _flush(self) -> None:
        while self._unsent:
            try:
                self._connection.send(self._unsent[0])
            except BlockingIOError:
                self._poll_for(select.POLLIN | select.POLLOUT)
                return
            self._unsent.popleft()
        self._poll_for(select.POLLIN)

    def _await_release(self) -> None:
        """Wait until the NIC closes its end, which it does when it has released all memory."""
        until = time.monotonic() + _CLOSE_TIMEOUT_S
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
                if not self._connection.recv(_READ_BYTES):
                    return
