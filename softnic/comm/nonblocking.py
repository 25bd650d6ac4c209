"""The collective calls on buffers that return at once: NICs execute them, from descriptors.

Each is its blocking twin (collectives.py) with an I in front, and returns a Request. Buffers in registered memory
(softnic.empty) are the NIC's to read and write until the Request is complete. For others there is scratch: what is
sent is copied there before the call returns, and the result is copied back when this process learns that it is there.

They travel on connections of their own, so that they and blocking calls do not wait for each other. Of both kinds
every rank has to make its calls in the same order.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from softnic.collectives.elements import name_of
from softnic.collectives.operations import MAX, SUM, Op
from softnic.comm import buffers, tasks
from softnic.comm.base import Base
from softnic.comm.buffers import Array, raw
from softnic.comm.connections import Session
from softnic.comm.dtype_conversion import Journey
from softnic.comm.exchange import receive_counts
from softnic.comm.offload_queue import Operation
from softnic.comm.request import Request
from softnic.comm.scratch import Piece, Scratch
from softnic.comm.tasks import Task
from softnic.ipc import regions
from softnic.ipc.regions import Region
from softnic.ipc.work_queue import WorkRequest


class NonblockingCollectives(Base):
    """The calls that every rank makes, and whose Request it waits for when it likes."""

    def Ibarrier(self) -> Request:
        """Complete when every rank has called it."""
        with self._world.call("Ibarrier") as session:
            token = np.zeros(self.size, np.uint8)
            return self._start(session, "Ibarrier", tasks.allreduce(self.size, buffers.IN_PLACE, token, MAX))

    # -- exact -----------------------------------------------------------------------------------------------------

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> Request:
        with self._world.call("Iallreduce") as session:
            return self._start(session, "Iallreduce", tasks.allreduce(self.size, sendbuf, recvbuf, op))

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, root: int = 0) -> Request:
        with self._world.call("Ireduce") as session:
            return self._start(session, "Ireduce", tasks.reduce(self.size, self.rank, sendbuf, recvbuf, op, root))

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op | None = SUM
    ) -> Request:
        with self._world.call("Ireduce_scatter") as session:
            counts = receive_counts(session, "Ireduce_scatter", sendbuf, recvbuf, recvcounts)
            task = tasks.reduce_scatter(self.size, self.rank, sendbuf, recvbuf, counts, op)
            return self._start(session, "Ireduce_scatter", task)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> Request:
        with self._world.call("Ireduce_scatter_block") as session:
            task = tasks.reduce_scatter_block(self.size, self.rank, sendbuf, recvbuf, op)
            return self._start(session, "Ireduce_scatter_block", task)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        with self._world.call("Iallgather") as session:
            return self._start(session, "Iallgather", tasks.allgather(self.size, self.rank, sendbuf, recvbuf))

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        with self._world.call("Ibcast") as session:
            return self._start(session, "Ibcast", tasks.bcast(self.size, self.rank, buf, root))

    # -- compressed ------------------------------------------------------------------------------------------------

    def Iallreduce_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str | None = None
    ) -> Request:
        with self._world.call("Iallreduce_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            return self._start(session, "Iallreduce_comp", tasks.allreduce(self.size, sendbuf, recvbuf, op, chosen))

    def Ireduce_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Op | None = SUM,
        root: int = 0,
        *,
        codec: Any = None,
        algorithm: str | None = None,
    ) -> Request:
        with self._world.call("Ireduce_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            task = tasks.reduce(self.size, self.rank, sendbuf, recvbuf, op, root, chosen)
            return self._start(session, "Ireduce_comp", task)

    def Ireduce_scatter_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Op | None = SUM,
        *,
        codec: Any = None,
        algorithm: str | None = None,
    ) -> Request:
        with self._world.call("Ireduce_scatter_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            counts = receive_counts(session, "Ireduce_scatter_comp", sendbuf, recvbuf, recvcounts)
            task = tasks.reduce_scatter(self.size, self.rank, sendbuf, recvbuf, counts, op, chosen)
            return self._start(session, "Ireduce_scatter_comp", task)

    def Ireduce_scatter_block_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str | None = None
    ) -> Request:
        with self._world.call("Ireduce_scatter_block_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            task = tasks.reduce_scatter_block(self.size, self.rank, sendbuf, recvbuf, op, chosen)
            return self._start(session, "Ireduce_scatter_block_comp", task)

    def Iallgather_comp(self, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> Request:
        with self._world.call("Iallgather_comp") as session:
            chosen = self._chosen(session, codec)
            return self._start(
                session, "Iallgather_comp", tasks.allgather(self.size, self.rank, sendbuf, recvbuf, chosen)
            )

    def Ibcast_comp(self, buf: Any, root: int = 0, *, codec: Any = None) -> Request:
        with self._world.call("Ibcast_comp") as session:
            task = tasks.bcast(self.size, self.rank, buf, root, self._chosen(session, codec))
            return self._start(session, "Ibcast_comp", task)

    def _start(self, session: Session, call: str, task: Task) -> Request:
        if self.size == 1:
            task.alone()
            return Request(Operation(call))
        if session.group is None or session.nic is None:
            raise ValueError("NICs execute this, and these connections are not a NIC's: use the call without the I")
        placed = _Placed(Journey(task, self.rank, self.size), self.rank, session.nic.number, session.pool)
        return Request(session.group.post(call, lambda number: placed.describe(number, call), placed.finish))


Number = Callable[[Region], int]
"""What the NIC calls a region. Raises OSError."""


class _Placed:
    """A Task whose memory is registered: the caller's own as far as it is, scratch for the rest, and for elements that
    travel as others. Raises OSError."""

    def __init__(self, journey: Journey, rank: int, number: Number, scratch: Scratch) -> None:
        self._journey = journey
        self._rank = rank
        self._number = number
        self._scratch = scratch
        self._piece: Piece | None = None
        self._task = task = journey.task
        home = None if journey.converts or task.result is None else self._home(task.result)
        if home is not None and task.result is not None:
            self._work: Array = task.result
        else:
            self._piece = scratch.take(task.count * journey.dtype.itemsize)
            self._work = self._piece.bytes.view(journey.dtype)
            home = number(self._piece.region), self._piece.offset
            if journey.converts:
                self._task = journey.begin(self._work)
        self.result: tuple[int, int] = home
        self.source = self._place_source(self._work)

    def _place_source(self, work: Array) -> tuple[int, int]:
        """What this rank brings is put where the NIC reads it."""
        task = self._task
        first = task.begins_with(self._rank)
        if task.given is not None:
            work[task.blocks[self._rank]] = task.given
        elif task.collective in ("allgather", "bcast"):
            if first is not None and work is not task.source:
                work[task.blocks[first]] = task.source[task.blocks[first]]
        elif work is not task.source:
            home = self._home(task.source)
            if home is not None:
                return home
            work[:] = task.source
        return self.result

    @property
    def _known(self) -> bool:
        """The result is what this rank has sent."""
        task = self._task
        return task.collective == "bcast" and self._rank == task.root and task.chosen.codec is None

    def _home(self, array: Array) -> tuple[int, int] | None:
        """The region and offset of an array, if it is registered and the NIC takes it."""
        place = regions.find(raw(array))
        if place is None:
            return None
        try:
            return self._number(place.region), place.offset
        except OSError as error:
            if error.errno == errno.ENETDOWN:
                raise
            return None  # scratch will do, or has an error of its own

    def describe(self, number: int, call: str) -> WorkRequest:
        task, elements = self._task, name_of(self._journey.elements)
        return WorkRequest(
            number,
            f"{call} of {elements}" if self._journey.converts else call,  # on which all ranks must agree
            task.collective,
            task.algorithm,
            name_of(task.source.dtype),
            task.counts,
            self.source,
            self.result,
            task.op.name if task.op is not None else "",
            task.root,
            str(task.chosen.codec) if task.chosen.codec is not None else "",
        )

    def finish(self) -> None:
        """The NIC is done: the result goes where the caller wants it."""
        task = self._task
        if task.own is not None:
            task.own[:] = self._work[task.blocks[self._rank]]
        elif task.result is not None and self._work is not task.result and not self._known:
            task.result[:] = self._work
        self._journey.finish()
        piece, self._piece = self._piece, None
        if piece is not None:
            self._scratch.give(piece)
