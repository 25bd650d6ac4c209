"""Requests, and the collectives behind them, over NICs that are played by the test (groups.py)."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import softnic
from softnic import MPI, codecs
from softnic.collectives.elements import convert, kind_of, named
from softnic.collectives.schedule import partition
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.transport import Transport
from softnic.ipc.work_queue import WorkRequest
from softnic.mpi.communicator import Communicator
from tests.comm.engine_nics import MODULE
from tests.mpi.connections import offload_queue, scratch_of
from tests.mpi.groups import COUNT, FakeNics, total, values
from tests.mpi.ranks import failures, gradient, run

Make = Callable[[Any], Any]


def ordinary(like: Any) -> Any:
    return np.array(like)


def registered(like: Any) -> Any:
    array = softnic.empty(np.shape(like), np.asarray(like).dtype)
    array[...] = like
    return array


def moved(source: Any, target: Any) -> None:
    """Elements of one type into an array of another."""
    if kind_of(source.dtype) == kind_of(target.dtype) == "f":
        convert(source, target)
    else:
        np.copyto(target, source, casting="unsafe")


# -- what they compute -----------------------------------------------------------------------------------------------


def every_call(comm: Communicator, make: Make, other: Make, dtype: Any) -> None:
    """All calls in flight at once, on buffers of this kind (the input) and the other (the result)."""
    rank, size = comm.rank, comm.size
    source, blank = values(rank, dtype), np.zeros(COUNT, dtype)
    expected = total(size, dtype)
    blocks = partition(COUNT, size)
    block = values(rank, dtype, 64 * size)
    sums, in_place, at_root = other(blank), make(source), other(blank)
    own, own_in_place, own_equal = other(blank[blocks[rank]]), make(source), other(blank[:64])
    gathered, gathered_in_place, sent = (
        other(np.zeros(COUNT * size, dtype)),
        make(np.zeros(3 * size, dtype)),
        make(source),
    )
    gathered_in_place[3 * rank : 3 * rank + 3] = rank
    root = size - 1
    given = make(source)
    requests = [
        comm.Iallreduce(given, sums),
        comm.Iallreduce(MPI.IN_PLACE, in_place, MPI.MAX),
        comm.Ireduce(given, at_root if rank == root else None, root=root),
        comm.Ireduce_scatter(given, own),
        comm.Ireduce_scatter(MPI.IN_PLACE, own_in_place),
        comm.Ireduce_scatter_block(make(block), own_equal),
        comm.Iallgather(given, gathered),
        comm.Iallgather(MPI.IN_PLACE, gathered_in_place),
        comm.Ibcast(sent, root=root),
        comm.Ibarrier(),
    ]
    MPI.Request.Waitall(requests)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(in_place, values(root, dtype))
    np.testing.assert_array_equal(at_root, expected if rank == root else blank)
    np.testing.assert_array_equal(own, expected[blocks[rank]])
    np.testing.assert_array_equal(own_in_place[: own.size], expected[blocks[rank]])
    np.testing.assert_array_equal(own_equal, total(size, dtype, 64 * size)[64 * rank : 64 * rank + 64])
    np.testing.assert_array_equal(gathered, np.concatenate([values(each, dtype) for each in range(size)]))
    np.testing.assert_array_equal(gathered_in_place, np.repeat(np.arange(size), 3).astype(dtype))
    np.testing.assert_array_equal(sent, values(root, dtype))
    np.testing.assert_array_equal(given, source)
    assert all(request == MPI.REQUEST_NULL for request in requests)


@pytest.mark.parametrize("other", [ordinary, registered])
@pytest.mark.parametrize("make", [ordinary, registered])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_call(size: int, make: Make, other: Make) -> None:
    run(size, lambda comm: every_call(comm, make, other, np.float32), FakeNics())


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint8, np.complex64])
def test_every_call_for_other_types(dtype: Any) -> None:
    def program(comm: Communicator) -> None:
        if dtype is np.complex64:  # has no order, so no MAX
            data = values(comm.rank, dtype)
            comm.Iallreduce(MPI.IN_PLACE, data).Wait()
            np.testing.assert_array_equal(data, total(2, dtype))
        else:
            every_call(comm, ordinary, registered, dtype)

    run(2, program, FakeNics())


def nonblocking(nics: FakeNics) -> list[WorkRequest]:
    """What was posted, but for what ranks agreed on first."""
    posted = [post for posts in nics.posts.values() for post in posts.values()]
    return [post for post in posted if post.call.startswith("I") and "without" not in post.call]


@pytest.mark.parametrize("make", [ordinary, registered])
def test_every_compressed_call(make: Make) -> None:
    size, codec = 3, "bounded:8"
    rounded = codecs.get(codec).roundtrip
    exact = gradient(0, COUNT) + gradient(1, COUNT) + gradient(2, COUNT)
    blocks = partition(COUNT, size)

    def program(comm: Communicator) -> None:
        rank = comm.rank
        given = make(gradient(rank, COUNT))
        sums, at_root, own = (make(np.zeros(COUNT, np.float32)) for _ in range(3))
        equal, own_equal = make(gradient(rank, 96)), make(np.zeros(32, np.float32))
        gathered, sent = make(np.zeros(COUNT * size, np.float32)), make(gradient(rank, COUNT))
        MPI.Request.Waitall([
            comm.Iallreduce_comp(given, sums, codec=codec),
            comm.Ireduce_comp(given, at_root if rank == 1 else None, root=1, codec=codec, algorithm="ring"),
            comm.Ireduce_scatter_comp(given, own, codec=codec),
            comm.Ireduce_scatter_block_comp(equal, own_equal, codec=codec),
            comm.Iallgather_comp(given, gathered, codec=codec),
            comm.Ibcast_comp(sent, root=2, codec=codec),
        ])  # fmt: skip
        assert sums.tobytes() == rounded(exact).tobytes()
        assert rank != 1 or at_root.tobytes() == rounded(exact).tobytes()
        assert own[: blocks[rank].stop - blocks[rank].start].tobytes() == rounded(exact)[blocks[rank]].tobytes()
        assert gathered.tobytes() == rounded(np.concatenate([gradient(r, COUNT) for r in range(size)])).tobytes()
        assert sent.tobytes() == rounded(gradient(2, COUNT)).tobytes()  # the root's own, too

    nics = FakeNics()
    run(size, program, nics)
    assert {post.codec for post in nonblocking(nics)} == {codec}


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16", "int32"])
def test_compressed_calls_take_elements_of_other_types(name: str) -> None:
    """Floats travel as float32, if as anything else than themselves, and only floats are rounded."""
    datatype = {"float64": MPI.DOUBLE, "float16": MPI.FLOAT16, "bfloat16": MPI.BFLOAT16, "int32": MPI.INT32_T}[name]

    def program(comm: Communicator) -> None:
        size = datatype.Get_size()
        sums, gathered, own = (np.zeros(length * size, np.uint8) for length in (64, 64 * 3, 22))
        data = np.zeros(64, np.float32) + comm.rank + 1
        array = np.zeros(64, named(name))
        moved(data, array)
        MPI.Request.Waitall([
            comm.Iallreduce_comp(array, [sums, datatype], codec="bounded:8"),
            comm.Iallgather_comp(array, [gathered, datatype], codec="bounded:8"),
            comm.Ireduce_scatter_comp(array, [own, datatype], codec="bounded:8"),
        ])  # fmt: skip
        for result, expected in ((sums, [6] * 64), (gathered, np.repeat([1, 2, 3], 64)), (own[: 21 * size], [6] * 21)):
            typed = result.view(array.dtype)
            floats = np.zeros(typed.size, np.float32)
            moved(typed, floats)
            np.testing.assert_array_equal(floats, expected)

    nics = FakeNics()
    run(3, program, nics)
    assert {post.dtype for post in nonblocking(nics)} == {"int32" if name == "int32" else "float32"}
    said = {post.call.partition("_comp")[2] for post in nonblocking(nics)}
    assert said == {"" if name == "int32" else f" of {name}"}, "ranks with other elements must be found"


def test_one_rank_is_alone() -> None:
    """It needs no NIC, rounds nothing, and its Requests are complete at once."""

    def program(comm: Communicator) -> None:
        data = gradient(0, 10)
        request = comm.Iallreduce_comp(MPI.IN_PLACE, data, codec="bounded:2")
        assert request.Test()
        assert data.tobytes() == gradient(0, 10).tobytes()
        requests = [comm.Ibarrier(), comm.Ibcast(data)]
        assert MPI.Request.Waitany(requests) == 0
        assert MPI.Request.Waitany(requests) == 1
        assert MPI.Request.Waitany(requests) == MPI.UNDEFINED

    run(1, program)


def test_empty_buffers() -> None:
    def program(comm: Communicator) -> None:
        nothing = np.empty(0, np.float32)
        MPI.Request.Waitall(
            [comm.Iallreduce(MPI.IN_PLACE, nothing), comm.Ibcast(nothing), comm.Iallgather(nothing, nothing)]
        )

    run(2, program, FakeNics())


def test_without_nics_there_is_an_error_that_says_so() -> None:
    for error in failures(2, lambda comm: comm.Iallreduce(MPI.IN_PLACE, np.zeros(4)), Transport(MODULE)):
        assert isinstance(error, CommError)
        assert "NICs execute collectives" in str(error)


@pytest.mark.parametrize("call", [
    lambda c: c.Iallreduce(np.zeros(3), np.zeros(4)),
    lambda c: c.Ibcast(np.zeros(3), root=7),
    lambda c: c.Iallreduce(MPI.IN_PLACE, np.zeros(3, np.complex64), MPI.MAX),
    lambda c: c.Iallreduce_comp(MPI.IN_PLACE, np.zeros(3, np.float32), algorithm="nothing"),
    lambda c: c.Iallgather(np.zeros(3), np.zeros(5)),
])  # fmt: skip
def test_arguments_are_checked_as_in_the_blocking_calls(call: Callable[[Communicator], Any]) -> None:
    def program(comm: Communicator) -> None:
        if comm.rank == 1:
            call(comm)
        comm.Ibarrier().Wait()

    errors = failures(2, program, FakeNics())
    assert isinstance(errors[1], ArgumentError)
    assert errors[1].call.startswith("I")
    assert isinstance(errors[0], CommError)
    assert str(errors[1]) in str(errors[0])


# -- memory ----------------------------------------------------------------------------------------------------------


def test_registered_buffers_are_posted_as_they_are() -> None:
    def program(comm: Communicator) -> None:
        comm.Init()
        pool = scratch_of(comm)
        source, result = registered(values(comm.rank)), softnic.empty(COUNT)
        comm.Iallreduce(source, result).Wait()
        comm.Iallreduce(ordinary(source), result).Wait()  # put where the result goes
        comm.Ibcast(result[10:20]).Wait()
        comm.Iallgather(ordinary(source), softnic.empty(2 * COUNT)).Wait()
        assert pool.held_bytes == 0
        comm.Ireduce_scatter(source, result[:502]).Wait()
        assert pool.held_bytes > 0

    run(2, program, FakeNics())


def test_many_small_buffers_share_scratch() -> None:
    nics = FakeNics(held=True)
    posted = threading.Barrier(3)

    def program(comm: Communicator) -> None:
        arrays = [values(comm.rank) for _ in range(200)]
        requests = [comm.Iallreduce(MPI.IN_PLACE, array) for array in arrays]
        posted.wait()
        MPI.Request.Waitall(requests)
        assert all(array.tobytes() == total(2).tobytes() for array in arrays)
        assert scratch_of(comm).held_bytes == 4 << 20

    def release() -> None:
        posted.wait()
        nics.release()

    threading.Thread(target=release, daemon=True).start()
    run(2, program, nics)


def test_a_dropped_request_keeps_its_buffers_until_it_is_complete() -> None:
    nics = FakeNics(held=True)
    dropped = threading.Barrier(2)

    def program(comm: Communicator) -> None:
        arrays = [values(comm.rank), registered(values(comm.rank))]
        kept = [weakref.ref(array.base if array.base is not None else array) for array in arrays]
        for array in arrays:
            comm.Iallreduce(MPI.IN_PLACE, array)
        del arrays, array
        gc.collect()
        assert all(ref() is not None for ref in kept)
        if dropped.wait() == 0:
            nics.release()
        comm.Ibarrier().Wait()
        gc.collect()
        assert all(ref() is None for ref in kept)

    run(2, program, nics)


def test_more_requests_than_the_nic_takes_wait_in_the_process() -> None:
    """The call returns all the same, and they go out when there is room."""
    nics = FakeNics()

    def program(comm: Communicator) -> None:
        comm.Init()
        data = softnic.zeros(1)
        with nics.deaf(comm.rank):
            requests = [comm.Iallreduce(MPI.IN_PLACE, data, MPI.MAX) for _ in range(2000)]
            assert offload_queue(comm)._unsent
        MPI.Request.Waitall(requests)

    run(2, program, nics)


# -- the start -------------------------------------------------------------------------------------------------------


def test_nobody_posts_before_all_have_joined() -> None:
    late = threading.Event()

    class Late(FakeNics):
        def join(self, place: tuple[int, int], channels: Any, _process: object = None, _lanes: object = ()) -> Any:
            if place[0] == 2:
                assert late.wait(60)
            return super().join(place, channels)

    nics = Late()
    met: list[int] = []

    def program(comm: Communicator) -> None:
        if comm.rank == 2:
            threading.Timer(0, lambda: late.set() if not met else None).start()
        comm.Init()
        met.append(comm.rank)
        assert len(nics.ends) == 3
        comm.Ibarrier().Wait()

    run(3, program, nics)


def test_a_nic_that_refuses_is_an_error_on_every_rank() -> None:
    class Full(FakeNics):
        def join(self, place: tuple[int, int], channels: Any, _process: object = None, _lanes: object = ()) -> Any:
            if place[0] == 1:
                raise OSError(105, "the NIC has enough groups")
            return super().join(place, channels)

    for error in failures(3, lambda comm: comm.Init(), Full()):
        assert isinstance(error, CommError)
        assert error.rank == 1
        assert "the NIC has enough groups" in str(error)
