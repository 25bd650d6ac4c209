"""The memory of buffered sends: attached to the process, or to one communicator, which then uses only that.

Messages are copied. An attached buffer limits the bytes of those that are not sent yet; its memory is not used.
"""

from __future__ import annotations

from typing import Any

from softnic.comm.error_classes import ERR_BUFFER
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments.buffers import flat_bytes
from softnic.mpi.constants import BSEND_OVERHEAD
from softnic.mpi.requests.operations import Operation, SendOperation
from softnic.mpi.requests.sets import wait_for
from softnic.mpi.state import CommunicatorState


class BufferAutomatic(int):
    """The type of MPI.BUFFER_AUTOMATIC: memory without a limit."""

    def __repr__(self) -> str:
        return "MPI.BUFFER_AUTOMATIC"

    def __reduce__(self) -> str:
        return "BUFFER_AUTOMATIC"


BUFFER_AUTOMATIC = BufferAutomatic(0)


class AttachedBuffer:
    """A buffer for buffered sends, and the messages in it."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        unlimited = buffer is None or isinstance(buffer, BufferAutomatic)
        self._size: float = float("inf")
        if not unlimited:
            self._size = flat_bytes(buffer, "the buffer to attach", writable=True).nbytes
        self._messages: dict[SendOperation, int] = {}

    def reserve(self, size: int) -> None:
        """Raise ArgumentError if a message does not fit beside those that are not sent yet."""
        used = sum(kept for operation, kept in list(self._messages.items()) if not operation.poll())
        if used + size + BSEND_OVERHEAD > self._size:
            raise ArgumentError(
                f"the attached buffer has {self._size} bytes, {used} of them in use:"
                f" the message takes {size} and MPI.BSEND_OVERHEAD",
                code=ERR_BUFFER,
            )

    def keep(self, operation: SendOperation, size: int) -> None:
        """Account for a message that is being sent."""
        self._messages = {each: kept for each, kept in self._messages.items() if not each.settled}
        if not operation.settled:
            self._messages[operation] = size + BSEND_OVERHEAD

    @property
    def messages(self) -> list[SendOperation]:
        """The messages that are not sent yet."""
        return [operation for operation in self._messages if not operation.settled]


_buffers: dict[CommunicatorState | None, AttachedBuffer] = {}
"""By communicator; that of the process under None."""


def attach(state: CommunicatorState | None, buffer: Any) -> None:
    """Attach a buffer to a communicator, None: to the process. Raises ArgumentError if it has one."""
    if state in _buffers:
        raise ArgumentError("Attach_buffer: a buffer is attached already", code=ERR_BUFFER)
    _buffers[state] = AttachedBuffer(buffer)


def flush(state: CommunicatorState | None) -> None:
    """Return when all messages in a buffer are sent."""
    if state in _buffers:
        wait_for(_buffers[state].messages, all)


def detach(state: CommunicatorState | None) -> Any:
    """Return the buffer of a communicator or of the process, once all messages in it are sent; None without one."""
    flush(state)
    attached = _buffers.pop(state, None)
    return None if attached is None else attached.buffer


class Flush(Operation):
    """The wait for the messages in a buffer."""

    def __init__(self, call: str, state: CommunicatorState | None) -> None:
        super().__init__(call)
        self._messages = _buffers[state].messages if state in _buffers else []

    @property
    def settled(self) -> bool:
        return all([message.settled for message in self._messages])

    @property
    def queue(self) -> Any:
        return next((message.queue for message in self._messages if not message.settled), None)

    def poll(self) -> bool:
        return all([message.poll() for message in self._messages])

    def advance(self) -> None:
        for message in self._messages:
            message.advance()


def reserve(state: CommunicatorState, data: memoryview) -> memoryview:
    """Return a copy of a message. Raises ArgumentError if it does not fit into the attached buffer."""
    attached = _buffers.get(state) or _buffers.get(None)
    if attached is None:
        raise ArgumentError("no buffer is attached: call MPI.Attach_buffer first", code=ERR_BUFFER)
    attached.reserve(data.nbytes)
    return memoryview(bytes(data))


def keep(state: CommunicatorState, operation: SendOperation, size: int) -> None:
    """Count a message that was begun as long as it is not sent."""
    attached = _buffers.get(state) or _buffers.get(None)
    if attached is not None:
        attached.keep(operation, size)


def forget(state: CommunicatorState) -> None:
    """Detach the buffer of a communicator that is freed."""
    _buffers.pop(state, None)
