"""The collective calls on objects."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import MPI
from softnic.comm.errors import ArgumentError
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import failures, run


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_call(size: int) -> None:
    def program(comm: Communicator) -> None:
        rank = comm.rank
        comm.barrier()
        for root in range(size):
            assert comm.bcast({"from": rank}, root) == {"from": root}
            total = comm.reduce([rank], MPI.SUM, root)
            assert total == (list(range(size)) if rank == root else None)
        assert comm.allgather("x" * rank) == ["x" * other for other in range(size)]
        assert comm.allreduce(rank + 1, MPI.PROD) == np.prod(range(1, size + 1))
        assert comm.allreduce(rank, op=MPI.MAX) == size - 1
        assert comm.allreduce(-rank, op=MPI.MIN) == 1 - size
        assert comm.allreduce(f"{rank}") == "".join(map(str, range(size)))  # in rank order

    run(size, program)


def test_objects_of_any_length() -> None:
    """Longer than what sockets hold, all ranks at once."""

    def program(comm: Communicator) -> None:
        found = comm.allgather(np.full(1_000_000, comm.rank))
        assert [array[-1] for array in found] == [0, 1, 2]

    run(3, program)


def test_a_reduction_needs_an_op() -> None:
    errors = failures(2, lambda comm: comm.allreduce(1, op=3 if comm.rank else MPI.MAX))  # type: ignore[arg-type]
    assert isinstance(errors[1], ArgumentError)
    assert "allreduce on rank 1: op is" in str(errors[0])


def test_ops_combine_objects_by_themselves() -> None:
    assert MPI.SUM(2, 3) == 5
    assert MPI.MAX("a", "b") == "b"
    assert repr(MPI.PROD) == "MPI.PROD"
