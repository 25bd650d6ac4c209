"""Groups: ordered processes of a job, and the algebra of such sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from softnic.comm.error_classes import ERR_ARG, ERR_GROUP, ERR_RANK
from softnic.comm.errors import ArgumentError, Refused
from softnic.mpi.arguments.checks import rank_in
from softnic.mpi.constants import IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from softnic.mpi.handles import Handle, constant

Process: TypeAlias = int
"""Identifies a process of the job: its rank in MPI.COMM_WORLD."""


@dataclass(eq=False)
class _Members:
    """The processes that a Group names, in order, and this one."""

    processes: tuple[Process, ...]
    own: Process | None
    """None: unknown, of the empty group."""


class Group(Handle):
    """Ordered processes. Raises ArgumentError in calls with wrong ranks, and with MPI.GROUP_NULL."""

    null_code = ERR_GROUP

    @classmethod
    def of(cls, processes: Iterable[Process], own: Process | None) -> Self:
        """Return the group of these processes; `own` identifies this one."""
        return cls._named(_Members(tuple(processes), own))

    @property
    def _processes(self) -> tuple[Process, ...]:
        members: _Members = self._live()
        return members.processes

    def _derived(self, processes: Iterable[Process]) -> Self:
        """Return another group as this process sees it."""
        return self.of(processes, self._live().own)

    def Get_size(self) -> int:
        """Return the number of processes."""
        return len(self._processes)

    def Get_rank(self) -> int:
        """Return the rank of this process in the group, or MPI.UNDEFINED."""
        processes, own = self._processes, self._live().own
        return processes.index(own) if own in processes else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Dup(self) -> Self:
        """Return a group of the same processes."""
        return self._derived(self._processes)

    def Free(self) -> None:
        """Release the group. Raises ArgumentError if it is null."""
        self._live()
        self._target = None

    def Compare(self, group: Group) -> int:
        """Return IDENT if `group` has the same processes in the same order, SIMILAR in another one, or UNEQUAL."""
        mine, theirs = self._processes, group._processes
        if mine == theirs:
            return IDENT
        return SIMILAR if set(mine) == set(theirs) else UNEQUAL

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """Return the ranks in `group` of the processes that have `ranks` here; MPI.UNDEFINED for others.

        Parameters
        ----------
        ranks
            None: all.
        group
            None: that of MPI.COMM_WORLD.
        """
        processes = self._processes
        theirs = None if group is None else {process: rank for rank, process in enumerate(group._processes)}
        found = []
        for rank in range(len(processes)) if ranks is None else ranks:
            if rank == PROC_NULL:
                found.append(PROC_NULL)
                continue
            process = processes[self._rank(rank)]
            found.append(process if theirs is None else theirs.get(process, UNDEFINED))
        return found

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Self:
        """Return the processes of `group1`, and then those that only `group2` has."""
        first, second = group1._processes, group2._processes
        return cls.of((*first, *(each for each in second if each not in first)), _own(group1, group2))

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Self:
        """Return the processes of both, in the order of `group1`."""
        first, second = group1._processes, group2._processes
        return cls.of((each for each in first if each in second), _own(group1, group2))

    Intersect = Intersection

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Self:
        """Return the processes that only `group1` has."""
        first, second = group1._processes, group2._processes
        return cls.of((each for each in first if each not in second), _own(group1, group2))

    def Incl(self, ranks: Sequence[int]) -> Self:
        """Return the group of the `ranks` of this group, in this order."""
        found = [self._rank(rank) for rank in ranks]
        if len(set(found)) < len(found):
            raise ArgumentError(f"a group has each rank once, not {list(ranks)}", code=ERR_RANK)
        return self._derived(self._processes[rank] for rank in found)

    def Excl(self, ranks: Sequence[int]) -> Self:
        """Return the group without the `ranks` of this group."""
        left_out = {self._rank(rank) for rank in ranks}
        return self._derived(each for rank, each in enumerate(self._processes) if rank not in left_out)

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Return the group of the ranks in ranges, each of its first and last rank and the step."""
        return self.Incl(_ranks_in(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Return the group without the ranks in ranges."""
        return self.Excl(_ranks_in(ranks))

    @classmethod
    def Create_from_session_pset(cls, session: Any, pset_name: str) -> Self:
        """Raise NotImplementedError: there are no sessions."""
        raise NotImplementedError(
            "softnic.MPI has no sessions: MPI.COMM_WORLD.Get_group() has all processes of the job"
        )

    def _rank(self, rank: Any) -> int:
        try:
            return rank_in(rank, len(self._processes), "ranks")
        except Refused as error:
            raise ArgumentError(str(error), code=error.code) from error

    def ranks_among(self, processes: Sequence[Process]) -> list[int]:
        """Return the ranks that the processes of this group have among `processes`. Raises ArgumentError."""
        places = {process: rank for rank, process in enumerate(processes)}
        if not places.keys() >= set(self._processes):
            raise ArgumentError("the group has processes that the communicator has not", code=ERR_GROUP)
        return [places[process] for process in self._processes]

    def __repr__(self) -> str:
        return f"<Group: {len(self._processes)} processes>" if self else "MPI.GROUP_NULL"


def _own(*groups: Group) -> Process | None:
    """Return what identifies this process: the empty group does not know."""
    return next((group._live().own for group in groups if group._live().own is not None), None)


def _ranks_in(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the ranks in some ranges."""
    found: list[int] = []
    for each in ranges:
        first, last, step = each
        if not step:
            raise ArgumentError(f"the range {tuple(each)} has the step 0", code=ERR_ARG)
        found += range(first, last + (1 if step > 0 else -1), step)
    return found


GROUP_NULL = constant("GROUP_NULL", Group())
GROUP_EMPTY = constant("GROUP_EMPTY", Group.of((), None))
"""The group without processes."""
