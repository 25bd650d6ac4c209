"""Gathers, scatters, all-to-all exchanges and scans of buffers and objects, against what numpy has of them."""

from __future__ import annotations

import operator
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import MPI, codecs
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

Array = npt.NDArray[Any]
SIZES = [1, 2, 3, 5]


def values(rank: int, count: int, dtype: str = "float64") -> Array:
    return np.random.default_rng(rank).integers(-9, 9, count).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_gather_and_scatter_of_equal_blocks(size: int) -> None:
    def program(comm: Communicator) -> None:
        for root in range(size):
            for count, dtype in ((0, "int32"), (3, "int8"), (1003, "float64")):
                mine = values(comm.rank, count, dtype)
                whole = np.full((size, count), -1, dtype)
                comm.Gather(mine, whole if comm.rank == root else None, root)
                if comm.rank == root:
                    assert np.array_equal(whole, [values(rank, count, dtype) for rank in range(size)])
                    whole[:] = -1
                    whole[root] = mine
                comm.Gather(MPI.IN_PLACE if comm.rank == root else mine, whole, root)
                if comm.rank == root:
                    assert np.array_equal(whole, [values(rank, count, dtype) for rank in range(size)])
                back = np.full(count, -1, dtype)
                comm.Scatter(whole if comm.rank == root else None, back, root)
                assert np.array_equal(back, mine)
                comm.Scatter(whole, MPI.IN_PLACE if comm.rank == root else back, root=root)
                assert np.array_equal(back, mine)

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_any_length_at_any_place(size: int) -> None:
    counts = [7 * (rank % 3) for rank in range(size)]
    starts = [20 * (size - rank - 1) for rank in range(size)]

    def program(comm: Communicator) -> None:
        mine = values(comm.rank, counts[comm.rank])
        for root in {0, size - 1}:
            place = np.full(20 * size, -1.0)
            comm.Gatherv(mine, [place, (counts, starts), MPI.DOUBLE] if comm.rank == root else None, root)
            if comm.rank == root:
                check(place)
            back = np.full(counts[comm.rank], -1.0)
            comm.Scatterv([place, counts, starts, MPI.DOUBLE] if comm.rank == root else None, back, root)
            assert np.array_equal(back, mine)
        place = np.full(20 * size, -1.0)
        comm.Allgatherv(mine, [place, counts, starts, MPI.DOUBLE])
        check(place)
        place[:] = -1
        place[starts[comm.rank] : starts[comm.rank] + mine.size] = mine
        comm.Iallgatherv(MPI.IN_PLACE, [place, (counts, starts)]).Wait()
        check(place)

    def check(place: Array) -> None:
        expected = np.full(20 * size, -1.0)
        for rank, (count, start) in enumerate(zip(counts, starts, strict=True)):
            expected[start : start + count] = values(rank, count)
        assert np.array_equal(place, expected)

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_alltoall_of_equal_and_of_other_blocks(size: int) -> None:
    def block(source: int, to: int, count: int) -> Array:
        return np.arange(count) + 1000 * source + 10 * to

    def program(comm: Communicator) -> None:
        for count in (0, 1, 300_001 // size):
            sent = np.concatenate([block(comm.rank, to, count) for to in range(size)])
            expected = np.concatenate([block(source, comm.rank, count) for source in range(size)])
            found = np.full_like(sent, -1)
            comm.Alltoall(sent, found)
            assert np.array_equal(found, expected)
            request = comm.Ialltoall(MPI.IN_PLACE, sent)
            request.Wait()
            assert np.array_equal(sent, expected)
        given = [abs(comm.rank - to) for to in range(size)]
        sent = np.concatenate([block(comm.rank, to, count) for to, count in enumerate(given)])
        found = np.full(5 * size, -1)
        comm.Alltoallv([sent, given], [found, given, [5 * rank for rank in range(size)], MPI.LONG])
        for source, count in enumerate(given):
            assert np.array_equal(found[5 * source :][:5], [*block(source, comm.rank, count), *[-1] * (5 - count)])
        places = [8 * 5 * rank for rank in range(size)]
        types = [MPI.LONG] * size
        again = np.full(5 * size, -1)
        comm.Alltoallw([found, (given, places), types], [again, (given, places), types])
        for source, count in enumerate(given):
            assert np.array_equal(again[5 * source :][:count], block(comm.rank, source, count))

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["SUM", "MIN", "PROD"])
def test_scans(size: int, name: str) -> None:
    op, function = getattr(MPI, name), {"SUM": np.add, "MIN": np.minimum, "PROD": np.multiply}[name]

    def program(comm: Communicator) -> None:
        for count in (0, 5, 100_003):
            sums = list(accumulate((values(rank, count) for rank in range(size)), function))
            mine, found = values(comm.rank, count), np.full(count, 77.0)
            comm.Scan(mine, found, op)
            assert np.array_equal(found, sums[comm.rank])
            found[:] = 77
            comm.Exscan(mine, found, op)
            assert np.array_equal(found, sums[comm.rank - 1] if comm.rank else np.full(count, 77.0))
            comm.Iscan(MPI.IN_PLACE, mine, op).Wait()
            assert np.array_equal(mine, sums[comm.rank])
            mine = values(comm.rank, count)
            comm.Iexscan(MPI.IN_PLACE, mine, op).Wait()
            assert np.array_equal(mine, sums[comm.rank - 1] if comm.rank else values(0, count))

    run(size, program)


def test_compressed_blocks_are_what_their_codec_makes_of_them() -> None:
    size, count, codec = 3, 40_003, codecs.get("bounded:10")

    def floats(source: int, to: int) -> Array:
        return np.random.default_rng([source, to]).standard_normal(count).astype(np.float32)

    def decoded(given: Array) -> Array:
        return codec.decode(codec.encode(given), given.size)

    def arrived(source: int, to: int) -> Array:
        return floats(source, to) if source == to else decoded(floats(source, to))

    def program(comm: Communicator) -> None:
        rank, name = comm.rank, str(codec)
        given = np.stack([floats(rank, to) for to in range(size)])
        columns, rows = ([arrived(each, rank) for each in range(size)], [arrived(rank, each) for each in range(size)])
        found = np.empty_like(given)
        comm.Alltoall_comp(given, found, codec=name)
        assert np.array_equal(found, columns)
        found[:] = 0
        comm.Ialltoallv_comp([given, [count] * size], found, codec=name).Wait()
        assert np.array_equal(found, columns)
        for gather in (comm.Gather_comp, comm.Gatherv_comp):
            gather(floats(rank, 1), found, root=1, codec=name)
            assert rank != 1 or np.array_equal(found, columns)
        for scatter in (comm.Scatter_comp, comm.Scatterv_comp):
            scatter(given, found[0], root=2, codec=name)
            assert np.array_equal(found[0], arrived(2, rank))
        comm.Allgatherv_comp(floats(rank, 0), found, codec=name)
        assert np.array_equal(found, [decoded(floats(each, 0)) for each in range(size)])
        assert np.array_equal(given[1], floats(rank, 1)), "what is sent does not change"
        doubles = np.empty((size, count))
        comm.Alltoall_comp(given.astype(float), doubles, codec=name)
        assert np.array_equal(doubles, columns)
        total = np.empty(count, np.float32)
        comm.Scan_comp(floats(rank, 0), total, codec=name)
        exact = np.sum([floats(each, 0) for each in range(rank + 1)], axis=0, dtype=np.float32)
        assert np.max(np.abs(total - exact)) <= 2 * 2**-10 + 1e-5
        assert rank or np.array_equal(total, exact)
        before = np.zeros(count, np.float32)
        comm.Exscan_comp(floats(rank, 0), before, codec=name)
        assert np.max(np.abs(before + floats(rank, 0) - exact)) <= 3 * 2**-10 + 1e-5
        del rows

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [3, 5_000])
def test_objects(size: int, length: int) -> None:
    def thing(rank: int, to: int = 0) -> dict[str, Any]:
        return {"from": rank, "to": to, "data": bytes(length * (to + rank) // 2)}

    def program(comm: Communicator) -> None:
        rank, everybody = comm.rank, range(size)
        for root in everybody:
            assert comm.gather(thing(rank), root) == ([thing(each) for each in everybody] if rank == root else None)
            items = [thing(root, to) for to in everybody] if rank == root else None
            assert comm.scatter(items, root=root) == thing(root, rank)
        assert comm.alltoall([thing(rank, to) for to in everybody]) == [thing(each, rank) for each in everybody]
        assert comm.alltoall([rank] * size) == [*everybody]
        assert comm.scan([rank]) == [*range(rank + 1)]
        assert comm.exscan([rank]) == ([*range(rank)] if rank else None)
        assert comm.scan(rank + 1, op=operator.mul) == np.prod(np.arange(1, rank + 2))
        mine = [rank]
        found = comm.allgather(mine)
        assert found[rank] is not mine, "as every other rank's, a copy"

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_operations_of_users_combine_in_rank_order(size: int) -> None:
    """Of 2 x 2 matrices, whose product does not commute; and the larger with its place, which NICs do not have."""

    def product(left: Any, inout: Any, datatype: Any) -> None:  # noqa: ARG001
        a, b = (np.frombuffer(each, np.int64).reshape(-1, 2, 2) for each in (left, inout))
        b[:] = a @ b

    def matrices(rank: int) -> Array:
        return np.random.default_rng(rank).integers(-2, 3, (3 * size, 2, 2))

    def program(comm: Communicator) -> None:
        op, rank = MPI.Op.Create(product, commute=False), comm.rank
        products = list(accumulate((matrices(each) for each in range(size)), operator.matmul))
        found = np.zeros_like(matrices(0))
        comm.Allreduce(matrices(rank), found, op)
        assert np.array_equal(found, products[-1])
        mine = matrices(rank)
        comm.Ireduce(MPI.IN_PLACE if rank == size - 1 else mine, mine, op, root=size - 1).Wait()
        assert np.array_equal(mine, products[-1] if rank == size - 1 else matrices(rank))
        comm.Scan(matrices(rank), found, op)
        assert np.array_equal(found, products[rank])
        comm.Exscan(matrices(rank), found, op)
        assert np.array_equal(found, products[rank - 1] if rank else products[0])
        block = np.zeros((3, 2, 2), np.int64)
        comm.Reduce_scatter_block(matrices(rank), block, op)
        assert np.array_equal(block, products[-1][3 * rank : 3 * rank + 3])
        pair = np.array([(rank % 3, rank)], "i,i")
        best = np.zeros_like(pair)
        comm.Allreduce([pair.view("i4"), 1, MPI.INT_INT], [best.view("i4"), 1, MPI.INT_INT], MPI.MAXLOC)
        assert tuple(best[0]) == (min(2, size - 1), min(2, size - 1)), "of the same values, the first"
        op.Free()

    run(size, program)


def test_persistent_calls_start_again_with_what_their_buffers_hold_then() -> None:
    size = 3

    def program(comm: Communicator) -> None:
        mine, total, gathered = np.zeros(5), np.zeros(5), np.zeros((size, 5))
        requests = [
            comm.Allreduce_init(mine, total, MPI.MAX),
            comm.Gather_init(mine, gathered, root=1),
            comm.Barrier_init(),
        ]
        for turn in range(3):
            mine[:] = comm.rank + turn
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            assert np.array_equal(total, np.full(5, size - 1 + turn))
            assert comm.rank != 1 or np.array_equal(gathered[:, 0], np.arange(size) + turn)
        for request in requests:
            request.Free()

    run(size, program)


def test_what_is_refused_leaves_the_communicator_usable() -> None:
    def program(comm: Communicator) -> None:
        data = np.zeros(4)
        for call in (
            lambda: comm.Gather(data, np.zeros(8), root=2),
            lambda: comm.Alltoall(np.zeros(3), data),
            lambda: comm.Scan(data, np.zeros(3)),
            lambda: comm.Scan(data, np.zeros(4), MPI.AVG),
            lambda: comm.alltoall([1, 2, 3]),
        ):
            with pytest.raises(MPI.Exception, match="on rank"):
                call()
        comm.Alltoall(data, np.ones(4))

    run(2, program)


def test_ranks_that_disagree_about_a_block() -> None:
    def program(comm: Communicator) -> str:
        data = np.zeros(2 * (4 + comm.rank))
        with pytest.raises(MPI.Exception) as caught:
            comm.Alltoall(data, data.copy())
        return str(caught.value)

    for text in run(2, program):
        assert "sends 4, receives 4 x float64" in text
        assert "sends 5, receives 5 x float64" in text
