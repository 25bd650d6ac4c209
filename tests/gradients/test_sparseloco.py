"""SparseLoCo, compared with its formula computed on one rank, and its messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from softnic import MPI, gradients
from softnic.gradients import Floats, MethodError
from softnic.gradients.sparse import largest, selected_count
from softnic.gradients.sparseloco import SparseLoCo
from tests.gradients.feeding import SIZES, bits, given, kept, steps

CHUNK = 100


def rounded(values: Floats, width: int) -> Floats:
    """Return values in `width` bits: the mean magnitude of their group, as bfloat16."""
    order = np.argsort(np.abs(values), kind="stable")
    groups = 1 << (width - 1)
    result = np.empty_like(values)
    for group in range(groups):
        inside = order[group * values.size // groups : (group + 1) * values.size // groups]
        if inside.size:
            level = np.array([np.abs(values[inside]).mean(dtype=np.float64)], np.float32)
            upper = (level.view(np.uint32) + 0x8000 >> 16 << 16).astype(np.uint32)
            result[inside] = np.copysign(upper.view(np.float32)[0], values[inside])
    return result


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3])
def test_it_equals_its_formula(size: int, width: int) -> None:
    ranks = steps(size, f"sparseloco:0.1,{width},beta=0.9,chunk={CHUNK}", 4)
    memories = [{name: np.zeros(count, np.float32) for name, count in SIZES.items()} for _ in range(size)]
    for step in range(4):
        expected = {name: np.zeros(count, np.float32) for name, count in SIZES.items()}
        for rank, memory in enumerate(memories):
            for name, gradient in given(rank, step).items():
                memory[name] = np.float32(0.9) * memory[name] + gradient
                for start in range(0, gradient.size, CHUNK):
                    part = memory[name][start : start + CHUNK]
                    where = largest(part, selected_count(part.size, 0.1, 0))
                    sent = rounded(part[where], width)
                    expected[name][start + where] += sent
                    part[where] -= sent
        for name in SIZES:
            np.testing.assert_array_equal(ranks[0][0][step][name], expected[name] * np.float32(1 / size))
    assert len({bits(results) for results, _ in ranks}) == 1


@settings(max_examples=15)
@over(st.integers(1, 4), st.floats(0.001, 1), st.integers(1, 8), st.integers(1, 500))
def test_nothing_is_lost_without_decay(size: int, share: float, width: int, chunk: int) -> None:
    """The sum of the gradients equals N times the means plus what is left, and ranks have the same bits."""
    ranks = steps(size, f"sparseloco:{share},{width},beta=1,chunk={chunk}", 3)
    for each in SIZES:
        went_in = sum(given(rank, step)[each].astype(np.float64) for rank in range(size) for step in range(3))
        out = size * sum(result[each].astype(np.float64) for result in ranks[0][0])
        left = sum(kept(method, "memory")[each].astype(np.float64) for _, method in ranks)
        np.testing.assert_allclose(out + left, went_in, atol=4e-6 * np.abs(went_in).max())
    assert len({bits(results) for results, _ in ranks}) == 1


@settings(max_examples=50)
@over(st.lists(st.integers(0, 9000), max_size=4), st.floats(0.005, 0.05), st.integers(1, 3), st.integers(0, 9))
def test_a_message_is_short_and_says_what_was_chosen(sizes: list[int], share: float, width: int, seed: int) -> None:
    method = SparseLoCo(share, width)
    draw = np.random.default_rng(seed)
    given = [draw.standard_normal(size).astype(np.float32) for size in sizes]
    data = method._message(given)
    where, values = method._decoded(data, sizes)
    flat = np.concatenate([np.empty(0, np.float32), *given])
    counts = method._counts(sizes)
    assert where.size == values.size == sum(counts)
    assert (np.sign(flat[where]) == np.sign(values)).all()
    levels, codes = len(counts) * 2 << (width - 1), -(-where.size * width // 8)
    assert len(data) <= 4 + levels + codes + 3 * where.size + 32  # gaps of two bytes, and DEFLATE's own


def test_a_message_of_other_settings_is_refused() -> None:
    array = np.ones(5000, np.float32)
    data = SparseLoCo(0.02)._message([array])
    for other in (SparseLoCo(0.03), SparseLoCo(0.02, 3), SparseLoCo(0.02, chunk=100)):
        with pytest.raises(MethodError, match="ranks differ in settings"):
            other._decoded(data, [array.size])
    for short in (b"", data[:3], data[:-1], data + b"\0"):
        with pytest.raises(MethodError):
            SparseLoCo(0.02)._decoded(short, [array.size])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_passed_on_once(bad: float) -> None:
    made = SparseLoCo(0.1, 2, chunk=CHUNK)
    first = given(0)
    first["first"][3] = bad
    made.average(MPI.COMM_SELF, first)
    assert not np.isfinite(first["first"]).all()
    second = given(0, 1)
    made.average(MPI.COMM_SELF, second)
    assert all(np.isfinite(each).all() for each in second.values())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sparseloco:0", "density is above 0"),
        ("sparseloco:0.01,0", "1 to 8 bits"),
        ("sparseloco:0.01,9", "1 to 8 bits"),
        ("sparseloco:0.01,2,1.5", "a beta of 0..1"),
        ("sparseloco:0.01,chunk=0", "chunks of 1 element or more"),
    ],
)
def test_numbers_out_of_range_are_refused(text: str, error: str) -> None:
    with pytest.raises(MethodError, match=error):
        gradients.get(text)
