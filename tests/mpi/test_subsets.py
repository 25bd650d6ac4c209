"""Communicators of some ranks of another: who is in them, and that each has its own messages."""

from __future__ import annotations

import socket as stdlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.comm import messages
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi.communicator import Communicator
from softnic.mpi.groups import Group
from tests.comm.engine_nics import MODULE, EngineNics
from tests.mpi.ranks import Ranks, gradient, run


def used(part: Communicator | None, use: Callable[[Communicator], Any]) -> Any:
    """What a use of a communicator gives, which is freed then."""
    assert part is not None
    try:
        return use(part)
    finally:
        part.Free()


def added(comm: Communicator, value: int) -> int:
    result = np.zeros(1, np.int64)
    comm.Allreduce(np.array([value]), result)
    return int(result[0])


def test_split_orders_by_key_and_then_by_rank() -> None:
    def program(comm: Communicator) -> tuple[int, int, list[int]]:
        part = comm.Split(comm.rank % 2, key=-(comm.rank // 2))
        told: tuple[int, int, list[int]] = used(part, lambda part: (part.rank, part.size, part.allgather(comm.rank)))
        return told

    assert run(5, program) == [
        (2, 3, [4, 2, 0]),
        (1, 2, [3, 1]),
        (1, 3, [4, 2, 0]),
        (0, 2, [3, 1]),
        (0, 3, [4, 2, 0]),
    ]


def test_who_gives_no_color_gets_nothing() -> None:
    def program(comm: Communicator) -> Any:
        part = comm.Split(MPI.UNDEFINED if comm.rank == 1 else 7)
        return "none" if part == MPI.COMM_NULL else used(part, lambda part: added(part, comm.rank))

    assert run(3, program) == [2, "none", 2]


def test_a_duplicate_has_messages_of_its_own() -> None:
    """And outlives what it was made from."""

    def program(comm: Communicator) -> Any:
        again = comm.Dup()
        other = 1 - comm.rank
        again.send("in the duplicate", other, tag=5)
        comm.send("in the first", other, tag=5)
        first = comm.recv(source=other, tag=5)
        comm.Free()
        return used(again, lambda again: (first, again.recv(source=other, tag=5), added(again, 1)))

    assert run(2, program) == [("in the first", "in the duplicate", 2)] * 2


def test_a_group_makes_its_communicator_without_the_others() -> None:
    """Who is not in it need not call, and a receive from anybody does not take the group's own messages."""

    def program(comm: Communicator) -> Any:
        group = comm.Get_group().Incl([2, 0])
        if comm.rank == 1:
            comm.send("hello", 2)
            return group.Get_rank()
        heard = comm.recv() if comm.rank == 2 else None
        part = comm.Create_group(group, tag=3)
        assert comm.Create_group(comm.Get_group().Excl([comm.rank])) == MPI.COMM_NULL
        return used(part, lambda part: (group.rank, part.rank, part.allgather(comm.rank), heard))

    assert run(3, program) == [(1, 1, [2, 0], None), MPI.UNDEFINED, (0, 0, [2, 0], "hello")]


def test_create_is_called_by_all() -> None:
    def program(comm: Communicator) -> Any:
        part = comm.Create(comm.Get_group().Excl([0]))
        return None if not part else used(part, lambda part: (part.rank, part.size))

    assert run(3, program) == [None, (0, 2), (1, 2)]


def test_create_makes_a_communicator_of_each_of_several_groups() -> None:
    def program(comm: Communicator) -> list[int]:
        everyone = comm.Get_group()
        part = comm.Create(everyone.Incl([2]) if comm.rank == 2 else everyone.Excl([2]))
        told: list[int] = used(part, lambda part: part.allgather(comm.rank))
        return told

    assert run(4, program) == [[0, 1, 3], [0, 1, 3], [2], [0, 1, 3]]


def test_parts_of_parts_and_compressed_calls_in_them() -> None:
    def program(comm: Communicator) -> Any:
        def in_half(half: Communicator) -> Any:
            data = gradient(comm.rank, 4000)
            half.Allreduce_comp(MPI.IN_PLACE, data, codec="bounded:10")
            return used(half.Split(half.rank), lambda one: (one.size, one.allgather("me"), data.tobytes()))

        return used(comm.Split(comm.rank // 2), in_half)

    results = run(4, program)
    assert [result[:2] for result in results] == [(1, ["me"])] * 4
    assert results[0][2] == results[1][2] != results[2][2] == results[3][2]


def test_one_rank_alone_splits_too() -> None:
    def program(comm: Communicator) -> Any:
        return used(comm.Split(3), lambda part: (part.size, added(part, 4))), used(comm.Dup(), lambda part: part.size)

    assert run(1, program) == [((1, 4), 1)]


def test_this_process_alone() -> None:
    assert (MPI.COMM_SELF.rank, MPI.COMM_SELF.size, added(MPI.COMM_SELF, 3)) == (0, 1, 3)


def test_a_wrong_color_is_this_ranks_error() -> None:
    ranks = Ranks(2, lambda comm: comm.Split(-3 if comm.rank else 0))
    assert isinstance(ranks.errors[1], ArgumentError)
    assert "color is -3" in str(ranks.errors[1])
    assert isinstance(ranks.errors[0], CommError)


def test_group_algebra() -> None:
    group = Group.of(range(10, 15), own=13)
    assert (group.size, group.rank) == (5, 3)
    some = group.Incl([4, 3])
    assert (some.size, some.Get_rank()) == (2, 1)
    assert group.Excl([0, 3]).Get_rank() == MPI.UNDEFINED
    with pytest.raises(ValueError, match="each rank once"):
        group.Incl([1, 1])
    with pytest.raises(MPI.Exception, match="ranks is 5") as wrong:
        group.Incl([5])
    assert wrong.value.Get_error_class() == MPI.ERR_RANK
    assert group.Range_incl([(4, 0, -2), (1, 1, 1)]).Translate_ranks(group=group) == [4, 2, 0, 1]
    assert group.Range_excl([(0, 4, 2)]).Translate_ranks() == [11, 13]
    with pytest.raises(MPI.Exception, match="step 0"):
        group.Range_incl([(0, 4, 0)])
    assert Group.Union(some, group).Translate_ranks(None, group) == [4, 3, 0, 1, 2]
    assert Group.Intersection(group, some).Compare(some) == MPI.SIMILAR
    assert Group.Difference(group, some).Translate_ranks([0, 2, MPI.PROC_NULL], some) == [MPI.UNDEFINED] * 2 + [-2]
    assert Group.Difference(some, group).Compare(MPI.GROUP_EMPTY) == MPI.IDENT
    assert group.Dup().Compare(group) == MPI.IDENT
    assert group.Compare(some) == MPI.UNEQUAL


def test_a_freed_group_is_null() -> None:
    group = MPI.COMM_SELF.Get_group()
    again = Group(group)
    assert again == group
    group.Free()
    assert not group
    assert group == MPI.GROUP_NULL
    assert again.size == 1
    with pytest.raises(MPI.Exception) as wrong:
        group.Get_size()
    assert wrong.value.Get_error_class() == MPI.ERR_GROUP
    with pytest.raises(TypeError, match="Group is expected, not Communicator"):
        Group(MPI.COMM_SELF)


def test_groups_name_processes_across_communicators() -> None:
    """A communicator of some ranks has the processes of the one that it was made from."""

    def program(comm: Communicator) -> Any:
        odd = comm.Split(comm.rank % 2, key=-comm.rank)
        group = odd.Get_group()
        found = group.Translate_ranks(None, comm.Get_group()), group.rank, comm.Compare(odd)
        even = comm.Create_group(Group.Difference(comm.Get_group(), group)) if comm.rank == 0 else odd
        with pytest.raises(MPI.Exception, match="processes that the communicator has not") as wrong:
            odd.Create_group(comm.Get_group())
        assert wrong.value.Get_error_class() == MPI.ERR_GROUP
        assert not even if comm.rank == 0 else even
        odd.Free()
        return found

    assert run(3, program) == [([2, 0], 1, MPI.UNEQUAL), ([1], 0, MPI.UNEQUAL), ([2, 0], 0, MPI.UNEQUAL)]


JOINED = messages.pack(messages.Joined())


class SlowToJoin(stdlib.socket):
    """The sockets of rank 1: once `armed`, it says that it has joined, and then does nothing until `go_on`."""

    armed = False
    go_on = threading.Event()

    def send(self, data: Any, *flags: int) -> int:
        sent = super().send(data, *flags)
        if SlowToJoin.armed and bytes(data) == JOINED:
            assert SlowToJoin.go_on.wait(20)
        return sent


@pytest.mark.parametrize("make", [lambda comm: comm.Dup(), lambda comm: comm.Split(0), lambda comm: comm.Clone()])
def test_an_error_on_a_communicator_leaves_the_one_that_it_was_made_from(make: Callable[[Communicator], Any]) -> None:
    """Also on a rank that is still inside the call that makes it."""
    SlowToJoin.armed = False
    SlowToJoin.go_on.clear()

    def program(comm: Communicator) -> str:
        comm.Barrier()
        SlowToJoin.armed = True
        comm.Barrier()
        made = make(comm)
        if comm.rank == 0:
            with pytest.raises(ArgumentError, match="Bcast on rank 0: the buffer is missing"):
                made.Bcast(None)
            SlowToJoin.go_on.set()
        else:
            with pytest.raises(CommError, match="the buffer is missing"):
                made.Barrier()
        made.Free()
        assert comm.allreduce(1) == 2
        return "goes on"

    module = SimpleNamespace(**{**vars(MODULE), "socket": SlowToJoin})
    assert run(2, program, EngineNics(module)) == ["goes on"] * 2
