"""Communicators of two groups."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from softnic import MPI
from softnic.comm import messages
from softnic.comm.transport import Transport
from softnic.mpi.communicator import Communicator
from softnic.mpi.contexts import _commctx_inter as commctx_inter
from tests.comm.engine_nics import EngineNics
from tests.mpi.ranks import failures, run

SIZE = 5
"""Two ranks in the first group, three in the second."""


def of_two_groups(program: Callable[[Any, bool], Any], transport: Transport | None = None) -> list[Any]:
    """Run `program(intercommunicator, whether this rank is in the first group)` on each rank; return the results."""

    def on_rank(comm: Communicator) -> Any:
        first = comm.rank < 2
        group = comm.Split(0 if first else 1)
        both = group.Create_intercomm(0, comm, 2 if first else 0, tag=7)
        found = program(both, first)
        both.Free()
        group.Free()
        return found

    return run(SIZE, on_rank, transport)


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


class Listening(EngineNics):
    """NICs that note the backlogs of listeners."""

    def __init__(self) -> None:
        super().__init__()
        self.backlogs: list[int] = []

    def listen(self, address: tuple[str, int], backlog: int) -> socket.socket:
        self.backlogs.append(backlog)
        return super().listen(address, backlog)


def test_a_rank_may_be_connected_to_by_all_ranks_of_both_groups_before_it_accepts() -> None:
    """Connections beyond a listener's backlog come seconds later, or never."""
    nics = Listening()
    of_two_groups(lambda both, first: None, nics)  # noqa: ARG005
    assert len(nics.backlogs) == 2 * SIZE  # of Split, and of Create_intercomm
    assert min(nics.backlogs[SIZE:]) >= messages.CHANNELS * (SIZE - 1)


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
            both.allreduce(both.rank, MPI.AVG),
            both.allreduce(str(both.rank), lambda left, right: left + right),
        ]

    assert of_two_groups(program) == [
        [None, None, None, ["300", "310", "320"], 6, None, 1, "012"],
        [None, [0, 1, 2], None, ["301", "311", "321"], 6, 6, 1, "012"],
        ["hello", None, "a", ["200", "210"], 3, None, 0.5, "01"],
        ["hello", None, "b", ["201", "211"], 3, None, 0.5, "01"],
        ["hello", None, "c", ["202", "212"], 3, None, 0.5, "01"],
    ]


def test_a_failure_between_the_leaders_is_one_of_all_ranks_of_both_groups() -> None:
    def on_rank(comm: Communicator) -> int:
        first = comm.rank < 2
        group, leaders = comm.Split(0 if first else 1), comm.Dup()
        if comm.rank == 0:
            leaders.Revoke()
        with pytest.raises(MPI.Exception, match=r"Create_intercomm|sendrecv") as caught:
            group.Create_intercomm(0, leaders, 2 if first else 0)
        assert caught.value.Get_error_class() == MPI.ERR_REVOKED
        found: int = group.allreduce(1)  # it remains usable
        leaders.Free()
        group.Free()
        return found

    assert run(SIZE, on_rank) == [2, 2, 3, 3, 3]


def test_ranks_that_reduce_objects_by_different_operations() -> None:
    def on_rank(comm: Communicator) -> None:
        first = comm.rank == 0
        group = comm.Split(comm.rank)
        both = group.Create_intercomm(0, comm, 1 if first else 0)
        try:
            both.allreduce(1, MPI.SUM if first else MPI.PROD)
        finally:
            both.Free()
            group.Free()

    assert all("allreduce" in str(error) and "op=" in str(error) for error in failures(2, on_rank))


class Counted:
    """An object of this many bytes that notes when it is pickled and unpickled, on any thread."""

    pickled: ClassVar[list[str]] = []
    unpickled: ClassVar[list[str]] = []

    def __init__(self, name: str, size: int) -> None:
        self.name, self.content = name, bytes(size)

    def __reduce__(self) -> tuple[Any, ...]:
        Counted.pickled.append(self.name)
        return Counted.again, (self.name, self.content)

    @staticmethod
    def again(name: str, content: bytes) -> Counted:
        Counted.unpickled.append(name)
        return Counted(name, len(content))


@pytest.mark.parametrize("size", [0, 100_000])
def test_only_ranks_that_need_an_object_receive_it(size: int) -> None:
    Counted.pickled.clear()
    Counted.unpickled.clear()

    def program(both: Any, first: bool) -> None:
        root = 1 if not first else MPI.ROOT if both.rank == 1 else MPI.PROC_NULL
        both.bcast(Counted("bcast", size), root)
        both.gather(Counted("gather", size), root)
        both.scatter([Counted("scatter", size) for _ in range(both.remote_size)], root)
        both.allgather(Counted("allgather", size))
        both.alltoall([Counted("alltoall", size) for _ in range(both.remote_size)])

    of_two_groups(program)
    assert Counter(Counted.pickled) == {"bcast": 1, "gather": 3, "scatter": 3, "allgather": 5, "alltoall": 12}
    assert Counter(Counted.unpickled) == {"bcast": 3, "gather": 3, "scatter": 3, "allgather": 12, "alltoall": 12}


@pytest.mark.parametrize(
    ("items", "reason"),
    [([1], "1 objects are given for 3 ranks of the other group"), ([len, lambda: 0, len], "[Cc]an't pickle")],
)
def test_a_scatter_that_is_refused_leaves_it_usable(items: Any, reason: str) -> None:
    def program(both: Any, first: bool) -> Any:
        root = 1 if not first else MPI.ROOT if both.rank == 1 else MPI.PROC_NULL
        if root == MPI.ROOT:
            with pytest.raises(Exception, match=reason):
                both.scatter(items, root)
        return both.scatter("abc", root)

    assert of_two_groups(program) == [None, None, "a", "b", "c"]


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
        mean = np.zeros(1, np.float16)
        both.Allreduce(np.array([both.rank], np.float16), mean, MPI.AVG)
        return sums.tolist(), all_of.tolist(), from_root.tolist(), block.tolist(), of_all.tolist(), mean[0]

    found = of_two_groups(program)
    assert found[0] == ([3.0, 3.0], [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], [5.0, 6.0], [0.0], [0.0, 10.0, 20.0], 1)
    assert found[4] == ([1.0, 2.0], [[0.0, 1.0], [1.0, 1.0]], [0.0, 0.0], [4.0], [2.0, 12.0], 0.5)


def test_blocks_of_any_length_and_type() -> None:
    def program(both: Any, first: bool) -> Any:
        root = 0 if first else MPI.ROOT if both.rank == 0 else MPI.PROC_NULL
        counts = [rank + 1 for rank in range(both.remote_size)]
        sent, at_root = np.full(both.rank + 1, 10 * both.rank), np.zeros(sum(counts), int)
        both.Gatherv(sent, [at_root, counts], root)
        at_all = np.zeros_like(at_root)
        both.Allgatherv(sent, [at_all, counts])
        spaced, column = np.zeros(4), MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
        both.Bcast([np.arange(4.0) if root == MPI.ROOT else spaced, 1, column], root)
        blocks = [1, 5] if first else [1, 2, 3]
        total = np.zeros(blocks[both.rank], int)
        both.Reduce_scatter(np.arange(6), total, blocks)
        return at_root.tolist(), at_all.tolist(), spaced.tolist(), total.tolist()

    spaced = [0.0, 0.0, 2.0, 0.0]
    assert of_two_groups(program) == [
        ([0] * 6, [0, 10, 10, 20, 20, 20], spaced, [0]),
        ([0] * 6, [0, 10, 10, 20, 20, 20], spaced, [3, 6, 9, 12, 15]),
        ([0, 10, 10], [0, 10, 10], [0.0] * 4, [0]),
        ([0] * 3, [0, 10, 10], [0.0] * 4, [2, 4]),
        ([0] * 3, [0, 10, 10], [0.0] * 4, [6, 8, 10]),
    ]


def test_operations_of_pairs_are_those_of_one_group() -> None:
    def program(both: Any, first: bool) -> Any:
        own = np.array([both.rank * (-1 if first else 1), both.rank], np.intc)
        best = np.zeros(2, np.intc)
        both.Allreduce([own, 1, MPI.INT_INT], [best, 1, MPI.INT_INT], MPI.MINLOC)
        with pytest.raises(ValueError, match=r"MPI\.SUM is not defined for int32"):
            both.Allreduce([own, 1, MPI.INT_INT], [best, 1, MPI.INT_INT], MPI.SUM)
        return best.tolist()

    assert of_two_groups(program) == [[0, 0]] * 2 + [[-1, 1]] * 3


def test_a_nonblocking_collective_does_not_wait_for_the_other_group() -> None:
    """And a persistent one sends what its buffer has at each start."""

    def program(both: Any, first: bool) -> Any:
        got = np.zeros(both.remote_size, int)
        if not first:
            both.recv(source=0)
        request = both.Iallgather(np.array([both.rank]), got)
        if first and both.rank == 0:
            assert not request.Test()
            for rank in range(both.remote_size):
                both.send("begin", rank)
        request.Wait()
        sent, total, totals = np.zeros(1, int), np.zeros(1, int), []
        again = both.Allreduce_init(sent, total, MPI.MAX)
        for turn in range(2):
            sent[0] = turn * both.rank
            again.Start()
            again.Wait()
            totals.append(int(total[0]))
        again.Free()
        return got.tolist(), totals

    assert of_two_groups(program) == [([0, 1, 2], [0, 2])] * 2 + [([0, 1], [0, 1])] * 3


def test_wrong_roots_and_calls_that_there_are_not_leave_it_usable() -> None:
    def program(both: Any, first: bool) -> Any:
        del first
        nothing = np.zeros(both.remote_size)
        for call in (both.bcast, both.gather, both.scatter, both.Bcast):
            with pytest.raises(MPI.Exception, match="root is 7: a rank of the other group") as wrong:
                call(nothing, root=7)
            assert wrong.value.Get_error_class() == MPI.ERR_ROOT
        for refused in (both.Scan, both.exscan, both.Allreduce_comp):
            with pytest.raises(NotImplementedError, match="Merge makes one"):
                refused(nothing, nothing)
        with pytest.raises(ValueError, match=f"1 objects are given for {both.remote_size} ranks"):
            both.alltoall([1])
        return both.alltoall(None)

    assert of_two_groups(program) == [[None] * 3] * 2 + [[None] * 2] * 3


def test_what_pkl5_keeps_with_it() -> None:
    def program(both: Any, first: bool) -> Any:
        duplicate, tag, group, is_first = commctx_inter(both)
        again, next_tag, *_ = commctx_inter(both)
        assert (is_first, group.size, group.rank) == (first, both.size, both.rank)
        assert duplicate.remote_size == both.remote_size
        assert (again is duplicate, next_tag) == (True, tag + 1)
        both.Free()
        assert not duplicate
        assert not group

    def on_rank(comm: Communicator) -> None:
        group = comm.Split(comm.rank)
        program(group.Create_intercomm(0, comm, 1 - comm.rank), comm.rank == 0)
        group.Free()

    run(2, on_rank)
