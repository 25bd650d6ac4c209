"""Calls of communicators of two groups: each rank talks to the ranks of the other group.

Both groups are one communicator underneath, the first group's ranks before the second's. Collectives on objects are
exchanges in which each rank has objects for ranks of the other group; those on buffers are in
collectives/inter_blocks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar

from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.administration import Administration
from softnic.mpi.arguments.checks import rank_in
from softnic.mpi.collectives import inter_blocks
from softnic.mpi.collectives.calls import collective_calls, persistent_call
from softnic.mpi.collectives.exchanges import BufferExchanges
from softnic.mpi.collectives.inter_blocks import groups_of, root_in
from softnic.mpi.collectives.object_exchange import exchange_objects
from softnic.mpi.collectives.objects import ObjectCollectives, folding_of
from softnic.mpi.collectives.whole_buffers import BufferCollectives
from softnic.mpi.constants import PROC_NULL, ROOT, UNDEFINED
from softnic.mpi.groups import Group
from softnic.mpi.info import INFO_NULL, Info
from softnic.mpi.operators import SUM
from softnic.mpi.p2p.persistent import Prequest
from softnic.mpi.properties import InterGroups
from softnic.mpi.requests.request import Request
from softnic.mpi.state import CommunicatorState
from softnic.mpi.unsupported import TWO_GROUPS, refused

_MAX_BACKLOG = 0xFFFF
"""Of listeners: the size of the other group is not known when a rank begins to listen."""


def joined_state(comm: Any, local_leader: int, peer_comm: Any, remote_leader: int, tag: int) -> CommunicatorState:
    """Return the state of a communicator of the ranks of `comm` and of another group's ranks."""
    with comm._state.call("Create_intercomm"):
        leads = comm.rank == rank_in(local_leader, comm.size, "local_leader")
    base = comm if comm.size > 1 else peer_comm
    base.Init()
    with ExitStack() as stack:
        listener, own = base._listen(base._state._connections, stack, _MAX_BACKLOG)
        mine = comm.allgather((comm._state.processes[comm.rank], own))
        theirs, lower, epoch, problem = None, False, base.launch.epoch, None
        if leads:
            given = (mine, epoch)
            try:
                theirs, epoch = peer_comm.sendrecv(given, remote_leader, tag, None, remote_leader, tag)
                lower = peer_comm.rank < remote_leader
            except CommError as error:
                problem = error
            epoch = given[1] if lower else epoch  # those of processes that met at a port differ
        wrong = None if problem is None else (str(problem), problem.code)
        theirs, lower, epoch, wrong = comm.bcast((theirs, lower, epoch, wrong), local_leader)
        if problem is not None:
            raise problem
        if wrong is not None:
            text, code = wrong
            told = CommError(f"Create_intercomm on rank {comm.rank}: the leaders: {text}", code=code)
            comm._state.handle(told)
            raise told
        ranks = [*mine, *theirs] if lower else [*theirs, *mine]
        groups = InterGroups(0 if lower else len(theirs), len(mine), len(mine) if lower else 0, len(theirs))
        addresses = tuple((host, port) for _, (host, port) in ranks)
        launch = replace(
            base.launch, rank=groups.first_local + comm.rank, addresses=addresses, epoch=epoch, found="two groups"
        )
        state = base._state.subset(launch, (), listener)
        state.properties.processes = tuple(process for process, _ in ranks)
        state.properties.inter, state.properties.named = groups, InterCalls.inter_class
        with state.call("Create_intercomm"):
            pass
        stack.pop_all()  # the listener is the new communicator's
    made: CommunicatorState = state
    return made


class InterCalls(Administration):
    """The collectives between two groups. `root` is MPI.ROOT at the root, MPI.PROC_NULL at the others of its group."""

    inter_class: ClassVar[Any]

    def _groups(self) -> InterGroups:
        """Return which ranks the groups have. Raises ArgumentError for a null communicator."""
        return groups_of(self)

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

    # Collectives on objects

    def _exchange_objects(self, call: str, items: Sequence[Any], op_name: str = "") -> list[Any]:
        """Send each rank of the other group its item; return those for this rank, in the order of that group."""
        groups = self._groups()
        part = slice(groups.first_remote, groups.first_remote + groups.remote_size)
        with self._state.call(call) as connections:
            given = [None] * (groups.local_size + groups.remote_size)
            given[part] = items
            return exchange_objects(connections, call, given, op_name)[part]

    def _from_root(self, call: str, given: Callable[[], Sequence[Any]], root: int) -> Any:
        """Return what a root in the other group has for this rank, None in its own group. `given`: what it sends."""
        root = root_in(self._groups(), root)
        found = self._exchange_objects(call, given() if root == ROOT else self._same(None))
        return None if root in (ROOT, PROC_NULL) else found[root]

    def _at_root(self, call: str, contribution: Any, root: int, op_name: str = "") -> list[Any] | None:
        """Return what the ranks of the other group contribute, if this rank is the root."""
        root = root_in(self._groups(), root)
        given = self._same(None)
        if root not in (ROOT, PROC_NULL):
            given[root] = contribution
        found = self._exchange_objects(call, given, op_name)
        return found if root == ROOT else None

    def _same(self, obj: Any) -> list[Any]:
        """Return the same object for each rank of the other group."""
        return [obj] * self._groups().remote_size

    def _one_each(self, items: Any) -> list[Any]:
        """Return one object for each rank of the other group; None: each is None. Raises ArgumentError."""
        size = self._groups().remote_size
        listed = self._same(None) if items is None else list(items)
        if len(listed) != size:
            raise ArgumentError(f"{len(listed)} objects are given for {size} ranks of the other group")
        return listed

    def barrier(self) -> None:
        """Return when every rank of both groups has called it."""
        self._both().barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return the root's object in the other group."""
        return self._from_root("bcast", lambda: self._same(obj), root)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of the other group at the root."""
        return self._at_root("gather", sendobj, root)

    def scatter(self, sendobj: Any, root: int = 0) -> Any:
        """Return this rank's one of the root's objects."""
        return self._from_root("scatter", lambda: self._one_each(sendobj), root)

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of the other group."""
        return self._exchange_objects("allgather", self._same(sendobj))

    def alltoall(self, sendobj: Any) -> list[Any]:
        """Return what the ranks of the other group have for this one."""
        return self._exchange_objects("alltoall", self._one_each(sendobj))

    def reduce(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Any:
        """Return the combination of the other group's objects at the root."""
        name, fold = folding_of(op)
        found = self._at_root("reduce", sendobj, root, name)
        return None if found is None else fold(found)

    def allreduce(self, sendobj: Any, op: Any = SUM) -> Any:
        """Return the combination of the other group's objects."""
        name, fold = folding_of(op)
        return fold(self._exchange_objects("allreduce", self._same(sendobj), name))

    # Collectives on buffers

    def Barrier(self) -> None:
        """Return when every rank of both groups has called it."""
        self._both().Barrier()

    def Ibarrier(self) -> Request:
        """Start Barrier, and return its Request."""
        request: Request = self._both().Ibarrier()
        return request

    def Barrier_init(self, info: Info = INFO_NULL) -> Prequest:
        """Return a persistent request of Barrier: each Start begins the call. `info` is ignored."""
        request: Prequest = self._both().Barrier_init(info)
        return request

    Bcast, Ibcast = collective_calls("Bcast", inter_blocks.bcast)
    Bcast_init = persistent_call("Bcast", inter_blocks.bcast)
    Gather, Igather = collective_calls("Gather", inter_blocks.gather)
    Gather_init = persistent_call("Gather", inter_blocks.gather)
    Gatherv, Igatherv = collective_calls("Gatherv", inter_blocks.gatherv)
    Gatherv_init = persistent_call("Gatherv", inter_blocks.gatherv)
    Scatter, Iscatter = collective_calls("Scatter", inter_blocks.scatter)
    Scatter_init = persistent_call("Scatter", inter_blocks.scatter)
    Scatterv, Iscatterv = collective_calls("Scatterv", inter_blocks.scatterv)
    Scatterv_init = persistent_call("Scatterv", inter_blocks.scatterv)
    Allgather, Iallgather = collective_calls("Allgather", inter_blocks.allgather)
    Allgather_init = persistent_call("Allgather", inter_blocks.allgather)
    Allgatherv, Iallgatherv = collective_calls("Allgatherv", inter_blocks.allgatherv)
    Allgatherv_init = persistent_call("Allgatherv", inter_blocks.allgatherv)
    Alltoall, Ialltoall = collective_calls("Alltoall", inter_blocks.alltoall)
    Alltoall_init = persistent_call("Alltoall", inter_blocks.alltoall)
    Alltoallv, Ialltoallv = collective_calls("Alltoallv", inter_blocks.alltoallv)
    Alltoallv_init = persistent_call("Alltoallv", inter_blocks.alltoallv)
    Alltoallw, Ialltoallw = collective_calls("Alltoallw", inter_blocks.alltoallw)
    Alltoallw_init = persistent_call("Alltoallw", inter_blocks.alltoallw)
    Reduce, Ireduce = collective_calls("Reduce", inter_blocks.reduce)
    Reduce_init = persistent_call("Reduce", inter_blocks.reduce)
    Allreduce, Iallreduce = collective_calls("Allreduce", inter_blocks.allreduce)
    Allreduce_init = persistent_call("Allreduce", inter_blocks.allreduce)
    Reduce_scatter_block, Ireduce_scatter_block = collective_calls(
        "Reduce_scatter_block", inter_blocks.reduce_scatter_block
    )
    Reduce_scatter_block_init = persistent_call("Reduce_scatter_block", inter_blocks.reduce_scatter_block)
    Reduce_scatter, Ireduce_scatter = collective_calls("Reduce_scatter", inter_blocks.reduce_scatter)
    Reduce_scatter_init = persistent_call("Reduce_scatter", inter_blocks.reduce_scatter)


for _name in {**vars(BufferCollectives), **vars(BufferExchanges), **vars(ObjectCollectives)}:
    if _name.endswith("_comp") or "scan" in _name.lower():
        setattr(InterCalls, _name, refused(_name, TWO_GROUPS))
