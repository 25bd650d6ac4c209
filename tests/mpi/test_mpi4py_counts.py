"""Blocks of collectives as mpi4py has them: what in-place calls leave alone, and counts that are those of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import softnic
from softnic import MPI
from softnic.mpi.communicator import Communicator
from tests.mpi.groups import FakeNics
from tests.mpi.ranks import failures, run

BLOCKING = ("Reduce_scatter", "Reduce_scatter_block", "Reduce_scatter_comp", "Reduce_scatter_block_comp")
NONBLOCKING = tuple(f"I{call[0].lower()}{call[1:]}" for call in BLOCKING)


def called(comm: Communicator, call: str, *args: Any, **options: Any) -> None:
    """Makes a collective call, and waits for it if it returns a Request."""
    if call.endswith("_comp"):
        options["codec"] = "raw"
    request = getattr(comm, call)(*args, **options)
    if request is not None:
        request.Wait()


def counted(size: int) -> list[int]:
    return [2 * rank + 1 for rank in range(size)]


@pytest.mark.parametrize("make", [np.empty, softnic.empty])
@pytest.mark.parametrize("call", [*BLOCKING, *NONBLOCKING])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_place_leaves_what_is_behind_the_block(size: int, call: str, make: Any, dtype: Any) -> None:
    def program(comm: Communicator) -> None:
        counts = [5] * size if "block" in call else counted(size)
        data = make(sum(counts), dtype)
        data[:] = np.arange(data.size) + 1000 * comm.rank
        before = data.copy()
        own, begin = counts[comm.rank], sum(counts[: comm.rank])
        called(comm, call, MPI.IN_PLACE, data, *([] if "block" in call else [counts]))
        total = np.arange(data.size) * size + 1000 * sum(range(size))
        assert data[:own].tolist() == total[begin : begin + own].tolist()
        assert data[own:].tolist() == before[own:].tolist()

    run(size, program, FakeNics())


def test_in_place_of_more_than_one_chunk() -> None:
    def program(comm: Communicator) -> None:
        data = np.arange(80_000.0) + 1000 * comm.rank
        before = data.copy()
        comm.Reduce_scatter(MPI.IN_PLACE, data, [40_000] * 2)
        assert (data[40_000:] == before[40_000:]).all()
        assert (data[:40_000] == 2 * np.arange(80_000.0)[comm.rank * 40_000 :][:40_000] + 1000).all()

    run(2, program)


@pytest.mark.parametrize("call", ["Allgather", "Allgather_comp", "Iallgather", "Iallgather_comp"])
def test_a_count_of_allgathers_receive_buffer_is_that_of_a_block(call: str) -> None:
    def program(comm: Communicator) -> None:
        mine = np.arange(4, dtype=np.intc) + 10 * comm.rank
        for spec in ([4, MPI.INT], [(4, 1), MPI.INT], [4, 1, MPI.INT]):
            result = np.full(14, -1, np.intc)
            called(comm, call, [mine, 4, MPI.INT], [result, *spec])
            first = 0 if spec[0] == 4 and len(spec) == 2 else 1
            expected = [each + 10 * rank for rank in range(3) for each in range(4)]
            assert result[first : first + 12].tolist() == expected
            assert set(result[:first]) | set(result[first + 12 :]) == {-1}
        result = np.full(13, comm.rank, np.intc)
        called(comm, call, MPI.IN_PLACE, [result, 4, MPI.INT])
        assert result.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [comm.rank]

    run(3, program, FakeNics())


@pytest.mark.parametrize("call", [call for call in (*BLOCKING, *NONBLOCKING) if "block" in call])
def test_a_count_of_reduce_scatter_blocks_input_is_that_of_a_block(call: str) -> None:
    def program(comm: Communicator) -> None:
        total = np.arange(8) * 2 - 2
        mine, block = np.arange(9, dtype=np.intc) - 2 * comm.rank, np.full(5, -1, np.intc)
        called(comm, call, [mine, 4, MPI.INT], [block, 4, MPI.INT])
        assert block.tolist() == [*total[4 * comm.rank :][:4], -1]
        behind = mine[4:].tolist()
        called(comm, call, MPI.IN_PLACE, [mine, 4, MPI.INT])
        assert mine.tolist() == [*total[4 * comm.rank :][:4], *behind]

    run(2, program, FakeNics())


@pytest.mark.parametrize("call", [call for call in (*BLOCKING, *NONBLOCKING) if "block" not in call])
def test_without_recvcounts_each_rank_gets_as_much_as_its_receive_buffer_has(call: str) -> None:
    def program(comm: Communicator) -> None:
        mine, block = np.arange(6.0) + comm.rank, np.full(3 - comm.rank, -1.0)
        called(comm, call, mine, block)
        assert block.tolist() == (np.arange(6.0) * 3 + 3)[sum((3, 2, 1)[: comm.rank]) :][: block.size].tolist()

    run(3, program, FakeNics())


def test_without_recvcounts_buffers_that_do_not_add_up_are_for_near_equal_blocks() -> None:
    def program(comm: Communicator) -> None:
        block = np.full(4, -1.0)
        comm.Reduce_scatter(np.arange(5.0), block)
        assert block.tolist() == ([0, 2, 4, -1] if comm.rank == 0 else [6, 8, -1, -1])

    run(2, program)
    errors = failures(2, lambda comm: comm.Reduce_scatter(np.zeros(6), np.zeros(2)))
    assert any("the receive buffer has 2 elements, fewer than this rank's 3" in str(error) for error in errors)


@pytest.mark.parametrize("in_place", ["MPI.IN_PLACE", "None", "the same object"])
@pytest.mark.parametrize("prefix", ["", "I"])
def test_ways_to_say_in_place(prefix: str, in_place: str) -> None:
    def program(comm: Communicator) -> None:
        def name(call: str) -> str:
            return f"I{call.lower()}" if prefix else call

        def send(array: Any) -> Any:
            return {"MPI.IN_PLACE": MPI.IN_PLACE, "None": None}.get(in_place, array)

        data = np.ones(4)
        called(comm, name("Allreduce"), send(data), data)
        assert data.tolist() == [2] * 4
        called(comm, name("Reduce"), send(data) if comm.rank == 0 else data, data, root=0)
        assert data.tolist() == ([4] * 4 if comm.rank == 0 else [2] * 4)
        data = np.ones(4) + comm.rank
        called(comm, name("Reduce_scatter"), send(data), data, [3, 1])
        assert data.tolist() == ([3, 3, 3, 1] if comm.rank == 0 else [3, 2, 2, 2])
        data = np.full(4, comm.rank)
        own = data[2 * comm.rank : 2 * comm.rank + 2]
        called(comm, name("Allgather"), send(own), data)
        assert data.tolist() == [0, 0, 1, 1]

    run(2, program, FakeNics())
