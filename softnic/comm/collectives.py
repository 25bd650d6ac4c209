"""The collective calls on buffers, and their compressed twins.

A twin differs from the exact call in its codec alone; both run the same schedule. `algorithm="ring"` is Algorithm 1 of
INCEPTIONN. With one rank nothing crosses a network, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softnic.codecs import Codec
from softnic.comm import buffers, schedule
from softnic.comm.base import Base
from softnic.comm.buffers import Array, InPlace
from softnic.comm.collective import Work
from softnic.comm.matching import Call
from softnic.comm.operations import SUM, Op
from softnic.comm.world import Session


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
            self._allreduce(session, "Allreduce", sendbuf, recvbuf, op)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, root: int = 0) -> None:
        """The same for `root` alone; the others' `recvbuf` is not looked at."""
        with self._world.call("Reduce") as session:
            self._reduce(session, "Reduce", sendbuf, recvbuf, op, root)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op | None = SUM
    ) -> None:
        """Rank r gets the r-th block of the result, of recvcounts[r] elements (None: near-equal blocks, the longer
        ones first). In place, `recvbuf` holds the whole input, and the block at its start afterwards."""
        with self._world.call("Reduce_scatter") as session:
            self._reduce_scatter(session, "Reduce_scatter", sendbuf, recvbuf, recvcounts, op)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> None:
        """Reduce_scatter with equal blocks."""
        with self._world.call("Reduce_scatter_block") as session:
            counts = self._equal_counts(sendbuf, recvbuf)
            self._reduce_scatter(session, "Reduce_scatter_block", sendbuf, recvbuf, counts, op)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Every rank gets the equal blocks of all, in rank order. In place, its own is in `recvbuf` already."""
        with self._world.call("Allgather") as session:
            self._allgather(session, "Allgather", sendbuf, recvbuf)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Every rank gets what `root` has."""
        with self._world.call("Bcast") as session:
            self._bcast(session, "Bcast", buf, root)

    # -- compressed ------------------------------------------------------------------------------------------------

    def Allreduce_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str = "ring"
    ) -> None:
        """Allreduce of float32 in which every partial result crosses the network compressed."""
        with self._world.call("Allreduce_comp") as session:
            buffers.algorithm_of(algorithm)
            self._allreduce(session, "Allreduce_comp", sendbuf, recvbuf, op, self._codec(session, codec))

    def Reduce_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Op | None = SUM,
        root: int = 0,
        *,
        codec: Any = None,
        algorithm: str = "ring",
    ) -> None:
        """Reduce of float32, compressed: the root gets the very bits that Allreduce_comp would give."""
        with self._world.call("Reduce_comp") as session:
            buffers.algorithm_of(algorithm)
            self._reduce(session, "Reduce_comp", sendbuf, recvbuf, op, root, self._codec(session, codec))

    def Reduce_scatter_comp(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Op | None = SUM,
        *,
        codec: Any = None,
        algorithm: str = "ring",
    ) -> None:
        """Reduce_scatter of float32, compressed. A rank's block is not rounded again after its own contribution."""
        with self._world.call("Reduce_scatter_comp") as session:
            buffers.algorithm_of(algorithm)
            chosen = self._codec(session, codec)
            self._reduce_scatter(session, "Reduce_scatter_comp", sendbuf, recvbuf, recvcounts, op, chosen)

    def Reduce_scatter_block_comp(
        self, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None, algorithm: str = "ring"
    ) -> None:
        """Reduce_scatter_comp with equal blocks."""
        with self._world.call("Reduce_scatter_block_comp") as session:
            buffers.algorithm_of(algorithm)
            counts, chosen = self._equal_counts(sendbuf, recvbuf), self._codec(session, codec)
            self._reduce_scatter(session, "Reduce_scatter_block_comp", sendbuf, recvbuf, counts, op, chosen)

    def Allgather_comp(self, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> None:
        """Allgather of float32, compressed. A rank's own block too becomes what the others decode."""
        with self._world.call("Allgather_comp") as session:
            self._allgather(session, "Allgather_comp", sendbuf, recvbuf, self._codec(session, codec))

    def Bcast_comp(self, buf: Any, root: int = 0, *, codec: Any = None) -> None:
        """Bcast of float32, compressed. The root's buffer too becomes what the others decode."""
        with self._world.call("Bcast_comp") as session:
            self._bcast(session, "Bcast_comp", buf, root, self._codec(session, codec))

    # -- how -------------------------------------------------------------------------------------------------------

    def _allreduce(
        self, session: Session, name: str, send: Any, receive: Any, op: Any, codec: _Chosen = ("", None)
    ) -> None:
        source, result = buffers.pair(send, receive)
        op = buffers.operation(op, source)
        head = session.head(name, _checked(source, codec), op, codec=codec[0])
        blocks = schedule.partition(source.size, self.size)
        work = Work(_cut(source, blocks), _cut(result, blocks), op, codec[1])
        self._enter(session, session.runner.call(head, schedule.plan("allreduce", "ring", self.rank, self.size), work))
        if self.size == 1:
            result[:] = source

    def _reduce(
        self, session: Session, name: str, send: Any, receive: Any, op: Any, root: Any, codec: _Chosen = ("", None)
    ) -> None:
        root = buffers.rank_in(root, self.size, "root")
        if self.rank == root:
            source, result = buffers.pair(send, receive)
        else:
            source = buffers.flat(send, what="the send buffer")
            result = session.scratch(source)
        op = buffers.operation(op, source)
        head = session.head(name, _checked(source, codec), op, root, codec[0])
        blocks = schedule.partition(source.size, self.size)
        work = Work(_cut(source, blocks), _cut(result, blocks), op, codec[1])
        self._enter(
            session, session.runner.call(head, schedule.plan("reduce", "ring", self.rank, self.size, root), work)
        )
        if self.size == 1:
            result[:] = source

    def _reduce_scatter(
        self, session: Session, name: str, send: Any, receive: Any, counts: Any, op: Any, codec: _Chosen = ("", None)
    ) -> None:
        result = buffers.flat(receive, writable=True, what="the receive buffer")
        in_place = isinstance(send, InPlace)
        source = result if in_place else buffers.flat(send, what="the send buffer")
        op = buffers.operation(op, source)
        blocks = buffers.scattered(source, result, counts, self.size, self.rank, in_place=in_place)
        whole = source if in_place else session.scratch(source)
        results = _cut(whole, blocks)
        own = results[self.rank]
        if not in_place:
            own = results[self.rank] = result[: own.size]
        head = session.head(
            name, _checked(source, codec), op, codec=codec[0], counts=tuple(b.stop - b.start for b in blocks)
        )
        steps = schedule.plan("reduce_scatter", "ring", self.rank, self.size)
        work = Work(_cut(source, blocks), results, op, codec[1], rounding=False)
        self._enter(session, session.runner.call(head, steps, work))
        if self.size == 1 and not in_place:
            own[:] = source
        elif in_place:
            result[: own.size] = own

    def _allgather(self, session: Session, name: str, send: Any, receive: Any, codec: _Chosen = ("", None)) -> None:
        result = buffers.flat(receive, writable=True, what="the receive buffer")
        count = buffers.blocks_for(result, self.size, "the receive buffer")
        blocks = _cut(result, schedule.offsets([count] * self.size))
        head = session.head(name, _checked(result, codec), codec=codec[0])
        own = blocks[self.rank]
        if not isinstance(send, InPlace):
            own[:] = buffers.gathered(buffers.flat(send, what="the send buffer"), result, count)
        self._round(own, codec[1])
        steps = schedule.plan("allgather", "ring", self.rank, self.size)
        self._enter(session, session.runner.call(head, steps, Work(blocks, blocks, codec=codec[1])))

    def _bcast(self, session: Session, name: str, buf: Any, root: Any, codec: _Chosen = ("", None)) -> None:
        root = buffers.rank_in(root, self.size, "root")
        array = buffers.flat(buf, writable=self.rank != root or codec[1] is not None, what="the buffer")
        head = session.head(name, _checked(array, codec), root=root, codec=codec[0])
        if self.rank == root:
            self._round(array, codec[1])
        steps = schedule.plan("bcast", "ring", self.rank, self.size, root)
        self._enter(session, session.runner.call(head, steps, Work([array], [array], codec=codec[1])))

    def _round(self, array: Array, codec: Codec | None) -> None:
        """What this rank is about to send becomes what the others will have."""
        if codec is not None and self.size > 1:
            codec.roundtrip(array, out=array)

    def _equal_counts(self, send: Any, receive: Any) -> list[int]:
        """In place the input is in `receive`; else `receive` is the block."""
        array = buffers.flat(receive if isinstance(send, InPlace) else send, what="the send buffer")
        return [buffers.blocks_for(array, self.size, "the send buffer")] * self.size

    def _enter(self, session: Session, call: Call) -> None:
        with np.errstate(all="ignore"):  # overflow gives infinity, as in MPI
            session.matcher.enter(call)


_Chosen = tuple[str, Codec | None]
"""A codec's name for the Head, and the codec, None for raw."""


def _checked(array: Array, codec: _Chosen) -> Array:
    """Only float32 has a compressed form."""
    return buffers.floats(array) if codec[0] else array


def _cut(array: Array, blocks: Sequence[slice]) -> list[Array]:
    return [array[block] for block in blocks]
