"""The collective calls on objects. Objects are pickled and moved by the NICs as bytes; no NIC combines them.

As with pickle everywhere, ranks trust each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from softnic.comm.errors import application_code
from softnic.mpi.arguments import checks
from softnic.mpi.base import Base
from softnic.mpi.collectives.object_exchange import exchange_objects, gather_integers, gather_objects, scatter_objects
from softnic.mpi.operators import SUM, Op


class ObjectCollectives(Base):
    """The calls that every rank makes with an object. Reductions combine in rank order."""

    def barrier(self) -> None:
        """Return when every rank has called it."""
        with self._state.call("barrier") as connections:
            gather_integers(connections, "barrier", 0)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return root's object on every rank."""
        with self._state.call("bcast") as connections:
            root = checks.rank_in(root, self.size, "root")
            return gather_objects(connections, "bcast", obj, [root], root)[0]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks at `root`, in rank order; None elsewhere."""
        with self._state.call("gather") as connections:
            root = checks.rank_in(root, self.size, "root")
            found = gather_objects(connections, "gather", sendobj, range(self.size), root, at_root=True)
            return found if self.rank == root else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Return this rank's item of the root's sequence, which has one for each rank. Others pass None."""
        with self._state.call("scatter") as connections:
            root = checks.rank_in(root, self.size, "root")
            items = _one_each(sendobj, self.size) if self.rank == root else []
            return scatter_objects(connections, "scatter", items, root)

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all ranks, in rank order."""
        with self._state.call("allgather") as connections:
            return gather_objects(connections, "allgather", sendobj, range(self.size))

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send each rank its item of a sequence, which has one for each; return the items for this rank."""
        with self._state.call("alltoall") as connections:
            return exchange_objects(connections, "alltoall", _one_each(sendobj, self.size))

    def allreduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM) -> Any:
        """Return the combination of the objects of all ranks, the same on each.

        Parameters
        ----------
        op
            One of MPI's operations, or any function of two objects.
        """
        with self._state.call("allreduce") as connections:
            name, fold = folding_of(op)
            return fold(gather_objects(connections, "allreduce", sendobj, range(self.size), op_name=name))

    def reduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM, root: int = 0) -> Any:
        """Return the combination at `root`, None elsewhere. `op` as in allreduce."""
        with self._state.call("reduce") as connections:
            name, fold = folding_of(op)
            root = checks.rank_in(root, self.size, "root")
            found = gather_objects(connections, "reduce", sendobj, range(self.size), root, name, at_root=True)
            return fold(found) if self.rank == root else None

    def scan(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM) -> Any:
        """Return the combination of the objects of the ranks up to this one. `op` as in allreduce."""
        with self._state.call("scan") as connections:
            name, fold = folding_of(op)
            found = gather_objects(connections, "scan", sendobj, range(self.size), op_name=name)
            return fold(found[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM) -> Any:
        """Return the combination of the objects of the ranks before this one, None at rank 0. `op` as in allreduce."""
        with self._state.call("exscan") as connections:
            name, fold = folding_of(op)
            found = gather_objects(connections, "exscan", sendobj, range(self.size), op_name=name)
            return fold(found[: self.rank]) if self.rank else None


def _one_each(items: Any, size: int) -> list[Any]:
    """Return the items of a sequence. Raises ValueError unless there is one for each rank."""
    if items is None:
        return [None] * size
    found: list[Any] = list(items)
    if len(found) != size:
        raise ValueError(f"the sequence has {len(found)} items, and there are {size} ranks")
    return found


def folding_of(op: Any) -> tuple[str, Callable[[Sequence[Any]], Any]]:
    """Return the name of a reduction, on which all ranks must agree, and the function of the objects in rank order."""
    if op is not None and not isinstance(op, Op) and callable(op):
        return getattr(op, "__name__", type(op).__name__), partial(_folded, partial(reduce, op))
    known = checks.operation(op)
    return known.name, partial(_folded, known.fold)


def _folded(fold: Callable[[Sequence[Any]], Any], objects: Sequence[Any]) -> Any:
    with application_code():
        return fold(objects)
