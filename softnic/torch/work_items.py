"""The operations that calls of a process group consist of: NIC collectives, batches of messages, local work.

The thread of the group (group_thread.py) starts an item, advances it until it is done, and finishes it. Tensors are
read and written in between, at any time.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from softnic.mpi.communicator import Communicator
from softnic.mpi.progress_loop import Receiving, Sending
from softnic.mpi.requests.request import Request, wait_within
from softnic.torch.arguments import writable
from softnic.torch.devices import Event, ReadyEvents, uncounted
from softnic.torch.exec_context import ExecContext
from softnic.torch.reduction import NO_REDUCTION, Reduction, divide
from softnic.torch.staging import StagingBuffer, TensorAt

Post = Callable[[Communicator, StagingBuffer], Request]
_COPIED_AT_ONCE = 1 << 16
"""Bytes, at most, that a caller that waits copies from and to a GPU itself: waking a thread takes longer."""
_LOOK_S = 50e-6
_MOST_NAMED = 8
"""Ranks in an error."""


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

    @abstractmethod
    def advance(self) -> bool:
        """Do what can be done without waiting; return whether `finish` can be called. Raises CommError."""

    def finish(self) -> None:  # noqa: B027  # many have nothing to do
        """Store the results, unless `advance` has, and free what was used. Raises CommError if there are none."""


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
        self._request: Request | None = None
        self._stored: list[Event] | None = None
        """After which the result is in its place; None: the copies have not begun."""

    @property
    def can_wait(self) -> bool:
        return not self._ready or self._count * self._dtype.itemsize <= _COPIED_AT_ONCE

    def wait(self, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        for event in self._loaded:
            event.synchronize()
        self._context.post_loaded()
        while self._request is None:  # another caller's, which comes first, is not loaded yet
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_S)
            self._context.post_loaded()
        if not wait_within(self._request, max(0.0, until - time.monotonic())):
            return False
        self._store()
        for event in self._stored or ():
            event.synchronize()
        return True

    def start(self, context: ExecContext) -> None:
        self._context = context
        self._buffer = context.stage(self._count, self._dtype, self._ready.device)
        self._loaded = self._buffer.load(self._loads, self._ready)
        context.post_in_order(self._loaded, self._post_loaded)

    def _post_loaded(self) -> None:
        if self._reduction.before is not None:
            self._buffer.flat.mul_(self._reduction.before)
        self._request = self._post(self._context.comm, self._buffer)

    def advance(self) -> bool:
        if self._request is None or (self._stored is None and not self._request.Get_status()):
            return False
        self._store()
        assert self._stored is not None
        return all([event.query() for event in self._stored])

    def finish(self) -> None:
        self._store()
        self._buffer.free()

    def _store(self) -> None:
        """Complete the result and copy it to its place, once."""
        if self._stored is not None:
            return
        assert self._request is not None
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
        self._stored = self._context.watched(self._buffer.store(self._stores, self._ready))


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
        """Ranks, as `advance` has found."""
        self._stored: list[Event] | None = None
        """After which the messages are in their place; None: they have not all arrived."""

    @property
    def waits_for(self) -> str:
        missing = [_ranks("no message from ", self._missing), _ranks("a message is not taken by ", self._unsent)]
        return " and ".join(filter(None, missing))

    def start(self, context: ExecContext) -> None:
        self._context = context
        for op in self._receives:
            buffer = context.stage(op.tensor.numel(), op.tensor.dtype, self._ready.device)
            receiving = context.loop.receive(op.peer, op.tag, buffer.bytes.numpy())
            self._incoming.append((receiving, buffer, op.tensor))
        loaded, buffers = [], []
        for op in self._sends:
            buffers.append(context.stage(op.tensor.numel(), op.tensor.dtype, self._ready.device))
            loaded += buffers[-1].load([(0, op.tensor)], self._ready)
        context.post_in_order(loaded, lambda: self._send(buffers))

    def _send(self, buffers: Sequence[StagingBuffer]) -> None:
        for op, buffer in zip(self._sends, buffers, strict=True):
            self._outgoing.append((self._context.loop.send(op.peer, op.tag, buffer.bytes.numpy()), buffer))

    def advance(self) -> bool:
        if self._stored is None:
            sent = [sending.is_complete for sending, _ in self._outgoing]
            received = [receiving.is_complete for receiving, *_ in self._incoming]
            self._unsent = [op.peer for op, done in zip_longest(self._sends, sent) if not done]
            self._missing = [op.peer for op, done in zip(self._receives, received, strict=True) if not done]
            if self._unsent or self._missing:
                return False
            self._stored = []
            for receiving, buffer, tensor in self._incoming:
                self._stored += self._context.watched(buffer.store([(0, tensor)], self._ready))
                self.source = receiving.source
        return all([event.query() for event in self._stored])

    def finish(self) -> None:
        for _, buffer in self._outgoing:
            buffer.free()
        for _, buffer, _ in self._incoming:
            buffer.free()


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
    """Work on this rank alone, on the results of the items `after`; `tensors` are those that it reads and writes."""

    def __init__(
        self, task: Callable[[], object], tensors: Sequence[torch.Tensor], after: Sequence[WorkItem] = ()
    ) -> None:
        self._task = task
        self._after = after
        self._ready = ReadyEvents(tensors)
        self._done: list[Event] | None = None
        """None: it has not begun."""

    def start(self, context: ExecContext) -> None:
        self._context = context

    def advance(self) -> bool:
        if self._done is None:
            if not all([item.advance() for item in self._after]):
                return False
            self._done = self._run()
        return all([event.query() for event in self._done])

    def _run(self) -> list[Event]:
        device = self._ready.device
        if device is None:
            self._task()
            return []
        streams = self._context.streams(device)
        with streams.kernels(self._ready.of(device)):
            self._task()
        return self._context.watched([streams.mark()])


class LocalCopy(LocalTask):
    """A tensor that this rank sends to itself."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor) -> None:
        writable([target])
        super().__init__(lambda: uncounted(target).copy_(source.reshape(target.shape)), [source, target])
