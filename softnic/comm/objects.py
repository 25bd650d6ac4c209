"""The collective calls on objects. Objects are pickled and gathered by the NICs as bytes; no NIC combines them.

As with pickle everywhere, ranks trust each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from softnic.comm import buffers, collective_args, execution
from softnic.comm.base import Base
from softnic.comm.connections import CommConnections
from softnic.comm.operators import SUM, Op

SLOT_BYTES = 512
"""Of each rank in the first exchange, its length included. A second one has what longer objects have beyond it."""
_LENGTH_BYTES = 8
_HEAD_BYTES = SLOT_BYTES - _LENGTH_BYTES


def gather_integers(connections: CommConnections, call: str, number: int) -> list[int]:
    """Return one integer of every rank, in rank order."""
    rank, size = connections.progress.rank, len(connections.progress.peers) + 1
    numbers = np.zeros(size, np.int64)
    numbers[rank] = number
    execution.run(connections, call, collective_args.allgather(size, rank, buffers.IN_PLACE, numbers))
    return [int(each) for each in numbers]


def gather_objects(
    connections: CommConnections, call: str, obj: Any, senders: Sequence[int], root: int = -1, op_name: str = ""
) -> list[Any]:
    """Return the objects of the senders, in their order. All ranks call this; only senders contribute `obj`."""
    rank, size = connections.progress.rank, len(connections.progress.peers) + 1
    data = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) if rank in senders else b""
    counts = tuple(SLOT_BYTES if each in senders else 0 for each in range(size))
    starts = np.cumsum((0, *counts))
    slots = np.zeros(starts[-1], np.uint8)
    if rank in senders:
        slot = len(data).to_bytes(_LENGTH_BYTES, "little") + data[:_HEAD_BYTES]
        slots[starts[rank] : starts[rank] + len(slot)] = np.frombuffer(slot, np.uint8)
    execution.run(connections, call, collective_args.gathered_bytes(counts, slots, root, op_name))
    heads = [slots[starts[each] : starts[each + 1]].tobytes() for each in senders]
    lengths = [int.from_bytes(head[:_LENGTH_BYTES], "little") for head in heads]
    parts = [head[_LENGTH_BYTES:] for head in heads]
    if max(lengths, default=0) > _HEAD_BYTES:
        longer = dict(zip(senders, (max(0, length - _HEAD_BYTES) for length in lengths), strict=True))
        counts = tuple(longer.get(each, 0) for each in range(size))
        starts = np.cumsum((0, *counts))
        tails = np.empty(starts[-1], np.uint8)
        tails[starts[rank] : starts[rank + 1]] = np.frombuffer(data, np.uint8)[_HEAD_BYTES:]
        execution.run(connections, call, collective_args.gathered_bytes(counts, tails, root, op_name))
        own = (tails[starts[each] : starts[each + 1]].data for each in senders)
        parts = [b"".join(both) for both in zip(parts, own, strict=True)]
    return [obj if each == rank else pickle.loads(part) for each, part in zip(senders, parts, strict=True)]


class ObjectCollectives(Base):
    """The calls that every rank makes with an object. Reductions combine in rank order."""

    def barrier(self) -> None:
        """Return when every rank has called it."""
        with self._state.call("barrier") as connections:
            gather_integers(connections, "barrier", 0)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return root's object on every rank."""
        with self._state.call("bcast") as connections:
            root = buffers.rank_in(root, self.size, "root")
            return gather_objects(connections, "bcast", obj, [root], root)[0]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all ranks, in rank order."""
        with self._state.call("allgather") as connections:
            return gather_objects(connections, "allgather", sendobj, range(self.size))

    def allreduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM) -> Any:
        """Return the combination of the objects of all ranks, the same on each.

        Parameters
        ----------
        op
            One of MPI's operations, or any function of two objects.
        """
        with self._state.call("allreduce") as connections:
            name, fold = _folding(op)
            return fold(gather_objects(connections, "allreduce", sendobj, range(self.size), op_name=name))

    def reduce(self, sendobj: Any, op: Op | Callable[[Any, Any], Any] | None = SUM, root: int = 0) -> Any:
        """Return the combination at `root`, None elsewhere. `op` as in allreduce."""
        with self._state.call("reduce") as connections:
            name, fold = _folding(op)
            root = buffers.rank_in(root, self.size, "root")
            found = gather_objects(connections, "reduce", sendobj, range(self.size), root, name)
            return fold(found) if self.rank == root else None


def _folding(op: Any) -> tuple[str, Callable[[Sequence[Any]], Any]]:
    """Return the name of a reduction, on which all ranks must agree, and the function of the objects in rank order."""
    if op is not None and not isinstance(op, Op) and callable(op):
        return getattr(op, "__name__", type(op).__name__), partial(reduce, op)
    known = buffers.operation(op)
    return known.name, known.fold
