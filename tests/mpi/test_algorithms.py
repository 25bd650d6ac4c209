"""Every algorithm through the host's runner: the bits of its schedule, on all ranks, in every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.schedules import execute
from softnic import MPI, codecs
from softnic.collectives.operations import ARRAY_OPS
from softnic.collectives.schedule import ALGORITHMS, choose, partition
from softnic.mpi.communicator import Communicator
from tests.collectives.group import Group
from tests.mpi.ranks import failures, gradient, run

NAMES = (*ALGORITHMS, "hierarchical:1", "hierarchical:3")
SIZES = [2, 3, 4, 5, 7]
COUNTS = [0, 1, 5, 64, 1003, 70_001]
CODECS = ["bounded:10", "bfp:7"]
ROOTLESS = ["ring", "direct", "hierarchical", "hierarchical:3"]
"""Whose order of additions does not depend on the root."""


def expected(size: int, count: int, algorithm: str, codec: str, op: Any = MPI.SUM) -> npt.NDArray[np.float32]:
    """Of an all-reduce by one of MPI's operations, played without a network."""
    with np.errstate(all="ignore"):
        results = execute(
            [gradient(rank, count) for rank in range(size)], algorithm, codecs.get(codec), ARRAY_OPS[op.name]
        )
    assert len({result.tobytes() for result in results}) == 1
    return results[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("algorithm", NAMES)
def test_allreduce_comp_gives_the_bits_of_the_schedule(algorithm: str, size: int) -> None:
    """In place or not, again and again, of any count: blocks that are empty, or longer than a chunk."""

    def program(comm: Communicator) -> None:
        for codec in CODECS:
            for count in COUNTS:
                mine, apart = gradient(comm.rank, count), np.empty(count, np.float32)
                comm.Allreduce_comp(mine, apart, codec=codec, algorithm=algorithm)
                assert apart.tobytes() == expected(size, count, algorithm, codec).tobytes()
                assert mine.tobytes() == gradient(comm.rank, count).tobytes()
                comm.Allreduce_comp(MPI.IN_PLACE, mine, codec=codec, algorithm=algorithm)
                assert mine.tobytes() == apart.tobytes()

    run(size, program)


@pytest.mark.parametrize("algorithm", NAMES)
def test_large_blocks_are_combined_in_order_whichever_comes_first(algorithm: str) -> None:
    count, size = 1_500_001, 4

    def program(comm: Communicator) -> bytes:
        data = gradient(comm.rank, count)
        comm.Allreduce_comp(MPI.IN_PLACE, data, codec="bfp:7", algorithm=algorithm)
        return data.tobytes()

    assert set(run(size, program)) == {expected(size, count, algorithm, "bfp:7").tobytes()}


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("size", [2, 5])
def test_raw_is_exact(algorithm: str, size: int) -> None:
    def program(comm: Communicator) -> None:
        data = np.arange(1003, dtype=np.float32) + comm.rank
        comm.Allreduce_comp(MPI.IN_PLACE, data, codec="raw", algorithm=algorithm)
        np.testing.assert_array_equal(data, np.arange(1003) * size + size * (size - 1) / 2)

    run(size, program)


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PROD", "AVG"])
def test_reduce_comp_to_every_root(op: str, algorithm: str) -> None:
    """With the bits of Allreduce_comp where the algorithm promises them, and to all trees' root 0."""

    def program(comm: Communicator) -> list[bytes]:
        found = []
        for root in range(comm.size):
            result = np.zeros(1003, np.float32)
            comm.Reduce_comp(
                gradient(comm.rank, 1003), result, getattr(MPI, op), root, codec="bounded:10", algorithm=algorithm
            )
            found.append(result.tobytes())
        return found

    everywhere = expected(5, 1003, algorithm, "bounded:10", getattr(MPI, op))
    results = run(5, program)
    nothing = np.zeros(1003, np.float32).tobytes()
    for rank, found in enumerate(results):
        assert [bits for root, bits in enumerate(found) if root != rank] == [nothing] * 4
    for root in range(5) if algorithm in ROOTLESS else [0]:
        assert results[root][root] == everywhere.tobytes()
    close = 0.05 if op in ("SUM", "AVG") else 0.01
    for root in range(5):
        np.testing.assert_allclose(np.frombuffer(results[root][root], np.float32), everywhere, atol=close)


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_comp(algorithm: str, size: int) -> None:
    """A rank's block is not rounded again: what Allreduce_comp gives is that block's rounding, but for `wa`, where
    it crosses the network once more."""
    counts = [(7 * rank + 3) % 5 * 100 for rank in range(size)]
    ends = np.cumsum(counts)

    def program(comm: Communicator) -> None:
        total, rank = sum(counts), comm.rank
        block, mine = np.empty(counts[rank], np.float32), gradient(rank, total)
        comm.Reduce_scatter_comp(mine, block, counts, codec="bounded:10", algorithm=algorithm)
        exact: npt.NDArray[np.float64] = np.array([gradient(other, total) for other in range(size)], np.float64).sum(0)
        np.testing.assert_allclose(block, exact[ends[rank] - counts[rank] : ends[rank]], atol=size * 2**-10)
        comm.Reduce_scatter_comp(MPI.IN_PLACE, mine, counts, codec="bounded:10", algorithm=algorithm)
        assert mine[: counts[rank]].tobytes() == block.tobytes()

    run(size, program)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "hierarchical", "tree"])
def test_reduce_scatter_block_comp_then_allgather_comp(algorithm: str) -> None:
    size, count = 6, 240
    whole = [np.empty(count, np.float32) for _ in range(size)]

    def program(comm: Communicator) -> bytes:
        block = np.empty(count // size, np.float32)
        comm.Reduce_scatter_block_comp(gradient(comm.rank, count), block, codec="bounded:10", algorithm=algorithm)
        comm.Allgather_comp(block, whole[comm.rank], codec="bounded:10")
        return whole[comm.rank].tobytes()

    assert len(set(run(size, program))) == 1
    exact = np.array([gradient(rank, count) for rank in range(size)], np.float64).sum(0)
    np.testing.assert_allclose(whole[0], exact, atol=size * 2**-10)


@pytest.mark.parametrize("codec", ["bfp:7", "rht:4", "bounded:10"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_calls_that_name_no_algorithm_choose_by_size(size: int, codec: str) -> None:
    counts = [1, 1000, 100_000]

    def program(comm: Communicator) -> None:
        for count in counts:
            compressed = gradient(comm.rank, count)
            comm.Allreduce_comp(MPI.IN_PLACE, compressed, codec=codec)
            algorithm = choose("allreduce", compressed.nbytes, size, codec)
            if size > 1:
                assert compressed.tobytes() == expected(size, count, algorithm, codec).tobytes()
            exact = np.arange(count) + comm.rank
            comm.Allreduce(MPI.IN_PLACE, exact)
            np.testing.assert_array_equal(exact, np.arange(count) * size + size * (size - 1) // 2)

    run(size, program)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_avg_is_the_sum_divided_by_the_ranks(dtype: str) -> None:
    size, count = 3, 50

    def program(comm: Communicator) -> None:
        mine = (np.arange(count) + 3 * comm.rank).astype(dtype)
        expected = (np.arange(count) + 3).astype(dtype)
        everywhere, block = np.empty_like(mine), np.empty(count, dtype)
        comm.Allreduce(mine, everywhere, MPI.AVG)
        np.testing.assert_array_equal(everywhere, expected)
        comm.Reduce_scatter(mine, block, op=MPI.AVG)
        own = partition(count, size)[comm.rank]
        np.testing.assert_array_equal(block[: own.stop - own.start], expected[own])
        comm.Reduce(MPI.IN_PLACE if comm.rank == 2 else mine, mine if comm.rank == 2 else None, MPI.AVG, 2)
        np.testing.assert_array_equal(mine, expected if comm.rank == 2 else (np.arange(count) + 3 * comm.rank))
        assert comm.allreduce(float(comm.rank), MPI.AVG) == 1.0

    run(size, program)


def test_avg_is_divided_before_it_is_rounded() -> None:
    """bounded:10 has multiples of 2^-9. Three of them by two ranks are 1.5, which becomes 2, and stays 2 for all."""

    def program(comm: Communicator) -> None:
        for algorithm in ALGORITHMS:
            data = np.full(64, 0.0 if comm.rank else 3 * 2**-9, np.float32)
            comm.Allreduce_comp(MPI.IN_PLACE, data, MPI.AVG, codec="bounded:10", algorithm=algorithm)
            np.testing.assert_array_equal(data, 2 * 2**-9)

    run(2, program)


def test_avg_of_integers_is_an_error_everywhere() -> None:
    errors = failures(2, lambda comm: comm.Allreduce(MPI.IN_PLACE, np.zeros(4, int), MPI.AVG))
    assert all("MPI.AVG is not defined for int64" in str(error) for error in errors)


def test_ranks_that_name_other_algorithms() -> None:
    def program(comm: Communicator) -> None:
        name = "tree" if comm.rank == 1 else "direct"
        comm.Allreduce_comp(MPI.IN_PLACE, gradient(comm.rank, 100), codec="bounded:10", algorithm=name)

    for error in failures(3, program):
        assert "algorithm=tree" in str(error)
        assert "algorithm=direct" in str(error)


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("size", [2, 5])
def test_nics_that_execute_it_get_the_same_bits(algorithm: str, size: int) -> None:
    for count in (5, 20_001):
        sources: list[npt.NDArray[Any]] = [gradient(rank, count) for rank in range(size)]
        for op in (MPI.SUM, MPI.AVG):
            results = Group(size).collective("allreduce", sources, algorithm=algorithm, op=op.name, codec="bfp:7")
            bits = expected(size, count, algorithm, "bfp:7", op).tobytes()
            assert [result.tobytes() for result in results] == [bits] * size
