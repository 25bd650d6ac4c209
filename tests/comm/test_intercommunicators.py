"""Communicators of two groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from tests.comm.ranks import run
from tests.facades.comm import Communicator

SIZE = 5
"""Two ranks in the first group, three in the second."""


def of_two_groups(program: Callable[[Any, bool], Any]) -> list[Any]:
    """What a program gives on each rank of a communicator of two groups; it is told whether it is in the first."""

    def on_rank(comm: Communicator) -> Any:
        first = comm.rank < 2
        group = comm.Split(0 if first else 1)
        both = group.Create_intercomm(0, comm, 2 if first else 0, tag=7)
        found = program(both, first)
        both.Free()
        group.Free()
        return found

    return run(SIZE, on_rank)


def test_who_is_in_which_group() -> None:
    def program(both: Any, first: bool) -> Any:
        assert isinstance(both, MPI.Intercomm)
        assert both.is_inter
        assert not both.is_intra
        assert both.group.Get_rank() == both.rank
        assert both.remote_group.Get_rank() == MPI.UNDEFINED
        with pytest.raises(TypeError, match="is not a Communicator"):
            MPI.Intracomm(both)
        again = both.Dup()
        merged = both.Merge(high=first)
        found = both.rank, both.size, again.remote_size, merged.rank, again.allgather(merged.rank)
        for made in (again, merged):
            made.Free()
        return found

    assert of_two_groups(program) == [
        (0, 2, 3, 3, [0, 1, 2]),
        (1, 2, 3, 4, [0, 1, 2]),
        (0, 3, 2, 0, [3, 4]),
        (1, 3, 2, 1, [3, 4]),
        (2, 3, 2, 2, [3, 4]),
    ]


def test_a_part_of_both_groups() -> None:
    def program(both: Any, first: bool) -> Any:
        del first
        part = both.Split(both.rank)
        if not part:
            return None
        found = part.rank, part.size, part.remote_size, part.allgather(both.rank)
        part.Free()
        return found

    assert of_two_groups(program)[:4] == [(0, 1, 1, [rank]) for rank in (0, 1, 0, 1)]


def test_messages_go_to_the_other_group() -> None:
    def program(both: Any, first: bool) -> Any:
        del first
        status = MPI.Status()
        if both.rank == 0:
            both.send(f"from {both.size}", 1)
        elif both.rank == 1:
            return both.recv(source=0, status=status), status.source, both.iprobe()
        return None

    assert of_two_groups(program) == [None, ("from 3", 0, False), None, ("from 2", 0, False), None]


def test_collectives_with_objects() -> None:
    def program(both: Any, first: bool) -> Any:
        root = 1 if not first else MPI.ROOT if both.rank == 1 else MPI.PROC_NULL
        return [
            both.bcast("hello" if root == MPI.ROOT else None, root),
            both.gather(both.rank, root),
            both.scatter(["a", "b", "c"] if root == MPI.ROOT else None, root),
            both.alltoall([f"{both.size}{both.rank}{to}" for to in range(both.remote_size)]),
            both.allreduce(both.rank + 1),
            both.reduce(both.rank + 1, MPI.PROD, root),
        ]

    assert of_two_groups(program) == [
        [None, None, None, ["300", "310", "320"], 6, None],
        [None, [0, 1, 2], None, ["301", "311", "321"], 6, 6],
        ["hello", None, "a", ["200", "210"], 3, None],
        ["hello", None, "b", ["201", "211"], 3, None],
        ["hello", None, "c", ["202", "212"], 3, None],
    ]


def test_collectives_with_buffers() -> None:
    def program(both: Any, first: bool) -> Any:
        root = 0 if first else MPI.ROOT if both.rank == 2 else MPI.PROC_NULL
        root = 2 if first else root
        sums, all_of, from_root = np.zeros(2), np.zeros((both.remote_size, 2)), np.zeros(2)
        own = np.array([both.rank, 1.0])
        both.Barrier()
        both.Allreduce(own, sums)
        both.Iallgather(own, all_of).Wait()
        both.Bcast(np.array([5.0, 6.0]) if root == MPI.ROOT else from_root, root)
        block = np.zeros(1)
        both.Reduce_scatter_block(np.arange(float(both.remote_size)), block)
        to_all, of_all = np.arange(float(both.remote_size)) + 10 * both.rank, np.zeros(both.remote_size)
        both.Alltoall(to_all, of_all)
        return sums.tolist(), all_of.tolist(), from_root.tolist(), block.tolist(), of_all.tolist()

    found = of_two_groups(program)
    assert found[0] == ([3.0, 3.0], [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], [5.0, 6.0], [0.0], [0.0, 10.0, 20.0])
    assert found[4] == ([1.0, 2.0], [[0.0, 1.0], [1.0, 1.0]], [0.0, 0.0], [4.0], [2.0, 12.0])
