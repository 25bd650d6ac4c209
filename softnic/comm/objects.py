"""The collective calls on objects: pickled, and sent by each rank to those that need them. For small things.

As with pickle everywhere: ranks trust each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from softnic.collectives.operations import SUM, Op
from softnic.comm import buffers
from softnic.comm.base import Base
from softnic.comm.exchange import exchange, gather_all
from softnic.comm.matching import Call


class ObjectCollectives(Base):
    """The calls that every rank makes with an object. Reductions combine in rank order."""

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        with self._world.call("barrier") as session:
            session.matcher.enter(Call(session.head("barrier"), session.progress))

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Returns root's object on every rank."""
        with self._world.call("bcast") as session:
            root = buffers.rank_in(root, self.size, "root")
            if self.rank == root:
                exchange(session, "bcast", obj, self._others(), (), root)
                return obj
            return exchange(session, "bcast", None, (), (root,), root)[root]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Returns the objects of all ranks, in rank order."""
        with self._world.call("allgather") as session:
            return gather_all(session, "allgather", sendobj)

    def allreduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM) -> Any:
        """Returns the combination of the objects of all ranks, the same on each. `op` is one of MPI's, or any function
        of two objects."""
        with self._world.call("allreduce") as session:
            name, fold = _folding(op)
            return fold(gather_all(session, "allreduce", sendobj, name))

    def reduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM, root: int = 0) -> Any:
        """Returns the combination at `root`, None elsewhere. `op` as in allreduce."""
        with self._world.call("reduce") as session:
            name, fold = _folding(op)
            root = buffers.rank_in(root, self.size, "root")
            if self.rank != root:
                exchange(session, "reduce", sendobj, (root,), (), root, name)
                return None
            found = exchange(session, "reduce", None, (), self._others(), root, name)
            return fold([sendobj if rank == root else found[rank] for rank in range(self.size)])

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]


def _folding(op: Any) -> tuple[str, Callable[[Sequence[Any]], Any]]:
    """The name of a reduction, on which all ranks must agree, and what it makes of the objects in rank order."""
    if op is not None and not isinstance(op, Op) and callable(op):
        return getattr(op, "__name__", type(op).__name__), partial(reduce, op)
    known = buffers.operation(op)
    return known.name, known.fold
