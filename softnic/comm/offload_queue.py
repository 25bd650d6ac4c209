"""The process's end of a group: what its NIC executes (softnic/ipc/work_queue.py), and how the process learns of it.

The NIC goes on by itself. The process takes in what it says whenever somebody waits (waiting.py), tests or posts.

A group fails once and for all: every operation that is not over then has the failure to tell, and nothing more can be
posted. Its owner is asked first whether it knows better what happened, and told then.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from softnic.comm.errors import CommError
from softnic.comm.heartbeat import Pulse
from softnic.comm.waiting import Bell, Watch
from softnic.ipc import work_queue
from softnic.ipc.work_queue import CancelRequest, WorkCompletion, WorkFailed, WorkRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 1 << 16
_GOODBYE_S = 0.5
"""How long an end is waited for after which the NIC touches no memory of this process any more."""


class Failure(NamedTuple):
    rank: int | None
    """At fault, None where no single one is."""
    text: str


class Owner(Protocol):
    def explain(self, failure: Failure) -> Failure:
        """What there is to be said about a failure of operations, if there is more than the NIC said."""

    def lost(self, call: str, failure: Failure) -> None:
        """The operations have failed, `call` first."""


class Operation:
    """A collective that a NIC has on its hands, or had. `finish` brings the result where it belongs."""

    __slots__ = ("_finish", "_heard", "call", "failure", "group", "number", "settled")

    def __init__(self, call: str, group: Group | None = None, number: int = 0) -> None:
        self.call = call
        self.group = group
        self.number = number
        self.settled = group is None
        """It is over, one way or the other."""
        self.failure: Failure | None = None
        self._finish: Callable[[], None] | None = None
        self._heard: list[Callable[[], object]] = []

    def begin(self, finish: Callable[[], None]) -> None:
        """The NIC has been told. Until it is done, `finish` keeps the memory."""
        self._finish = finish

    def tell(self, listener: Callable[[], object]) -> None:
        """Has the listener called when this is over; whoever settles it calls. Not if it is over already."""
        self._heard.append(listener)

    def forget(self, listener: Callable[[], object]) -> None:
        with suppress(ValueError):
            self._heard.remove(listener)

    def complete(self) -> None:
        """May be begun again where it was interrupted."""
        if self._finish is not None:
            self._finish()
            self._finish = None
        self._settle()

    def fail(self, failure: Failure) -> None:
        self.failure = failure
        self._finish = None
        self._settle()

    def _settle(self) -> None:
        self.settled = True
        for listener in list(self._heard):
            listener()

    def result(self) -> None:
        """Raises CommError if it failed."""
        if self.failure is not None:
            assert self.group is not None
            text = f"{self.call} on rank {self.group.rank}: {self.failure.text}"
            raise CommError(text, rank=self.failure.rank, call=self.call)


class Group:
    """Over a group socket, which does not block. `leases` are the NIC's connections, to be closed with it."""

    def __init__(
        self,
        rank: int,
        connection: socket.socket,
        pulse: Pulse | None,
        leases: Iterable[socket.socket],
        owner: Owner,
    ) -> None:
        self.rank = rank
        self.failure: Failure | None = None
        self._connection = connection
        self._pulse = pulse
        self._leases = list(leases)
        self._owner = owner
        self._lock = threading.RLock()
        self._number = 0
        self._outstanding: dict[int, Operation] = {}
        self._unsent: deque[bytes] = deque()
        """What the NIC did not take at once: it has as many requests on its hands as it wants."""
        self._bells: list[Bell] = []
        """Of those that wait, in any thread."""
        self._loops: dict[asyncio.AbstractEventLoop, Watch] = {}
        self._process = os.getpid()

    # -- what is asked of it -----------------------------------------------------------------------------------------

    def post(self, call: str, describe: Callable[[int], WorkRequest], finish: Callable[[], None]) -> Operation:
        """Hands the NIC a request, made by `describe` for its number. Raises CommError if the group has failed."""
        with self._lock:
            self.advance()
            if self.failure is not None:
                failure = self._owner.explain(self.failure)
                raise CommError(failure.text, rank=failure.rank)
            operation = Operation(call, self, self._number + 1)
            packet = work_queue.encode(describe(operation.number))
            if len(packet) > work_queue.MAX_PACKET:
                raise ValueError(f"its descriptor takes {len(packet)} bytes, more than {work_queue.MAX_PACKET}")
            self._number += 1
            operation.begin(finish)
            self._outstanding[operation.number] = operation
            self._send(packet)
            return operation

    def cancel(self, operation: Operation) -> None:
        """Gives an operation up, and the group with it, if it is not over."""
        with self._lock:
            self.advance()
            if not operation.settled:
                self._send(work_queue.encode(CancelRequest(operation.number)))

    @property
    def pending(self) -> Operation | None:
        """The oldest operation that is not over."""
        return next(iter(self._outstanding.values()), None)

    def advance(self) -> None:
        """Takes in what the NIC has said, and hands it what it has room for now. Raises CommError in a process that was
        forked from the group's, and nothing else."""
        if os.getpid() != self._process:
            raise CommError("it belongs to the process that this one was forked from")
        with self._lock:
            if self.failure is not None:
                return
            now = time.monotonic()
            try:
                self._flush()
                while self._take():
                    if self._pulse is not None:
                        self._pulse.heard(now)
                if self._outstanding and self._pulse is not None:
                    self._pulse.beat(now)
            except OSError as error:
                self._without_nic(error)

    def close(self, failure: Failure) -> None:
        """Ends the group: what is not over fails. Returns when the NIC has let go of all memory, or does not answer.

        In a process forked from its owner's only descriptors are closed.
        """
        if os.getpid() == self._process:
            with self._lock:
                self._end(failure)
        for connection in (self._connection, *self._leases):
            connection.close()
        if self._pulse is not None:
            self._pulse.close()

    def _end(self, failure: Failure) -> None:
        pending = self.pending
        if pending is not None:
            with suppress(OSError):
                self._connection.send(work_queue.encode(CancelRequest(pending.number)))
        if self.failure is None:
            self._settle_all(failure)
        if pending is not None:
            self._say_goodbye()

    # -- waiting -----------------------------------------------------------------------------------------------------

    @contextmanager
    def listening(self, bell: Bell) -> Iterator[None]:
        """`bell` is rung whenever something has happened here."""
        self._bells.append(bell)
        try:
            yield
        finally:
            self._bells.remove(bell)

    @property
    def wants(self) -> tuple[int, int]:
        """What to poll, and the events to poll for, for the next EVERY_S at most. A descriptor of -1: nothing."""
        return self._connection.fileno(), select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN

    async def over(self, operation: Operation) -> None:
        """Returns when an operation is over, and lets the event loop run until then."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        def heard() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(wake)

        operation.tell(heard)
        watch = self._loops.get(loop)
        if watch is None:
            watch = self._loops[loop] = Watch(self, loop)
        watch.waiting += 1
        try:
            self.advance()
            if not operation.settled:
                watch.rearm()
                await future
        finally:
            operation.forget(heard)
            watch.waiting -= 1
            if not watch.waiting:
                self._loops.pop(loop, None)
                watch.close()

    # -- what the NIC says -------------------------------------------------------------------------------------------

    def _take(self) -> bool:
        """One message. It is taken off the socket when all that follows from it is done: an interrupt loses nothing."""
        try:
            packet = self._connection.recv(_READ_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not packet:
            raise ConnectionResetError(0, "it ended the group")
        try:
            message = work_queue.decode_from_nic(packet)
        except msgspec.MsgspecError as error:
            raise OSError(0, f"it says what is no answer: {error}") from error
        match message:
            case WorkCompletion():
                operation = self._outstanding.get(message.number)
                if operation is not None:
                    operation.complete()
                    del self._outstanding[message.number]
                self._connection.recv(1)
                self._ring()
            case WorkFailed():
                failure = Failure(message.rank if message.rank >= 0 else None, message.text)
                self._fail(self._owner.explain(failure) if self._outstanding else failure)
                return False
        return True

    def _without_nic(self, error: OSError) -> None:
        self._fail(Failure(self.rank, f"rank {self.rank} lost its NIC: {error.strerror or error}"))

    def _fail(self, failure: Failure) -> None:
        """If nothing is in progress, nobody asks: whoever posts next is told."""
        first = self.pending
        self._settle_all(failure)
        if first is not None:
            self._owner.lost(first.call, failure)

    def _settle_all(self, failure: Failure) -> None:
        self.failure = failure
        self._unsent.clear()
        outstanding = list(self._outstanding.values())
        self._outstanding.clear()
        for operation in outstanding:
            operation.fail(failure)
        self._ring()

    def _ring(self) -> None:
        for bell in list(self._bells):
            bell.ring()

    def _send(self, packet: bytes) -> None:
        self._unsent.append(packet)
        try:
            self._flush()
        except OSError as error:
            self._without_nic(error)

    def _flush(self) -> None:
        while self._unsent:
            try:
                self._connection.send(self._unsent[0])
            except BlockingIOError:
                return
            self._unsent.popleft()

    def _say_goodbye(self) -> None:
        """The NIC closes its end when it has let go of everything."""
        until = time.monotonic() + _GOODBYE_S
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
                if not self._connection.recv(_READ_BYTES):
                    return
