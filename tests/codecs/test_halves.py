"""Floats of 16 bits: every implementation against IEEE 754 written out, for every half, every tie and what lies beside
it; and reductions as float32's, rounded."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.codecs.combine import BFLOAT16, ReduceOp, combine, is_half, narrow, widen
from tests.codecs.cases import Fence
from tests.codecs.test_reduce import by_the_rules, pairs

Bits = npt.NDArray[np.uint16]
Words = npt.NDArray[np.uint32]

HALVES: dict[str, np.dtype[Any]] = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}
QUIET = {"float16": 0x200, "bfloat16": 0x40}
TYPES = {"float16": lib.SN_FLOAT16, "bfloat16": lib.SN_BFLOAT16}
COUNTS = (*range(70), 511, 512, 513, 1024, 4099)
EVERY = np.arange(1 << 16, dtype=np.uint16)
LEFT, OUT = Fence(), Fence()


def is_nan(name: str, bits: Bits) -> npt.NDArray[np.bool_]:
    return np.asarray((bits & 0x7FFF) > INFINITY[name])


def quiet(name: str, bits: Bits) -> Bits:
    return np.where(is_nan(name, bits), bits | QUIET[name], bits).astype(np.uint16)


def words_of(name: str, bits: Bits) -> Words:
    """What halves are as binary32, NaNs with their payloads moved up."""
    if name == "bfloat16":
        return bits.astype(np.uint32) << np.uint32(16)
    with np.errstate(invalid="ignore"):
        numbers = bits.view(np.float16).astype(np.float32).view(np.uint32)
    sign, payload = (bits & 0x8000).astype(np.uint32) << 16, (bits & 0x3FF).astype(np.uint32) << 13
    return np.where(is_nan(name, bits), sign | 0x7F800000 | payload, numbers)


def bits_of(name: str, words: Words) -> Bits:
    """The nearest halves, the even ones of two; NaNs quiet, with the upper bits of their payloads."""
    sign, magnitude = (words >> 16 & 0x8000).astype(np.uint16), words & 0x7FFFFFFF
    shift = 13 if name == "float16" else 16
    payload = (words >> shift & (QUIET[name] - 1)).astype(np.uint16)
    if name == "float16":
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = magnitude.view(np.float32).astype(np.float16).view(np.uint16)
    else:
        down, rest = magnitude >> 16, magnitude & 0xFFFF
        numbers = (down + ((rest > 0x8000) | ((rest == 0x8000) & (down & 1 == 1)))).astype(np.uint16)
    return np.where(magnitude > 0x7F800000, sign | INFINITY[name] | QUIET[name] | payload, sign | numbers)


def boundary(name: str) -> Bits:
    """Halves at which rules show: zeros, the least and greatest, ones, infinities, NaNs that can be told apart."""
    infinity, one = INFINITY[name], {"float16": 0x3C00, "bfloat16": 0x3F80}[name]
    least_normal = {"float16": 0x400, "bfloat16": 0x80}[name]
    chosen = [0, 1, 2, least_normal - 1, least_normal, one, one + 1, 0x4249, infinity - 1]
    chosen += [infinity, infinity + 1, infinity | QUIET[name], infinity | QUIET[name] | 1, 0x7FFF]
    return np.array([*chosen, *(bits | 0x8000 for bits in chosen)], np.uint16)


def expected_of(name: str, operation: ReduceOp, left: Bits, right: Bits) -> Bits:
    """Minimum and maximum are operands as they are; sums and products those of float32, rounded."""
    a, b = (words_of(name, bits).view(np.float32) for bits in (left, right))
    if operation in (ReduceOp.MIN, ReduceOp.MAX):
        first = a < b if operation is ReduceOp.MIN else a > b
        return np.where(is_nan(name, left) | (first & ~is_nan(name, right)), left, right)
    return bits_of(name, by_the_rules(operation, a, b).view(np.uint32))


def combined(name: str, operation: ReduceOp, left: Bits, right: Bits) -> Bits:
    dtype = HALVES[name]
    return combine(operation, left.view(dtype), right.view(dtype)).view(np.uint16)


@pytest.mark.parametrize("name", HALVES)
def test_every_half_is_a_float32_and_comes_back(name: str) -> None:
    halves = EVERY.view(HALVES[name])
    wide = widen(halves)
    got, expected = wide.view(np.uint32), words_of(name, EVERY)
    numbers = ~is_nan(name, EVERY)
    np.testing.assert_array_equal(got[numbers], expected[numbers])
    np.testing.assert_array_equal(got[~numbers] | 0x400000, expected[~numbers] | 0x400000)  # made quiet or not
    np.testing.assert_array_equal(narrow(wide, np.empty_like(halves)).view(np.uint16), quiet(name, EVERY))


@pytest.mark.parametrize("name", HALVES)
def test_every_tie_and_what_lies_beside_it(name: str) -> None:
    """Between two neighbours, and below, at and above the middle of them; and the floats around every half."""
    words = words_of(name, EVERY[: INFINITY[name] + 1])
    middle = ((words[:-1].astype(np.uint64) + words[1:]) // 2).astype(np.uint32)
    if name == "float16":  # the exact middles of denormals are not those of their words
        numbers = words.view(np.float32).astype(np.float64)
        middle[:-1] = ((numbers[:-2] + numbers[1:-1]) / 2).astype(np.float32).view(np.uint32)
    near = [array + step for array in (words, middle) for step in (np.uint32(0), np.uint32(1))]
    near += [array[1:] - np.uint32(1) for array in (words, middle)]
    near.append(np.array([0x477FEFFF, 0x477FF000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF], np.uint32))  # to infinity or not
    every = np.concatenate(near)
    every = np.concatenate([every, every | np.uint32(0x80000000)])
    got = narrow(every.view(np.float32), np.empty(every.size, HALVES[name])).view(np.uint16)
    np.testing.assert_array_equal(got, bits_of(name, every))


@pytest.mark.parametrize("name", HALVES)
def test_any_float32_is_narrowed(name: str) -> None:
    rng = np.random.default_rng(71)
    for count in COUNTS:
        words = rng.integers(0, 1 << 32, count, np.uint32)
        words[::3] = words[::3] & 0x87FFFFFF | 0x30000000  # in float16's range
        got = narrow(words.view(np.float32), np.empty(count, HALVES[name])).view(np.uint16)
        np.testing.assert_array_equal(got, bits_of(name, words))


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", HALVES)
def test_every_pair_of_boundary_values_at_every_place(name: str, operation: ReduceOp) -> None:
    left, right = pairs(boundary(name))
    expected = expected_of(name, operation, left, right)
    for shift in range(0, 64, 5):
        np.testing.assert_array_equal(combined(name, operation, left[shift:], right[shift:]), expected[shift:])


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", HALVES)
def test_random_halves_in_place_and_apart(name: str, operation: ReduceOp) -> None:
    rng, dtype = np.random.default_rng(72), HALVES[name]
    for count in COUNTS:
        left, right = (rng.integers(0, 1 << 16, count, np.uint16) for _ in range(2))
        expected = expected_of(name, operation, left, right)
        np.testing.assert_array_equal(combined(name, operation, left, right), expected)
        for operand in (0, 1):
            operands = [left.copy().view(dtype), right.copy().view(dtype)]
            assert combine(operation, operands[0], operands[1], operands[operand]) is operands[operand]
            np.testing.assert_array_equal(operands[operand].view(np.uint16), expected)


@pytest.mark.parametrize("operation", ReduceOp)
def test_the_same_as_numpy_where_it_has_the_type(operation: ReduceOp) -> None:
    """numpy takes either zero as the minimum of both; NaNs are compared above."""
    rng = np.random.default_rng(73)
    left, right = (rng.integers(0, 1 << 16, 1 << 16, np.uint16).view(np.float16) for _ in range(2))
    ufunc = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum}
    with np.errstate(all="ignore"):
        expected = ufunc[operation](left, right)
    compared = ~np.isnan(expected) & ~((left == right) & (operation in (ReduceOp.MIN, ReduceOp.MAX)))
    got = combine(operation, left, right)
    assert got[compared].tobytes() == expected[compared].tobytes()
    assert np.isnan(got[np.isnan(expected)]).all()


@given(data=st.data(), operation=st.sampled_from(ReduceOp), name=st.sampled_from(sorted(HALVES)))
def test_any_halves(data: st.DataObject, operation: ReduceOp, name: str) -> None:
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)), max_size=40))
    left, right = (np.array([pair[side] for pair in drawn], np.uint16) for side in (0, 1))
    np.testing.assert_array_equal(combined(name, operation, left, right), expected_of(name, operation, left, right))


@pytest.mark.parametrize("name", HALVES)
def test_nothing_is_touched_beyond_the_ends(name: str) -> None:
    rng = np.random.default_rng(74)
    for count in COUNTS:
        halves, floats = rng.bytes(2 * count), rng.bytes(4 * count)
        out = OUT.place(b"\xa5" * 64 + bytes(4 * count))
        assert lib.sn_widen(TYPES[name], LEFT.place(halves), count, out + 64) == 0
        assert ffi.buffer(out, 64)[:] == b"\xa5" * 64
        out = OUT.place(b"\xa5" * 64 + bytes(2 * count))
        assert lib.sn_narrow(TYPES[name], LEFT.place(floats), count, out + 64) == 0
        assert ffi.buffer(out, 64)[:] == b"\xa5" * 64


def test_what_is_no_half() -> None:
    out = ffi.new("uint8_t[64]")
    for call, type_ in itertools.product((lib.sn_widen, lib.sn_narrow), (-1, lib.SN_FLOAT32, lib.SN_UINT16, 12)):
        assert call(type_, b"\1" * 64, 8, out) == -1
    assert bytes(out) == bytes(64)
    halves, floats = np.zeros(4, np.float16), np.zeros(4, np.float32)
    with pytest.raises(TypeError, match="not a type of 16-bit floats"):
        widen(np.zeros(4, np.uint16))
    with pytest.raises(TypeError, match="float32 arrays, not float64"):
        narrow(np.zeros(4), halves)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 elements do not fit into 4"):
        narrow(floats[:3], halves)
    with pytest.raises(ValueError, match="overlaps"):
        narrow(floats, floats.view(np.float16)[:4])
    assert [is_half(np.dtype(name)) for name in ("float16", "float32", "uint16")] == [True, False, False]
    with pytest.raises(TypeError):
        np.add(np.zeros(2, BFLOAT16), np.zeros(2, BFLOAT16))  # nobody adds its bits by mistake
