"""The collective calls on objects: pickled, and sent by each rank to those that need them. For small things.

As with pickle everywhere: ranks trust each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from softnic.comm import buffers
from softnic.comm.base import Base
from softnic.comm.matching import Call
from softnic.comm.operations import SUM, Op
from softnic.comm.world import Session


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
                self._exchange(session, "bcast", obj, self._others(), (), root)
                return obj
            return self._exchange(session, "bcast", None, (), (root,), root)[root]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Returns the objects of all ranks, in rank order."""
        with self._world.call("allgather") as session:
            return self._all(session, "allgather", sendobj)

    def allreduce(self, sendobj: Any, op: Op | None = SUM) -> Any:
        """Returns the combination of the objects of all ranks, the same on each."""
        with self._world.call("allreduce") as session:
            op = buffers.operation(op)
            return op.fold(self._all(session, "allreduce", sendobj, op))

    def reduce(self, sendobj: Any, op: Op | None = SUM, root: int = 0) -> Any:
        """Returns the combination at `root`, None elsewhere."""
        with self._world.call("reduce") as session:
            op = buffers.operation(op)
            root = buffers.rank_in(root, self.size, "root")
            if self.rank != root:
                self._exchange(session, "reduce", sendobj, (root,), (), root, op)
                return None
            found = self._exchange(session, "reduce", None, (), self._others(), root, op)
            return op.fold([sendobj if rank == root else found[rank] for rank in range(self.size)])

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _all(self, session: Session, name: str, obj: Any, op: Op | None = None) -> list[Any]:
        others = self._others()
        found = self._exchange(session, name, obj, others, others, op=op)
        return [obj if rank == self.rank else found[rank] for rank in range(self.size)]

    def _exchange(
        self,
        session: Session,
        name: str,
        obj: Any,
        receivers: Iterable[int],
        sources: Iterable[int],
        root: int = -1,
        op: Op | None = None,
    ) -> dict[int, Any]:
        """Sends `obj` to the receivers; returns what the sources sent."""
        data = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        call = Call(session.head(name, None, op, root), session.progress)
        parts = session.matcher.exchange(call, dict.fromkeys(receivers, data), sources)
        return {rank: pickle.loads(part) for rank, part in parts.items()}
