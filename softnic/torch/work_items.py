"""The operations that calls of a process group consist of: NIC collectives, batches of messages, local work.

The thread of the group (group_thread.py) starts an item, polls it until it is done, and finishes it. Tensors are read
at the start and written at the finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from softnic.comm.scratch import Scratch
from softnic.mpi.communicator import Communicator
from softnic.mpi.progress_loop import ProgressLoop, Receiving, Sending
from softnic.mpi.requests.request import Request, wait_within
from softnic.torch.arguments import writable
from softnic.torch.gpu_copies import CopyStreams, ReadyEvents, uncounted
from softnic.torch.reduction import NO_REDUCTION, Reduction, divide
from softnic.torch.staging import StagingBuffer, TensorAt

Post = Callable[[Communicator, StagingBuffer], Request]
_MOST_NAMED = 8
"""Ranks in an error."""


@dataclass
class ExecContext:
    """The resources that work items are executed with."""

    comm: Communicator
    loop: ProgressLoop
    pool: Scratch
    streams: CopyStreams = field(default_factory=CopyStreams)

    def stage(self, count: int, dtype: torch.dtype) -> StagingBuffer:
        """Return a staging buffer."""
        return StagingBuffer(self.pool, self.streams, count, dtype)


class WorkItem(ABC):
    """One operation of a call."""

    source = -1
    """The rank that a message came from, once it has arrived."""

    @property
    def can_wait(self) -> bool:
        """Whether any thread can start it, `wait` for it and finish it."""
        return False

    @property
    def waits_for(self) -> str:
        """What has not happened that a person would want to know beside what NICs tell; empty: nothing."""
        return ""

    def wait(self, limit_s: float) -> bool:
        """Wait until it is done, or for `limit_s`; return whether it is done."""
        raise NotImplementedError

    @abstractmethod
    def start(self, context: ExecContext) -> None:
        """Start the operation. Raises CommError and OSError, after which the group is unusable."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True if `finish` can be called. Raises CommError."""

    @abstractmethod
    def finish(self) -> None:
        """Store the results. Raises CommError if there are none."""


class NicCollective(WorkItem):
    """A collective that NICs execute on a staging buffer of `count` elements.

    `before`, `after`, `divisor` and `fold` are those of `reduction`.

    1. The tensors `loads` are copied to the buffer and multiplied by `before`.
    2. `post` hands the buffer to the NIC.
    3. The result is multiplied by `after` and divided by `divisor`. With `fold`, the buffer consists of `blocks`, one
       of each rank, which are combined into the first.
    4. The result is copied to the tensors `stores`.
    """

    def __init__(
        self,
        count: int,
        dtype: torch.dtype,
        post: Post,
        loads: Sequence[TensorAt],
        stores: Sequence[TensorAt],
        reduction: Reduction = NO_REDUCTION,
        blocks: int = 1,
    ) -> None:
        self._count = count
        self._dtype = dtype
        self._post = post
        self._loads = loads
        self._stores = stores
        writable(tensor for _, tensor in stores)
        self._ready = ReadyEvents(tensor for _, tensor in [*loads, *stores])
        self._reduction = reduction
        self._blocks = blocks

    @property
    def can_wait(self) -> bool:
        return not self._ready.events  # copies of GPU tensors are made on the streams of the group's thread

    def wait(self, limit_s: float) -> bool:
        return wait_within(self._request, limit_s)

    def start(self, context: ExecContext) -> None:
        self._buffer = context.stage(self._count, self._dtype)
        self._buffer.load(self._loads, self._ready)
        if self._reduction.before is not None:
            self._buffer.flat.mul_(self._reduction.before)
        self._request = self._post(context.comm, self._buffer)

    @property
    def done(self) -> bool:
        return self._request.Get_status()

    def finish(self) -> None:
        self._request.Wait()
        flat, reduction = self._buffer.flat, self._reduction
        if reduction.after is not None:
            flat.mul_(reduction.after)
        if reduction.divisor != 1:
            divide(flat, reduction.divisor)
        if reduction.fold is not None:
            first, *others = flat.view(self._blocks, -1)
            for other in others:
                reduction.fold(first, other, out=first)
        self._buffer.store(self._stores, self._ready)
        self._buffer.free()


@dataclass(frozen=True)
class P2POp:
    """One message to or from `peer`."""

    peer: int
    tag: int
    tensor: torch.Tensor


class P2PBatch(WorkItem):
    """Messages that are sent and received concurrently."""

    def __init__(self, sends: Sequence[P2POp], receives: Sequence[P2POp]) -> None:
        self._sends = sends
        self._receives = receives
        writable(op.tensor for op in receives)
        self._ready = ReadyEvents(op.tensor for op in [*sends, *receives])
        self._outgoing: list[tuple[Sending, StagingBuffer]] = []
        self._incoming: list[tuple[Receiving, StagingBuffer, torch.Tensor]] = []
        self._unsent: list[int] = []
        self._missing: list[int] = []
        """Ranks, as `done` has found."""

    @property
    def waits_for(self) -> str:
        missing = [_ranks("no message from ", self._missing), _ranks("a message is not taken by ", self._unsent)]
        return " and ".join(filter(None, missing))

    def start(self, context: ExecContext) -> None:
        for op in self._receives:
            buffer = context.stage(op.tensor.numel(), op.tensor.dtype)
            receiving = context.loop.receive(op.peer, op.tag, buffer.bytes.numpy())
            self._incoming.append((receiving, buffer, op.tensor))
        for op in self._sends:
            buffer = context.stage(op.tensor.numel(), op.tensor.dtype)
            buffer.load([(0, op.tensor)], self._ready)
            self._outgoing.append((context.loop.send(op.peer, op.tag, buffer.bytes.numpy()), buffer))

    @property
    def done(self) -> bool:
        sent = [sending.is_complete for sending, _ in self._outgoing]
        received = [receiving.is_complete for receiving, *_ in self._incoming]
        self._unsent = [op.peer for op, done in zip(self._sends, sent, strict=True) if not done]
        self._missing = [op.peer for op, done in zip(self._receives, received, strict=True) if not done]
        return not self._unsent and not self._missing

    def finish(self) -> None:
        for _, buffer in self._outgoing:
            buffer.free()
        for receiving, buffer, tensor in self._incoming:
            buffer.store([(0, tensor)], self._ready)
            buffer.free()
            self.source = receiving.source


def _ranks(what: str, ranks: Sequence[int]) -> str:
    """Return `what` with the first few of these ranks, MPI.ANY_SOURCE as any one; empty if there is none."""
    if not ranks:
        return ""
    if min(ranks) < 0:
        return f"{what}any rank"
    named = ", ".join(map(str, sorted(set(ranks))[:_MOST_NAMED]))
    more = len(set(ranks)) - _MOST_NAMED
    text = f"{what}rank{'s' if len(set(ranks)) > 1 else ''} {named}"
    return f"{text} and {more} more" if more > 0 else text


class LocalTask(WorkItem):
    """Work on this rank alone, which may use the results of the items before it."""

    def __init__(self, task: Callable[[], object]) -> None:
        self._task = task

    def start(self, _: ExecContext) -> None:
        pass

    @property
    def done(self) -> bool:
        return True

    def finish(self) -> None:
        self._task()


class LocalCopy(LocalTask):
    """A tensor that this rank sends to itself."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor) -> None:
        writable([target])
        super().__init__(lambda: uncounted(target).copy_(source.reshape(target.shape)))
