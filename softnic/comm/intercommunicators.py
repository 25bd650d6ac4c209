"""Calls of communicators of two groups: each rank talks to the ranks of the other group.

Both groups are one communicator underneath, the first group's ranks before the second's. Collectives exchange what all
ranks contribute as objects of that one; a nonblocking one is complete when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from softnic.comm import buffers
from softnic.comm.administration import Administration
from softnic.comm.buffers import MessageBuffer, rank_in, raw
from softnic.comm.constants import ERR_ROOT, ERR_TRUNCATE, PROC_NULL, ROOT, UNDEFINED
from softnic.comm.errors import ArgumentError
from softnic.comm.groups import Group
from softnic.comm.info import Info
from softnic.comm.operators import SUM
from softnic.comm.properties import InterGroups
from softnic.comm.request import Request
from softnic.comm.state import CommunicatorState


def joined_state(comm: Any, local_leader: int, peer_comm: Any, remote_leader: int, tag: int) -> CommunicatorState:
    """Return the state of a communicator of the ranks of `comm` and of another group's ranks."""
    leads = comm.rank == rank_in(local_leader, comm.size, "local_leader")
    base = comm if comm.size > 1 else peer_comm
    base.Init()
    with ExitStack() as stack:
        listener, own = stack.enter_context(base._listening(base._state._connections))
        mine = comm.allgather((comm._state.processes[comm.rank], own))
        theirs, lower = None, False
        if leads:
            theirs = peer_comm.sendrecv(mine, remote_leader, tag, None, remote_leader, tag)
            lower = peer_comm.rank < remote_leader
        theirs, lower = comm.bcast((theirs, lower), local_leader)
        ranks = [*mine, *theirs] if lower else [*theirs, *mine]
        groups = InterGroups(0 if lower else len(theirs), len(mine), len(mine) if lower else 0, len(theirs))
        addresses = tuple((host, port) for _, (host, port) in ranks)
        launch = replace(base.launch, rank=groups.first_local + comm.rank, addresses=addresses, found="two groups")
        state = base._state.subset(launch, (), listener)
        state.properties.processes = tuple(process for process, _ in ranks)
        state.properties.inter, state.properties.named = groups, InterCalls.inter_class
        with state.call("Create_intercomm"):
            pass
    made: CommunicatorState = state
    return made


def _bytes(message: MessageBuffer) -> bytes:
    return raw(message.array).tobytes()


def _put(message: MessageBuffer, data: bytes) -> None:
    """Store what was received."""
    place = raw(message.array)
    if len(data) > place.nbytes:
        raise ArgumentError(f"{len(data)} bytes do not fit the receive buffer of {place.nbytes}", code=ERR_TRUNCATE)
    place[: len(data)] = data
    message.write_back(len(data))


def _cut(message: MessageBuffer, count: int) -> list[bytes]:
    """Return the equal blocks of a buffer."""
    data, each = _bytes(message), buffers.blocks_for(message.array, count, "the send buffer") * message.array.itemsize
    return [data[place * each : (place + 1) * each] for place in range(count)]


def _folded(parts: Sequence[bytes], like: MessageBuffer, op: Any) -> Any:
    """Return the combination of the contributions, in their order."""
    arrays = [np.frombuffer(part, like.array.dtype) for part in parts]
    result = arrays[-1].copy()
    for array in reversed(arrays[:-1]):
        op.combine(array, result, like.definition)
    return result


class InterCalls(Administration):
    """The collectives between two groups. `root` is MPI.ROOT at the root, MPI.PROC_NULL at the others of its group."""

    inter_class: ClassVar[Any]

    def _groups(self) -> InterGroups:
        """Return which ranks the groups have. Raises ArgumentError for a null communicator."""
        groups = self._properties().inter
        assert groups is not None
        return groups

    def _both(self) -> Any:
        """Return the communicator of both groups."""
        self._properties()
        made: Any = self.subset_class()
        made._target = self._state
        return made

    def Get_rank(self) -> int:
        """Return the rank of this process in its group."""
        found = super().Get_rank()
        return found - self._groups().first_local if self else found

    def Get_size(self) -> int:
        """Return the size of this process's group."""
        return self._groups().local_size if self else super().Get_size()

    rank = property(Get_rank)
    size = property(Get_size)

    def Is_inter(self) -> bool:
        """Return True."""
        self._properties()
        return True

    is_inter = property(Is_inter)

    def Get_group(self) -> Group:
        """Return the group of this process."""
        groups, processes = self._groups(), self._state.processes
        own = processes[groups.first_local + self.Get_rank()]
        return Group.of(processes[groups.first_local :][: groups.local_size], own)

    def Get_remote_group(self) -> Group:
        """Return the other group. Raises ArgumentError for a null communicator."""
        groups, processes = self._groups(), self._state.processes
        own = processes[groups.first_local + self.Get_rank()]
        return Group.of(processes[groups.first_remote :][: groups.remote_size], own)

    def Get_remote_size(self) -> int:
        """Return the size of the other group. Raises ArgumentError for a null communicator."""
        return self._groups().remote_size

    group = property(Get_group)
    remote_group = property(Get_remote_group)
    remote_size = property(Get_remote_size)

    def Merge(self, high: bool = False) -> Any:
        """Return a communicator of both groups, this one last if `high`. Raises ArgumentError for a null one."""
        both, groups = self._both(), self._groups()
        flags = both.allgather(bool(high))
        first_is_high = flags[0] and not flags[-1]
        moved = first_is_high and groups.first_local == 0
        return both.Split(0, both.rank + (both.size if moved else 0))

    def _duplicate(self, call: str, info: Info | None) -> Any:
        made = self._both()._duplicate(call, info)
        made._state.properties.inter = self._groups()
        made._state.number_sources()
        made._state.properties.named = self.inter_class
        return type(self)._named(made._state)

    def _split(self, call: str, color: int, key: int) -> Any:
        """Return a communicator of the ranks of both groups with a color; a null one if one group has none."""
        both, groups = self._both(), self._groups()
        colors = both.allgather(color)
        theirs = colors[groups.first_remote :][: groups.remote_size].count(color)
        own = colors[groups.first_local :][: groups.local_size].count(color)
        made = both._split(call, color if theirs else UNDEFINED, key + (1 << 40 if groups.first_local else 0))
        if not made:
            return self.inter_class()
        first = 0 if groups.first_local == 0 else theirs
        made._state.properties.inter = InterGroups(first, own, 0 if first else own, theirs)
        made._state.number_sources()
        made._state.properties.named = self.inter_class
        return self.inter_class._named(made._state)

    # Collectives

    def _remote(self, contribution: Any) -> list[Any]:
        """Return what the ranks of the other group contribute."""
        inter = self._groups()
        found: list[Any] = self._both().allgather(contribution)
        return found[inter.first_remote :][: inter.remote_size]

    def barrier(self) -> None:
        """Return when every rank of both groups has called it."""
        self._both().barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return the root's object in the other group."""
        found = self._remote(obj if root == ROOT else None)
        return None if root in (ROOT, PROC_NULL) else found[root]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of the other group at the root."""
        found = self._remote(sendobj)
        return found if root == ROOT else None

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        """Return this rank's one of the root's objects."""
        found = self._remote(list(sendobj) if root == ROOT else None)
        return None if root in (ROOT, PROC_NULL) else found[root][self.rank]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of the other group."""
        return self._remote(sendobj)

    def alltoall(self, sendobj: Any) -> list[Any]:
        """Return what the ranks of the other group have for this one."""
        return [each[self.rank] for each in self._remote(list(sendobj))]

    def reduce(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Any:
        """Return the combination of the other group's objects at the root."""
        if root not in (ROOT, PROC_NULL) and not 0 <= root < self._groups().remote_size:
            raise ArgumentError(f"root is {root}: a rank of the other group is expected", code=ERR_ROOT)
        found = self._remote(sendobj)
        return _fold_objects(found, op) if root == ROOT else None

    def allreduce(self, sendobj: Any, op: Any = SUM) -> Any:
        """Return the combination of the other group's objects."""
        return _fold_objects(self._remote(sendobj), op)

    # On buffers

    def Barrier(self) -> None:
        """Return when every rank of both groups has called it."""
        self._both().Barrier()

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Copy the root's buffer to the other group."""
        found = self._remote(_bytes(buffers.message(buf)) if root == ROOT else None)
        if root not in (ROOT, PROC_NULL):
            _put(buffers.message(buf, writable=True), found[root])

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather the other group's equal blocks at the root."""
        self._gather(sendbuf, recvbuf, root, self._equal)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather the other group's blocks at the root."""
        self._gather(sendbuf, recvbuf, root, self._varying)

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int, store: Callable[[Any, list[bytes]], None]) -> None:
        sends = root not in (ROOT, PROC_NULL)
        found = self._remote(_bytes(buffers.message(sendbuf)) if sends else None)
        if root == ROOT:
            store(recvbuf, found)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Send each rank of the other group its block of the root's buffer."""
        size = self._groups().remote_size
        blocks = _cut(buffers.message(sendbuf, blocks=size), size) if root == ROOT else None
        self._scatter(blocks, recvbuf, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter with blocks of any length."""
        size = self._groups().remote_size
        blocks = [_bytes(each) for each in buffers.vector(sendbuf, size)] if root == ROOT else None
        self._scatter(blocks, recvbuf, root)

    def _scatter(self, blocks: list[bytes] | None, recvbuf: Any, root: int) -> None:
        found = self._remote(blocks)
        if root not in (ROOT, PROC_NULL):
            _put(buffers.message(recvbuf, writable=True), found[root][self.rank])

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather the other group's equal blocks."""
        self._equal(recvbuf, self._remote(_bytes(buffers.message(sendbuf))))

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather the other group's blocks."""
        self._varying(recvbuf, self._remote(_bytes(buffers.message(sendbuf))))

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange equal blocks with every rank of the other group."""
        size = self._groups().remote_size
        found = self._remote(_cut(buffers.message(sendbuf, blocks=size), size))
        self._equal(recvbuf, [each[self.rank] for each in found])

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange blocks with every rank of the other group."""
        size = self._groups().remote_size
        found = self._remote([_bytes(each) for each in buffers.vector(sendbuf, size)])
        self._varying(recvbuf, [each[self.rank] for each in found])

    def Alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Exchange blocks of any datatype with every rank of the other group."""
        size = self._groups().remote_size
        found = self._remote([_bytes(each) for each in buffers.vector_w(sendbuf, size)])
        for message, each in zip(buffers.vector_w(recvbuf, size, writable=True), found, strict=True):
            _put(message, each[self.rank])

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> None:
        """Combine the other group's buffers at the root."""
        sends = root not in (ROOT, PROC_NULL)
        found = self._remote(_bytes(buffers.message(sendbuf)) if sends else None)
        if root == ROOT:
            result = buffers.message(recvbuf, writable=True)
            _put(result, _folded(found, result, op).tobytes())

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Combine the other group's buffers."""
        found, result = self._remote(_bytes(buffers.message(sendbuf))), buffers.message(recvbuf, writable=True)
        _put(result, _folded(found, result, op).tobytes())

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """Combine the other group's buffers; each rank of this one gets an equal block."""
        found, result = self._remote(_bytes(buffers.message(sendbuf))), buffers.message(recvbuf, writable=True)
        whole = _folded(found, result, op)
        each = whole.size // self.size
        _put(result, whole[self.rank * each :][:each].tobytes())

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = SUM
    ) -> None:
        """Combine the other group's buffers; rank r of this one gets the r-th block, of recvcounts[r] elements."""
        result = buffers.message(recvbuf, writable=True)
        counts = self._both().allgather(result.array.size) if recvcounts is None else list(recvcounts)
        if recvcounts is None:
            first = self._groups().first_local
            counts = counts[first : first + self.size]
        whole = _folded(self._remote(_bytes(buffers.message(sendbuf))), result, op)
        _put(result, whole[sum(counts[: self.rank]) :][: counts[self.rank]].tobytes())

    def _equal(self, spec: Any, found: list[bytes]) -> None:
        """Store the blocks of the other group one after the other."""
        _put(buffers.message(spec, writable=True, blocks=len(found)), b"".join(found))

    def _varying(self, spec: Any, found: list[bytes]) -> None:
        """Store the blocks of the other group where `spec` says."""
        for message, data in zip(buffers.vector(spec, len(found), writable=True), found, strict=True):
            _put(message, data)


def _fold_objects(found: list[Any], op: Any) -> Any:
    result = found[0]
    for each in found[1:]:
        result = op(result, each)
    return result


def _complete(name: str) -> Any:
    """Return the nonblocking form of a call, which is complete when it returns."""

    def nonblocking(self: Any, *args: Any, **kwargs: Any) -> Request:
        getattr(self, name)(*args, **kwargs)
        return Request()

    nonblocking.__name__ = f"I{name.lower()}"
    nonblocking.__doc__ = f"Make the call {name} with its arguments (args, kwargs), and return a complete Request."
    return nonblocking


for _name in (
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv",
    "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter_block", "Reduce_scatter",
):  # fmt: skip
    setattr(InterCalls, f"I{_name.lower()}", _complete(_name))
