"""Sums by gradient methods that have rounds of messages, in the background of a process group.

The thread of the group makes them (softnic/gradients/rounds.py): it encodes, sends to all ranks, and goes on when their
messages have arrived. Other calls are made meanwhile, in any order: messages have numbers that all ranks agree on.
Tensors of a GPU, and of other types than float32, are summed as float32 in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from softnic import gradients
from softnic.collectives.elements import Array
from softnic.comm.errors import ArgumentError
from softnic.comm.scratch import Allocation
from softnic.gradients.method import Floats, MethodError
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace
from softnic.mpi.progress_loop import Receiving, Sending
from softnic.torch.arguments import writable
from softnic.torch.devices import ReadyEvents
from softnic.torch.encoded import Course, Steps
from softnic.torch.exec_context import ExecContext, tag_of
from softnic.torch.work_items import WorkItem

MOST_ROUNDS = 2
"""Of any method."""
_MOST_BYTES = 8
"""Of a message, for each element; no method sends as many."""
_SLACK = 4096

Begin = Callable[[Floats, RoundsPlace], Rounds]
"""Starts the rounds of a gradient."""


def method_of(text: str) -> MessageMethod:
    """Return a method of outer steps. Raises MethodError for one that has no rounds."""
    method = gradients.get(text)
    if not isinstance(method, MessageMethod):
        raise MethodError(f"outer steps are by feedback:CODEC or sparseloco, not by {text}")
    nothing = np.zeros(1, np.float32)
    method.rounds(nothing, nothing, RoundsPlace(0, 1)).close()  # refuses what it cannot sum so
    return method


class RoundsSum(WorkItem):
    """The sum of a tensor over the ranks, in its place, by the rounds that `begin` starts."""

    def __init__(self, tensor: torch.Tensor, begin: Begin) -> None:
        writable([tensor])
        self._tensor, self._begin = tensor, begin
        self._ready = ReadyEvents([tensor])

    def start(self, context: ExecContext) -> None:
        self._context = context
        self._first = context.numbers(MOST_ROUNDS)
        self._course = Course(self._steps())

    def advance(self) -> bool:
        return self._course.advance()

    def _steps(self) -> Steps:
        context, tensor = self._context, self._tensor
        buffer = context.stage(tensor.numel(), tensor.dtype, self._ready.device)
        loaded = context.watched(buffer.load([(0, tensor)], self._ready))
        yield lambda: all([event.query() for event in loaded])
        rank, size = context.comm.rank, context.comm.size
        rounds = self._begin(buffer.flat.to(torch.float32).numpy(), RoundsPlace(rank, size))
        try:
            messages = next(rounds)
            for number in range(MOST_ROUNDS):
                exchange = _Exchange(context, messages, tag_of(self._first + number), self._most_bytes)
                yield exchange.is_complete
                messages = rounds.send(exchange.take())
        except StopIteration as end:
            buffer.flat.copy_(torch.from_numpy(end.value))
        except MethodError as error:
            raise ArgumentError(str(error)) from error
        stored = context.watched(buffer.store([(0, tensor)], self._ready))
        yield lambda: all([event.query() for event in stored])
        buffer.free()

    @property
    def _most_bytes(self) -> int:
        return _MOST_BYTES * self._tensor.numel() + _SLACK


class _Exchange:
    """A message to each rank, and one of each."""

    def __init__(self, context: ExecContext, messages: Sequence[bytes], tag: int, most_bytes: int) -> None:
        self._context, self._most_bytes = context, most_bytes
        self._own = messages[context.comm.rank]
        self._memory: dict[int, Allocation] = {}
        """Of what is sent, by the id of a message: ranks that get the same one share it."""
        self._rooms: dict[int, Allocation] = {}
        """Of what is received, by rank."""
        others = [rank for rank in range(context.comm.size) if rank != context.comm.rank]
        self._receivings: list[Receiving] = [
            context.loop.receive_sized(rank, tag, self._room_of(rank)) for rank in others
        ]
        self._sendings: list[Sending] = [
            context.loop.send(rank, tag, self._registered(messages[rank]).bytes) for rank in others
        ]

    def is_complete(self) -> bool:
        """Return whether all messages have arrived, here and there. Raises CommError."""
        arrived = all([each.is_complete for each in self._receivings])
        return all([each.is_complete for each in self._sendings]) and arrived

    def take(self) -> list[bytes]:
        """Return the messages of all ranks, and free their memory."""
        pool, comm = self._context.pool(), self._context.comm
        found = [self._own if rank == comm.rank else self._rooms[rank].bytes.tobytes() for rank in range(comm.size)]
        for memory in [*self._memory.values(), *self._rooms.values()]:
            pool.free(memory)
        return found

    def _registered(self, message: bytes) -> Allocation:
        if id(message) not in self._memory:
            memory = self._context.pool().allocate(len(message))
            memory.bytes[:] = np.frombuffer(message, np.uint8)
            self._memory[id(message)] = memory
        return self._memory[id(message)]

    def _room_of(self, rank: int) -> Callable[[int], Array]:
        def room(size: int) -> Array:
            if size > self._most_bytes:
                raise ArgumentError(f"rank {rank} sent {size} bytes where a method's message is expected", rank=rank)
            self._rooms[rank] = self._context.pool().allocate(size)
            return self._rooms[rank].bytes

        return room
