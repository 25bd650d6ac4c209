"""Selection of the largest elements, encoding of indices, and messages."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from softnic.gradients import MethodError
from softnic.gradients import indices as coding
from softnic.gradients.indices import Indices
from softnic.gradients.sparse import Sparse, exchange, largest, selected_count
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

PLACES = st.integers(0, 2000).flatmap(
    lambda size: st.tuples(st.just(size), st.sets(st.integers(0, max(size - 1, 0)), max_size=size).map(sorted))
)


@over(PLACES)
def test_indices_are_restored(case: tuple[int, list[int]]) -> None:
    size, indices = case
    made = np.array(indices, np.int64)
    np.testing.assert_array_equal(coding.decode(coding.encode(made), len(indices), size), made)


@pytest.mark.parametrize("indices", [[0], [255], [256], [65535], [65536], [2**32 - 1], [0, 2**32 - 1], []])
def test_gaps_of_every_width(indices: list[int]) -> None:
    made = np.array(indices, np.int64)
    np.testing.assert_array_equal(coding.decode(coding.encode(made), len(indices), 2**32), made)


@over(st.binary(max_size=60), st.integers(0, 20), st.integers(0, 100))
def test_any_bytes_decode_to_indices_or_are_refused(data: bytes, count: int, size: int) -> None:
    try:
        found = coding.decode(data, count, size)
    except MethodError:
        return
    assert found.size == count
    assert (np.diff(found) > 0).all()
    assert not count or (found[0] >= 0 and found[-1] < size)


@over(PLACES, st.data())
def test_damaged_indices_decode_to_indices_or_are_refused(case: tuple[int, list[int]], data: st.DataObject) -> None:
    size, indices = case
    message = bytearray(coding.encode(np.array(indices, np.int64)))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    test_any_bytes_decode_to_indices_or_are_refused.hypothesis.inner_test(bytes(message), len(indices), size)  # type: ignore[attr-defined]


def test_a_decompression_bomb_is_refused() -> None:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"\1" + deflate.compress(bytes(1 << 24)) + deflate.flush()
    with pytest.raises(MethodError):
        coding.decode(bomb, 100, 1000)


def test_one_index_in_a_thousand_takes_about_its_entropy() -> None:
    indices: Indices = np.flatnonzero(np.random.default_rng(1).random(10**6) < 1e-3)
    assert 11.4 < 8 * len(coding.encode(indices)) / indices.size < 11.9


@over(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=80), st.data())
def test_the_selected_elements_are_the_largest(values: list[float], data: st.DataObject) -> None:
    array = np.array(values, np.float32)
    count = data.draw(st.integers(1, array.size))
    chosen = largest(array, count)
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(np.sort(np.abs(array[chosen])), np.sort(np.abs(array))[array.size - count :])


@settings(max_examples=25)
@over(st.integers(1, 60_000), st.integers(1, 500), st.integers(0, 99), st.booleans())
def test_the_largest_of_many_are_found_from_a_sample(size: int, count: int, seed: int, periodic: bool) -> None:
    """Also if the sample, every n-th element, is not representative."""
    array = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    if periodic:
        array[:: max(1, size // (1 << 13))] *= 100
    chosen = largest(array, min(count, size))
    expected = np.sort(np.abs(array))[size - min(count, size) :]
    np.testing.assert_array_equal(np.sort(np.abs(array[chosen])), expected)


def test_elements_that_are_not_finite_are_sent_first() -> None:
    array = np.random.default_rng(0).standard_normal(30_000).astype(np.float32)
    array[7], array[20_000] = np.nan, -np.inf
    assert list(largest(array, 2)) == [7, 20_000]


@pytest.mark.parametrize(
    ("size", "density", "floor", "count"),
    [(10, 0.01, 0, 1), (1000, 0.01, 0, 10), (10, 0.01, 10, 10), (11, 0.5, 10, 6)],
)
def test_the_share_that_is_sent(size: int, density: float, floor: int, count: int) -> None:
    assert selected_count(size, density, floor) == count


@over(PLACES)
def test_messages_are_restored(case: tuple[int, list[int]]) -> None:
    size, indices = case
    own = Sparse(np.array(indices, np.int64), np.arange(len(indices), dtype=np.float32) - 3)
    found = Sparse.decode(own.encode(), size)
    np.testing.assert_array_equal(found.indices, own.indices)
    np.testing.assert_array_equal(found.values, own.values)


@over(st.binary(max_size=80))
def test_any_bytes_decode_to_a_message_or_are_refused(data: bytes) -> None:
    try:
        found = Sparse.decode(data, 50)
    except MethodError:
        return
    assert found.indices.size == found.values.size


def test_ranks_sum_the_messages_of_all_ranks() -> None:
    def program(comm: Communicator) -> tuple[bytes, int]:
        indices = np.array([comm.rank, 5, 9], np.int64)
        total, sent = exchange(comm, Sparse(indices, np.full(3, comm.rank + 1, np.float32)), 10)
        assert list(total) == [1, 2, 3, 0, 0, 6, 0, 0, 0, 6]
        return total.tobytes(), sent

    results = run(3, program)
    assert len({total for total, _ in results}) == 1
    assert all(8 + 3 * 4 < sent < 40 for _, sent in results)
