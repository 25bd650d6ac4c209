"""Revoke, Shrink and Agree on ranks that are threads; a rank dies by Free, which closes all that it has."""

import threading
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import Ranks, failures, run


def _sum(comm: Communicator, rank: int) -> float:
    total = np.full(3000, rank, np.float32)
    comm.Allreduce(MPI.IN_PLACE, total)
    assert (total == total[0]).all()
    return float(total[0])


def _barriers(comm: Communicator) -> None:
    """Barriers until one fails."""
    for _ in range(1000):
        comm.Barrier()


def _after_deaths(comm: Communicator, dead: set[int], together: threading.Barrier) -> Communicator | None:
    """The communicator that the survivors of these deaths shrink to; None on ranks that die."""
    comm.Barrier()
    together.wait(20)  # or else a rank that has seen the death would end this barrier on another
    if comm.rank in dead:
        comm.Free()
        return None
    with pytest.raises(MPI.Exception) as caught:
        _barriers(comm)
    assert caught.value.Get_error_class() == MPI.ERR_PROC_FAILED
    shrunk: Communicator = comm.Shrink()
    return shrunk


def test_survivors_go_on() -> None:
    together = threading.Barrier(4)

    def program(comm: Communicator) -> Any:
        rank = comm.rank
        shrunk = _after_deaths(comm, {1}, together)
        if shrunk is None:
            return None
        found = shrunk.rank, shrunk.size, _sum(shrunk, rank), comm.Get_failed().Get_size()
        shrunk.Free()
        return found

    assert run(4, program) == [(0, 3, 5.0, 1), None, (1, 3, 5.0, 1), (2, 3, 5.0, 1)]


def test_one_after_the_other_until_one_is_left() -> None:
    together = [threading.Barrier(size) for size in (4, 3, 2)]

    def program(comm: Communicator) -> Any:
        rank, sizes, first = comm.rank, list[int](), comm
        for dead in range(3):
            shrunk = _after_deaths(comm, {0}, together[dead])
            if shrunk is None:
                return sizes
            assert rank > dead
            sizes.append(shrunk.size)
            if comm is not first:
                comm.Free()
            comm = shrunk
        assert _sum(comm, rank) == 3.0
        comm.Free()
        return sizes

    assert run(4, program) == [[], [3], [3, 2], [3, 2, 1]]


def test_two_die_at_once_and_another_while_the_rest_shrinks() -> None:
    together = threading.Barrier(6)

    def program(comm: Communicator) -> Any:
        rank = comm.rank
        comm.Barrier()
        together.wait(20)
        if rank in (0, 4):
            comm.Free()
            return None
        with pytest.raises(MPI.Exception):
            _barriers(comm)
        if rank == 1:
            comm.Free()  # all expect it to coordinate
            return None
        shrunk = comm.Shrink()
        found = shrunk.rank, shrunk.size, _sum(shrunk, rank)
        shrunk.Free()
        return found

    assert run(6, program) == [None, None, (0, 3, 10.0), (1, 3, 10.0), None, (2, 3, 10.0)]


def test_a_communicator_that_works_can_be_shrunk() -> None:
    def program(comm: Communicator) -> Any:
        shrunk, request = comm.Ishrink()
        request.Wait()
        found = shrunk.rank, shrunk.size, _sum(shrunk, comm.rank), _sum(comm, comm.rank)
        shrunk.Free()
        return found

    assert run(3, program) == [(rank, 3, 3.0, 3.0) for rank in range(3)]


def test_a_communicator_of_some_ranks_is_shrunk_and_the_others_go_on() -> None:
    together = threading.Barrier(2)

    def program(comm: Communicator) -> Any:
        rank = comm.rank
        half = comm.Split(rank % 2)
        shrunk = _after_deaths(half, {0} if rank == 1 else set(), together) if rank % 2 else None
        found = None
        if shrunk is not None:
            found = shrunk.rank, shrunk.size, _sum(shrunk, rank)
            shrunk.Free()
        if rank != 1:
            half.Free()
        assert _sum(comm, rank) == 10.0
        return found

    assert run(5, program) == [None, None, None, (0, 1, 3.0), None]


def test_revoke_ends_the_communicator_on_all_ranks() -> None:
    together = threading.Barrier(3)

    def program(comm: Communicator) -> Any:
        assert not comm.Is_revoked()
        comm.Barrier()
        together.wait(20)
        if comm.rank == 1:
            comm.Revoke()
            comm.Revoke()  # once is enough
        with pytest.raises(MPI.Exception, match="revoked by rank 1") as caught:
            _barriers(comm)
        with pytest.raises(MPI.Exception) as again:
            comm.recv(source=0)
        assert again.value.Get_error_class() == MPI.ERR_REVOKED
        shrunk = comm.Shrink()
        found = caught.value.Get_error_class(), comm.Is_revoked(), comm.Get_failed().Get_size(), _sum(shrunk, 1)
        shrunk.Free()
        return found

    assert run(3, program) == [(MPI.ERR_REVOKED, True, 0, 3.0)] * 3


def test_agree() -> None:
    def program(comm: Communicator) -> Any:
        rank = comm.rank
        found = [comm.Agree(0b1011), comm.Agree((0b111, 0b110, 0b011, 0b1110)[rank]), comm.Agree(-1)]
        comm.Barrier()
        if rank == 3:
            comm.Free()
            return found
        with pytest.raises(MPI.Exception, match="rank 3 has failed") as caught:
            comm.Agree(7)
        assert caught.value.Get_error_class() == MPI.ERR_PROC_FAILED
        assert comm.Get_failed().Translate_ranks() == [3]
        assert comm.Ack_failed(0) == 0
        assert comm.Ack_failed() == 1
        assert comm.Agree((6, 5, 4)[rank]) == 4
        flag = np.array([(6, 5, 4)[rank]], np.intc)
        with pytest.raises(MPI.Exception):
            comm.Barrier()
        comm.Iagree(flag).Wait()
        assert flag[0] == 4
        return found

    assert run(4, program) == [[0b1011, 0b010, -1]] * 4


def test_agree_says_it_where_only_one_has_not_acknowledged() -> None:
    def program(comm: Communicator) -> Any:
        rank = comm.rank
        if rank == 2:
            comm.Barrier()
            comm.Free()
            return None
        comm.Barrier()
        for _ in range(2):
            with pytest.raises(MPI.Exception, match="rank 2 has failed"):
                comm.Agree(1)
            if rank == 0:
                comm.Ack_failed()
        comm.Ack_failed()
        return comm.Agree(1)

    assert run(3, program) == [1, 1, None]


def test_different_calls_are_an_error_on_all() -> None:
    def program(comm: Communicator) -> Any:
        comm.Barrier()
        return comm.Shrink() if comm.rank == 1 else comm.Agree(1)

    for error in failures(3, program):
        assert isinstance(error, MPI.Exception)
        assert "rank 0 calls Agree, rank 1 calls Shrink, rank 2 calls Agree" in str(error)


def test_a_flag_that_is_no_integer_of_c() -> None:
    with pytest.raises(ValueError, match="an integer of C"):
        MPI.COMM_SELF.Agree(1 << 40)


def test_a_rank_that_computes_is_waited_for() -> None:
    begun = threading.Event()

    def program(comm: Communicator) -> Any:
        comm.Barrier()
        if comm.rank == 0:
            assert begun.wait(20)
        else:
            begun.set()
        return comm.Agree(comm.rank | 4)

    assert run(3, program) == [4] * 3


def test_a_freed_communicator() -> None:
    def program(comm: Communicator) -> None:
        half = comm.Dup()
        half.Free()
        with pytest.raises(MPI.Exception, match="COMM_NULL"):
            half.Shrink()

    Ranks(2, program)
