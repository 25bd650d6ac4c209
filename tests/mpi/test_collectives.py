"""Every collective call on buffers: sizes x counts x element types x in place, against numpy on one rank."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import MPI, codecs
from softnic.collectives.schedule import blocks, partition
from softnic.mpi.communicator import Communicator
from tests.comm.engine_nics import SocketStream
from tests.mpi.ranks import by_hand, gradient, run

SIZES = [1, 2, 3, 4, 5, 9]
COUNTS = [0, 1, 2, 7, 64, 1003]
DTYPES = ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64"]
OPS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
OF_BOOLEANS = {"LOR": np.logical_or, "LAND": np.logical_and}


def values(rank: int, count: int, dtype: str) -> npt.NDArray[Any]:
    """Small whole numbers: exact in every type, so that the order of additions does not matter."""
    return np.random.default_rng(rank + 10).integers(0, 3, count).astype(dtype)


def reduced(op: str, size: int, count: int, dtype: str) -> npt.NDArray[Any]:
    result = values(0, count, dtype)
    for rank in range(1, size):
        result = {**OPS, **OF_BOOLEANS}[op](result, values(rank, count, dtype))
    return result


@pytest.mark.parametrize("size", SIZES)
def test_allreduce_sums_any_count(size: int) -> None:
    def program(comm: Communicator) -> list[npt.NDArray[Any]]:
        found = []
        for count in COUNTS:
            result = np.full(count, -1, np.float64)
            comm.Allreduce(values(comm.rank, count, "float64"), result)
            found.append(result)
        return found

    for results in run(size, program):
        for count, result in zip(COUNTS, results, strict=True):
            np.testing.assert_array_equal(result, reduced("SUM", size, count, "float64"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_of_any_type_in_place_or_not(dtype: str) -> None:
    ops = ["SUM", "PROD"] if dtype.startswith("complex") else ["LOR", "LAND"] if dtype == "bool" else list(OPS)
    size, count = 3, 50

    def program(comm: Communicator) -> dict[str, list[npt.NDArray[Any]]]:
        found: dict[str, list[npt.NDArray[Any]]] = {}
        for name in ops:
            op = getattr(MPI, name)
            mine = values(comm.rank, count, dtype)
            apart = np.empty(count, dtype)
            comm.Allreduce(mine, apart, op=op)
            np.testing.assert_array_equal(mine, values(comm.rank, count, dtype))
            in_place = mine.copy()
            comm.Allreduce(MPI.IN_PLACE, in_place, op)
            at_root = mine.copy()
            comm.Reduce(MPI.IN_PLACE if comm.rank == 1 else mine, at_root if comm.rank == 1 else None, op, root=1)
            np.testing.assert_array_equal(mine, values(comm.rank, count, dtype))
            found[name] = [apart, in_place, at_root]
        return found

    for rank, found in enumerate(run(size, program)):
        for name, (apart, in_place, at_root) in found.items():
            expected = reduced(name, size, count, dtype)
            assert apart.tobytes() == in_place.tobytes() == expected.tobytes()
            assert at_root.tobytes() == (expected if rank == 1 else values(rank, count, dtype)).tobytes()


def test_every_rank_has_the_same_bits_of_a_sum_that_rounds() -> None:
    """Floats whose sum depends on the order of additions, NaN and infinities and overflow among them."""

    def program(comm: Communicator) -> bytes:
        mine = gradient(comm.rank, 1003, sigma=1e3)
        mine[comm.rank] = np.nan
        mine[100 + comm.rank] = np.inf if comm.rank % 2 else -np.inf
        mine[200] = np.finfo(np.float32).max
        comm.Allreduce(MPI.IN_PLACE, mine)
        return mine.tobytes()

    assert len(set(run(5, program))) == 1


@pytest.mark.parametrize("size", SIZES)
def test_reduce_to_every_root(size: int) -> None:
    def program(comm: Communicator) -> list[npt.NDArray[Any]]:
        found = []
        for root in range(size):
            result = np.zeros(11, np.int32)
            comm.Reduce(values(comm.rank, 11, "int32"), result, MPI.SUM, root)
            found.append(result)
        return found

    expected = reduced("SUM", size, 11, "int32")
    for rank, results in enumerate(run(size, program)):
        for root, result in enumerate(results):
            np.testing.assert_array_equal(result, expected if rank == root else 0)


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter(size: int) -> None:
    counts = [(3 * rank) % 5 for rank in range(size)]
    total = sum(counts)
    ends = np.cumsum(counts)

    def program(comm: Communicator) -> None:
        rank, mine = comm.rank, values(comm.rank, total, "int64")
        whole = reduced("SUM", size, total, "int64")
        block = np.full(counts[rank], -1)
        comm.Reduce_scatter(mine, block, counts)
        np.testing.assert_array_equal(block, whole[ends[rank] - counts[rank] : ends[rank]])
        comm.Reduce_scatter(MPI.IN_PLACE, mine, counts)
        np.testing.assert_array_equal(mine[: counts[rank]], block)
        near_equal = partition(total, size)[rank]
        block = np.full(near_equal.stop - near_equal.start, -1)  # its length says how much this rank gets
        comm.Reduce_scatter(values(rank, total, "int64"), block)
        np.testing.assert_array_equal(block, whole[near_equal])
        longer = np.full(near_equal.stop - near_equal.start + 2, -1)
        comm.Reduce_scatter(values(rank, total, "int64"), longer)
        np.testing.assert_array_equal(longer, [*whole[near_equal], -1, -1])
        block = np.zeros(4, np.int64)
        comm.Reduce_scatter_block(values(rank, 4 * size, "int64"), block)
        np.testing.assert_array_equal(block, reduced("SUM", size, 4 * size, "int64")[4 * rank : 4 * rank + 4])

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_allgather(size: int, count: int) -> None:
    def program(comm: Communicator) -> None:
        expected = np.concatenate([values(rank, count, "float32") for rank in range(size)])
        result = np.full(count * size, -1, np.float32)
        comm.Allgather(values(comm.rank, count, "float32"), result)
        np.testing.assert_array_equal(result, expected)
        result[:] = -1
        result[count * comm.rank : count * (comm.rank + 1)] = values(comm.rank, count, "float32")
        comm.Allgather(MPI.IN_PLACE, result)
        np.testing.assert_array_equal(result, expected)

    run(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_bcast_from_every_root(size: int) -> None:
    def program(comm: Communicator) -> None:
        for root in range(size):
            for count in (0, 1, 100_000):
                data = values(comm.rank, count, "int16")
                data.flags.writeable = comm.rank != root  # the root's is only read
                comm.Bcast(data, root)
                np.testing.assert_array_equal(data, values(root, count, "int16"))

    run(size, program)


def test_barrier_lets_nobody_through_alone() -> None:
    entered: list[int] = []

    def program(comm: Communicator) -> int:
        comm.Barrier()
        if comm.rank == 2:
            for _ in range(3):
                comm.Send(np.zeros(1), 0)  # the others are in the second barrier by then, or on the way
        elif comm.rank == 0:
            for _ in range(3):
                comm.Recv(np.zeros(1), 2)
        entered.append(comm.rank)
        comm.Barrier()
        return len(entered)

    assert run(4, program) == [4] * 4


@pytest.mark.parametrize("make", [lambda n: bytearray(4 * n), lambda n: array.array("f", bytes(4 * n))])
def test_any_buffer_will_do(make: Any) -> None:
    def program(comm: Communicator) -> None:
        buffer = make(6)
        np.frombuffer(buffer, np.float32)[:] = comm.rank + 1
        comm.Allreduce(MPI.IN_PLACE, [buffer, 6, MPI.FLOAT])
        assert np.frombuffer(buffer, np.float32).tolist() == [6.0] * 6

    run(3, program)


# -- compressed --------------------------------------------------------------------------------------------------------

CODECS = ["bounded:10", "bounded:4", "inceptionn:10", "bfp:7", "truncate:16", "auto"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_allreduce_comp_is_algorithm_1_with_every_hop_rounded_on_every_rank(size: int, codec: str) -> None:
    counts = [0, 1, 5, 64, 1003, 100_003]

    def program(comm: Communicator) -> list[bytes]:
        found = []
        for count in counts:
            result = np.empty(count, np.float32)
            comm.Allreduce_comp(gradient(comm.rank, count), result, codec=codec, algorithm="ring")
            in_place = gradient(comm.rank, count)
            comm.Allreduce_comp(MPI.IN_PLACE, in_place, codec=codec, algorithm="ring")
            assert in_place.tobytes() == result.tobytes()
            found.append(result.tobytes())
        return found

    expected = [by_hand(size, count, codec).tobytes() for count in counts]
    assert run(size, program) == [expected] * size


def test_without_rounding_at_the_owner_the_ranks_would_differ() -> None:
    """That is, the transport of these tests really rounds, and the test above can fail."""
    size, count = 3, 1003
    exact = gradient(0, count).copy()
    for rank in range(1, size):
        exact += gradient(rank, count)
    assert by_hand(size, count, "bounded:10").tobytes() != exact.tobytes()
    SocketStream.rounded_bytes = 0
    how: dict[str, Any] = {"codec": "bounded:10", "algorithm": "ring"}
    run(size, lambda comm: comm.Allreduce_comp(MPI.IN_PLACE, gradient(comm.rank, count), **how))
    padded = sum((block.stop - block.start) * 4 + 63 & ~63 for block in blocks("allreduce", "ring", count, size))
    assert SocketStream.rounded_bytes == 2 * (size - 1) * padded


@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PROD"])
def test_reduce_comp_gives_the_root_the_bits_of_allreduce_comp(op: str) -> None:
    def program(comm: Communicator) -> None:
        everywhere = np.empty(1003, np.float32)
        how: dict[str, Any] = {"codec": "bounded:10", "algorithm": "ring"}
        comm.Allreduce_comp(gradient(comm.rank, 1003), everywhere, getattr(MPI, op), **how)
        for root in range(comm.size):
            result = np.zeros(1003, np.float32)
            comm.Reduce_comp(gradient(comm.rank, 1003), result, getattr(MPI, op), root, **how)
            assert result.tobytes() == (everywhere if comm.rank == root else np.zeros_like(result)).tobytes()

    run(4, program)


def test_reduce_scatter_comp_then_allgather_comp() -> None:
    def program(comm: Communicator) -> bytes:
        size, count = comm.size, 40 * comm.size
        block, whole = np.empty(40, np.float32), np.empty(count, np.float32)
        comm.Reduce_scatter_block_comp(gradient(comm.rank, count), block, codec="bounded:10")
        other = np.empty(40, np.float32)
        comm.Reduce_scatter_comp(gradient(comm.rank, count), other, [40] * size, codec="bounded:10")
        assert other.tobytes() == block.tobytes()
        comm.Allgather_comp(block, whole, codec="bounded:10")
        mine = whole[40 * comm.rank : 40 * comm.rank + 40]
        assert mine.tobytes() == codecs.get("bounded:10").roundtrip(block).tobytes()
        return whole.tobytes()

    assert len(set(run(4, program))) == 1


def test_bcast_comp_leaves_the_same_bits_everywhere() -> None:
    def program(comm: Communicator) -> bytes:
        data = gradient(comm.rank, 300_007)
        comm.Bcast_comp(data, root=2, codec="bounded:10")
        return data.tobytes()

    assert set(run(4, program)) == {codecs.get("bounded:10").roundtrip(gradient(2, 300_007)).tobytes()}


def test_raw_and_the_default_codec() -> None:
    """`raw` is exact and untagged; None is what the NIC's table has."""

    def program(comm: Communicator) -> tuple[bytes, bytes, bytes]:
        exact, raw, default = (np.empty(500, np.float32) for _ in range(3))
        comm.Allreduce(gradient(comm.rank, 500), exact)
        comm.Allreduce_comp(gradient(comm.rank, 500), raw, codec="raw")
        comm.Allreduce_comp(gradient(comm.rank, 500), default)
        return exact.tobytes(), raw.tobytes(), default.tobytes()

    (exact, raw, default), *others = run(3, program)
    assert raw == exact
    assert default == by_hand(3, 500, "bounded:10").tobytes()
    assert others == [(exact, raw, default)] * 2


def test_the_default_codec_is_the_tables_after_calls_that_named_others() -> None:
    """On every rank, also on those whose connections had no other codec set."""

    def program(comm: Communicator) -> bytes:
        whole, data = np.empty(60, np.float32), gradient(comm.rank, 500)
        comm.Allgather_comp(gradient(comm.rank, 20), whole, codec="truncate:8")
        comm.Allreduce_comp(MPI.IN_PLACE, data, algorithm="ring")
        return data.tobytes()

    assert run(3, program) == [by_hand(3, 500, "bounded:10").tobytes()] * 3


def test_codecs_may_change_from_call_to_call() -> None:
    def program(comm: Communicator) -> list[bytes]:
        found = []
        for codec in ["bounded:10", "inceptionn:10", "bounded:4", "bounded:10"]:
            data = gradient(comm.rank, 777)
            comm.Allreduce_comp(MPI.IN_PLACE, data, codec=codecs.get(codec), algorithm="ring")
            assert data.tobytes() == by_hand(comm.size, 777, codec).tobytes()
            found.append(data.tobytes())
        return found

    run(3, program)


def test_large_arrays_through_small_buffers() -> None:
    """Blocks much longer than a chunk and than what sockets hold, both ways at once."""

    def program(comm: Communicator) -> tuple[float, bytes]:
        data = np.arange(1_500_001, dtype=np.float32) % 1000 + comm.rank
        comm.Allreduce(MPI.IN_PLACE, data)
        comp = gradient(comm.rank, 1_500_001)
        comm.Allreduce_comp(MPI.IN_PLACE, comp, codec="bounded:10", algorithm="ring")
        expected = np.arange(1_500_001) % 1000 * 3 + 3
        return float(np.abs(data - expected).max()), comp.tobytes()

    results = run(3, program)
    assert [error for error, _ in results] == [0.0] * 3
    assert {bits for _, bits in results} == {by_hand(3, 1_500_001, "bounded:10").tobytes()}
