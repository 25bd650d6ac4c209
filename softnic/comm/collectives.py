"""The collective calls on buffers, and their compressed twins.

A twin differs from the exact call in its codec alone; both run the same schedule, `algorithm` of
softnic/collectives/schedule. Twins take elements of any type: float32 travels compressed, other floats as float32 or
as they are, and what is no float exactly (softnic/collectives/elements.py). With one rank nothing crosses a network,
and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softnic.collectives import schedule
from softnic.collectives.operations import SUM, Op
from softnic.comm import tasks
from softnic.comm.base import Base
from softnic.comm.collective import Work
from softnic.comm.connections import Session
from softnic.comm.dtype_conversion import Journey
from softnic.comm.exchange import receive_counts
from softnic.comm.matching import Call
from softnic.comm.messages import Head
from softnic.comm.tasks import Task


class BufferCollectives(Base):
    """The calls that every rank makes with a buffer."""

    def Barrier(self) -> None:
        """Returns when every rank has called it."""
        with self._world.call("Barrier") as session:
            session.matcher.enter(Call(session.head("Barrier"), session.progress))

    # -- exact -----------------------------------------------------------------------------------------------------

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> None:
        """Combines the buffers of all ranks element by element; every rank gets the result."""
        with self._world.call("Allreduce") as session:
            self._run(session, "Allreduce", tasks.allreduce(self.size, sendbuf, recvbuf, op))

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, root: int = 0) -> None:
        """The same for `root` alone; the others' `recvbuf` is not looked at."""
        with self._world.call("Reduce") as session:
            self._run(session, "Reduce", tasks.reduce(self.size, self.rank, sendbuf, recvbuf, op, root))

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op | None = SUM
    ) -> None:
        """Rank r gets the r-th block of the result, of recvcounts[r] elements.

        None: as many as its receive buffer has, if these add up to the input; otherwise, and in place, near-equal
        blocks, the longer ones first. In place, `recvbuf` holds the whole input, and its start the block afterwards;
        the rest of it is left as it was.
        """
        with self._world.call("Reduce_scatter") as session:
            counts = receive_counts(session, "Reduce_scatter", sendbuf, recvbuf, recvcounts)
            task = tasks.reduce_scatter(self.size, self.rank, sendbuf, recvbuf, counts, op)
            self._run(session, "Reduce_scatter", task)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> None:
        """Reduce_scatter with equal blocks. A count in the input's list, [buffer, count, type], is that of a block."""
        with self._world.call("Reduce_scatter_block") as session:
            task = tasks.reduce_scatter_block(self.size, self.rank, sendbuf, recvbuf, op)
            self._run(session, "Reduce_scatter_block", task)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Every rank gets the equal blocks of all, in rank order. In place, its own is in `recvbuf` already. A count in
        `recvbuf`, [buffer, count, type], is that of one block."""
        with self._world.call("Allgather") as session:
            self._run(session, "Allgather", tasks.allgather(self.size, self.rank, sendbuf, recvbuf))

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Every rank gets what `root` has."""
        with self._world.call("Bcast") as session:
            self._run(session, "Bcast", tasks.bcast(self.size, self.rank, buf, root))

    # -- compressed ------------------------------------------------------------------------------------------------

    def Allreduce_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str | None = None
    ) -> None:
        """Allreduce in which all that crosses the network is compressed. `algorithm`: ring, direct, tree, hierarchical
        or wa (softnic/collectives/schedule); None: the best for the size and the ranks."""
        with self._world.call("Allreduce_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            self._run(session, "Allreduce_comp", tasks.allreduce(self.size, sendbuf, recvbuf, op, chosen))

    def Reduce_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Op | None = SUM,
        root: int = 0,
        *,
        codec: Any = None,
        algorithm: str | None = None,
    ) -> None:
        """Reduce, compressed. By ring, direct and hierarchical, the root gets the very bits that Allreduce_comp would
        give by the same algorithm."""
        with self._world.call("Reduce_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            task = tasks.reduce(self.size, self.rank, sendbuf, recvbuf, op, root, chosen)
            self._run(session, "Reduce_comp", task)

    def Reduce_scatter_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Op | None = SUM,
        *,
        codec: Any = None,
        algorithm: str | None = None,
    ) -> None:
        """Reduce_scatter, compressed. A rank's block is not rounded again after its own contribution."""
        with self._world.call("Reduce_scatter_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            counts = receive_counts(session, "Reduce_scatter_comp", sendbuf, recvbuf, recvcounts)
            task = tasks.reduce_scatter(self.size, self.rank, sendbuf, recvbuf, counts, op, chosen)
            self._run(session, "Reduce_scatter_comp", task)

    def Reduce_scatter_block_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str | None = None
    ) -> None:
        """Reduce_scatter_comp with equal blocks."""
        with self._world.call("Reduce_scatter_block_comp") as session:
            chosen = self._chosen(session, codec, algorithm)
            task = tasks.reduce_scatter_block(self.size, self.rank, sendbuf, recvbuf, op, chosen)
            self._run(session, "Reduce_scatter_block_comp", task)

    def Allgather_comp(self, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> None:
        """Allgather, compressed. A rank's own block too becomes what the others decode."""
        with self._world.call("Allgather_comp") as session:
            chosen = self._chosen(session, codec)
            self._run(session, "Allgather_comp", tasks.allgather(self.size, self.rank, sendbuf, recvbuf, chosen))

    def Bcast_comp(self, buf: Any, root: int = 0, *, codec: Any = None) -> None:
        """Bcast, compressed. The root's buffer too becomes what the others decode."""
        with self._world.call("Bcast_comp") as session:
            task = tasks.bcast(self.size, self.rank, buf, root, self._chosen(session, codec))
            self._run(session, "Bcast_comp", task)

    # -- how -------------------------------------------------------------------------------------------------------

    def _run(self, session: Session, call: str, task: Task) -> None:
        """Executes a task here and now."""
        counts = task.counts if task.collective == "reduce_scatter" else ()
        head = session.head(call, task.source, task.op, task.root, task.chosen.name, counts, task.algorithm)
        journey = Journey(task, self.rank, self.size)
        scratch = session.scratch(task.source, journey.dtype) if journey.converts else None
        self._execute(session, head, journey.task if scratch is None else journey.begin(scratch))
        journey.finish()

    def _execute(self, session: Session, head: Head, task: Task) -> None:
        blocks, codec = task.blocks, task.chosen.codec
        results = tasks.cut(session.scratch(task.source) if task.result is None else task.result, blocks)
        in_place = task.own is not None and np.may_share_memory(task.own, task.source)
        if task.own is not None and not in_place:
            results[self.rank] = task.own
        if task.given is not None:
            results[self.rank][:] = task.given
        first = task.begins_with(self.rank)
        if first is not None and codec is not None and self.size > 1:
            codec.roundtrip(results[first], out=results[first])  # what this rank sends is what the others will have
        work = Work(tasks.cut(task.source, blocks), results, task.op, codec, task.rounding)
        steps = schedule.plan(task.collective, task.algorithm, self.rank, self.size, task.root)
        with np.errstate(all="ignore"):  # overflow gives infinity, as in MPI
            session.matcher.enter(session.runner.call(head, steps, work))
        if self.size == 1:
            task.alone()
        elif task.own is not None and in_place:  # the input was read until now
            task.own[:] = results[self.rank]
