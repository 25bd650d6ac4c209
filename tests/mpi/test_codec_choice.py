"""`either`: reductions that choose their codec by the data of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import MPI
from softnic.collectives.elements import BFLOAT16, convert
from softnic.comm.errors import ArgumentError
from softnic.mpi.collectives import codec_choice
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import failures, gradient, run

COUNT = 600_011
"""Enough of halves, too."""
SPARSE, DENSE = "bounded:10", "rht:4"
Floats = npt.NDArray[np.float32]


def data(rank: int, share: float, count: int = COUNT, seed: int = 0) -> Floats:
    """Floats of which a share is not zero: at the same places on ranks of the same seed."""
    kept = np.random.default_rng((7, seed)).random(count) < share
    return np.where(kept, gradient(rank, count), np.float32(0))


def allreduced(contributions: list[Floats], **keywords: Any) -> set[bytes]:
    def program(comm: Communicator) -> bytes:
        values = contributions[comm.rank].copy()
        comm.Allreduce_comp(MPI.IN_PLACE, values, **keywords)
        return values.tobytes()

    return set(run(len(contributions), program))


def assert_chooses(expected: str, contributions: list[Floats], codec: str = "either") -> None:
    """The result has the bits of a call that names the expected codec, on every rank."""
    found = allreduced(contributions, codec=codec)
    assert len(found) == 1
    assert found == allreduced(contributions, codec=expected)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_mostly_zeros_have_one_codec_and_dense_data_the_other(size: int) -> None:
    assert_chooses(SPARSE, [data(rank, 0.05) for rank in range(size)])
    assert_chooses(SPARSE, [np.zeros(COUNT, np.float32)] * size)
    assert_chooses(DENSE, [data(rank, 1.0) for rank in range(size)])
    assert_chooses(DENSE, [data(rank, 0.4) for rank in range(size)])


def test_small_dense_data_is_not_taken_for_zeros() -> None:
    """Which it would be for `bounded`."""
    assert_chooses(DENSE, [data(rank, 1.0) * np.float32(1e-6) for rank in range(2)])


def test_one_rank_with_dense_data_decides_for_all() -> None:
    assert_chooses(DENSE, [data(rank, 1.0 if rank == 2 else 0.02) for rank in range(4)])


def test_the_sum_counts_as_the_contributions_do() -> None:
    """A tenth of each is not zero: of the sum as much, or almost four tenths."""
    assert_chooses(SPARSE, [data(rank, 0.1) for rank in range(4)])
    assert_chooses(DENSE, [data(rank, 0.1, seed=rank) for rank in range(4)])


def test_the_codecs_may_be_named() -> None:
    for share, codec in ((0.05, "bounded:14"), (1.0, "bfp:7")):
        assert_chooses(codec, [data(rank, share) for rank in range(3)], "either:bounded:14,bfp:7")


def test_short_buffers_are_dense_without_a_question() -> None:
    count = codec_choice.ASKED_BYTES // 4 - 1
    assert_chooses(DENSE, [data(rank, 0.01, count) for rank in range(3)])
    assert_chooses(SPARSE, [data(rank, 0.01, count + 1) for rank in range(3)])


def _reduce(comm: Communicator, values: Any, codec: str) -> Any:
    result = np.zeros_like(values)
    comm.Reduce_comp(values, result, root=1, codec=codec)
    return result


def _reduce_in_place(comm: Communicator, values: Any, codec: str) -> Any:
    root = comm.rank == 1
    comm.Ireduce_comp(MPI.IN_PLACE if root else values, values if root else None, root=1, codec=codec).Wait()
    return values if root else None


def _reduce_scatter(comm: Communicator, values: Any, codec: str) -> Any:
    comm.Reduce_scatter_comp(MPI.IN_PLACE, values, codec=codec)
    return values


def _reduce_scatter_block(comm: Communicator, values: Any, codec: str) -> Any:
    result = np.zeros(values.size // comm.size, values.dtype)
    comm.Ireduce_scatter_block_comp(values[: result.size * comm.size], result, codec=codec).Wait()
    return result


def _block_in_place(comm: Communicator, values: Any, codec: str) -> Any:
    whole = values[: values.size // comm.size * comm.size]
    comm.Reduce_scatter_block_comp(MPI.IN_PLACE, [whole, whole.size // comm.size, MPI.FLOAT], codec=codec)
    return whole


def _two_at_once(comm: Communicator, values: Any, codec: str) -> Any:
    other = data(comm.rank, 1.0, seed=5)
    requests = [comm.Iallreduce_comp(MPI.IN_PLACE, each, codec=codec) for each in (other, values)]
    for request in reversed(requests):
        request.Wait()
    return values


CALLS = [_reduce, _reduce_in_place, _reduce_scatter, _reduce_scatter_block, _block_in_place, _two_at_once]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("share", "codec"), [(0.05, SPARSE), (1.0, DENSE)])
def test_every_reduction_chooses(call: Callable[..., Any], share: float, codec: str) -> None:
    def program(comm: Communicator, codec: str) -> Any:
        result = call(comm, data(comm.rank, share), codec)
        return None if result is None else result.tobytes()

    assert run(3, lambda comm: program(comm, "either")) == run(3, lambda comm: program(comm, codec))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(np.float64), BFLOAT16])
@pytest.mark.parametrize(("share", "codec"), [(0.05, SPARSE), (1.0, DENSE)])
def test_other_floats_are_looked_at_too(dtype: np.dtype[Any], share: float, codec: str) -> None:
    def program(comm: Communicator, codec: str) -> bytes:
        values = np.zeros(COUNT, dtype)
        convert(data(comm.rank, share) * np.float32(-1), values)  # so that zeros have a sign
        comm.Allreduce_comp(MPI.IN_PLACE, values, codec=codec)
        return values.tobytes()

    assert run(2, lambda comm: program(comm, "either")) == run(2, lambda comm: program(comm, codec))


def test_integers_and_single_ranks_stay_exact() -> None:
    def program(comm: Communicator) -> None:
        integers = np.arange(COUNT)
        comm.Allreduce_comp(MPI.IN_PLACE, integers, codec="either")
        np.testing.assert_array_equal(integers, np.arange(COUNT) * comm.size)

    run(2, program)
    run(1, program)
    alone = data(0, 0.05)
    assert allreduced([alone], codec="either") == {alone.tobytes()}


def test_what_is_looked_at_is_spread_over_the_buffer() -> None:
    words = np.zeros(1 << 20, np.float32)
    for start in range(0, words.size, words.size // 32):
        words[start : start + words.size // 32] = 1
        share = codec_choice.nonzero(words).mean()
        assert share == pytest.approx((start / words.size) + 1 / 32, abs=0.01)


@pytest.mark.parametrize(
    "codec", ["either:", "either:rht:4", "either:rht:4,bounded:10,raw", "either:bounded:10,none:1"]
)
def test_codecs_that_are_none_are_refused(codec: str) -> None:
    def program(comm: Communicator) -> None:
        comm.Allreduce_comp(MPI.IN_PLACE, data(comm.rank, 1.0), codec=codec)

    assert any(isinstance(error, ArgumentError) for error in failures(2, program))  # the other may hear of it first


def test_only_reductions_choose() -> None:
    def program(comm: Communicator) -> None:
        comm.Bcast_comp(data(0, 1.0), codec="either")

    assert any("either" in str(error) for error in failures(2, program))


def test_ranks_that_ask_and_ranks_that_do_not_get_an_error() -> None:
    def program(comm: Communicator) -> None:
        comm.Allreduce_comp(MPI.IN_PLACE, data(comm.rank, 1.0), codec=DENSE if comm.rank else "either")

    assert any("with either" in str(error) for error in failures(2, program))
