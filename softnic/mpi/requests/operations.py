"""Messages in progress: the operations that Requests stand for.

An operation is settled when its buffer may be used, or when it has failed. Progress is made in calls: in those of its
communicator, and by every thread that waits for anything (softnic/comm/waiting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softnic.comm.arrivals import Arrival, PendingRecv
from softnic.comm.errors import CommError
from softnic.comm.message_engine import MessageEngine
from softnic.comm.waiting import Source
from softnic.comm.zerocopy_channel import SendOp
from softnic.mpi.arguments.message_target import MessageTarget
from softnic.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from softnic.mpi.requests.status import Status, fill_empty


class Operation:
    """A call in progress. This one is settled from the start: it has copied its message, or has none (PROC_NULL)."""

    def __init__(self, call: str, source: int = PROC_NULL) -> None:
        self.call = call
        self._source = source
        """For its Status."""

    @property
    def settled(self) -> bool:
        """Whether it is complete or has failed, as far as is known without looking."""
        return True

    @property
    def queue(self) -> Source | None:
        """What to wait for; None: it is settled."""
        return None

    def poll(self) -> bool:
        """Return whether it is settled now."""
        return self.settled

    def advance(self) -> None:
        """Make the progress that is possible without waiting."""

    def result(self) -> Any:
        """Return the object received, None without one. Raises CommError if it failed."""

    def fill(self, status: Status) -> None:
        """Describe the message."""
        status.fill(self._source, ANY_TAG, 0)

    def cancel(self) -> None:
        """Give it up, if that is still possible."""


_sent_at_once: dict[str, Operation] = {}


def sent_at_once(call: str) -> Operation:
    """Return the operation of a call that has sent its message before it returns."""
    if (operation := _sent_at_once.get(call)) is None:
        operation = _sent_at_once[call] = Operation(call, ANY_SOURCE)
    return operation


class MessageOperation(Operation):
    """A message in progress."""

    def __init__(self, engine: MessageEngine, call: str) -> None:
        super().__init__(call)
        self._engine = engine
        self._settled = False
        self._error: Exception | None = None

    def begin(self) -> None:
        """Have progress made on it, unless it is settled already."""
        if not self.poll():
            self._engine.enter(self)

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def queue(self) -> Source | None:
        return self._engine

    def poll(self) -> bool:
        if not self._settled:
            progress = self._engine.progress
            with progress.lock:
                if progress.over:
                    self._error = CommError(progress.over)
                    self._settled = True
                else:
                    try:
                        self._settled = self._check()
                    except Exception as error:
                        self._error, self._settled = error, True
            if self._settled:
                self._engine.leave(self)
        return self._settled

    def advance(self) -> None:
        if not self.poll():
            self._engine.advance()
            self.poll()

    def result(self) -> Any:
        if self._error is None:
            return None
        with self._engine.call(self.call):
            raise self._error

    def _check(self) -> bool:
        """Return whether it is complete. Raises CommError if it fails."""
        raise NotImplementedError


class SendOperation(MessageOperation):
    """A message being sent to `dest`."""

    def __init__(self, engine: MessageEngine, call: str, dest: int, transfer: SendOp) -> None:
        super().__init__(engine, call)
        self._dest = dest
        self._transfer = transfer
        self.begin()

    def _check(self) -> bool:
        return self._engine.matcher.sent(self._dest, self._transfer)

    def fill(self, status: Status) -> None:
        fill_empty(status)


class RecvOperation(MessageOperation):
    """A message being received. `message`: one that was taken from the waiting ones before."""

    def __init__(
        self,
        engine: MessageEngine,
        call: str,
        place: tuple[int, int],
        target: MessageTarget,
        message: Arrival | None = None,
    ) -> None:
        super().__init__(engine, call)
        self._target = target
        self._receive = PendingRecv(*place, target.place)
        self._cancelled = False
        engine.matcher.begin_receive(self._receive, message)
        if self._receive.message is None:
            engine.enter(self)
        else:
            self.begin()

    def _check(self) -> bool:
        if self._cancelled:
            return True
        if not self._engine.matcher.arrived(self._receive):
            return False
        if self._receive.misfit is not None:
            raise self._receive.misfit
        self._target.finish()
        return True

    def cancel(self) -> None:
        with self._engine.progress.lock:
            self._cancelled = self._cancelled or self._engine.matcher.give_up(self._receive)
        self.poll()

    def result(self) -> Any:
        super().result()
        return None if self._cancelled else self._target.value()

    def fill(self, status: Status) -> None:
        if self._cancelled:
            status.fill(-1, -1, 0, cancelled=True)
        elif self._receive.message is not None:
            fill_received(status, self._receive.message, self._target)


class ExchangeOperation(Operation):
    """A message being sent and another one being received. `finish` is called at its end."""

    def __init__(
        self, call: str, send: Operation, receive: Operation, finish: Callable[[], None] | None = None
    ) -> None:
        super().__init__(call)
        self._parts: Sequence[Operation] = (send, receive)
        self._finish = finish

    @property
    def settled(self) -> bool:
        return all([part.settled for part in self._parts])

    @property
    def queue(self) -> Source | None:
        return next((part.queue for part in self._parts if part.queue is not None), None)

    def poll(self) -> bool:
        return all([part.poll() for part in self._parts])

    def advance(self) -> None:
        for part in self._parts:
            part.advance()

    def result(self) -> Any:
        send, receive = self._parts
        send.result()
        value = receive.result()
        if self._finish is not None:
            self._finish()
        return value

    def fill(self, status: Status) -> None:
        self._parts[1].fill(status)


def fill_received(status: Status, message: Arrival, target: MessageTarget) -> None:
    """Describe a message that was received."""
    status.fill(message.sender, message.announce.tag, target.count(message))
