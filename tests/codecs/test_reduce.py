"""Reductions: every implementation against reduce.h's rules written out, against numpy, and between fences."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.cases import Fence
from tests.facades.codecs import ReduceOp, combine
from tests.facades.native import ffi, lib

Array = npt.NDArray[Any]

FLOATS = ("float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
NUMPY = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum}
LEFT, RIGHT, OUT = Fence(), Fence(), Fence()

# What floats are made of where rules meet: zeros, ones, extremes, infinities, and NaNs that can be told apart.
BITS_32 = (
    0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F800001, 0x40490FDB, 0x7F7FFFFF, 0x7F800000,
    0x7F800001, 0x7FA00000, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF,
)  # fmt: skip
BITS_64 = (
    0, 1, (1 << 52) - 1, 1 << 52, 0x3FF << 52, 0x3FF << 52 | 1, 0x400921FB54442D18, (0x7FF << 52) - 1, 0x7FF << 52,
    0x7FF << 52 | 1, 0x7FF4 << 48, (0x7FF8 << 48) - 1, 0x7FF8 << 48, 0x7FF8 << 48 | 1, (1 << 63) - 1,
)  # fmt: skip


def boundary(name: str) -> Array:
    """Numbers at which a type's rules show."""
    dtype = np.dtype(name)
    if dtype.kind == "f":
        bits, sign = (BITS_32, 1 << 31) if dtype.itemsize == 4 else (BITS_64, 1 << 63)
        return np.array([*bits, *(b | sign for b in bits)], f"u{dtype.itemsize}").view(dtype)
    info = np.iinfo(dtype)
    chosen = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, 0, 1, 2, 3, 100}
    return np.array(sorted(chosen | ({-1, -2, -100} if info.min else set())), dtype)


def pairs(values: Array) -> tuple[Array, Array]:
    """Each with each."""
    return np.repeat(values, values.size), np.tile(values, values.size)


def quiet(array: Array) -> Array:
    """NaNs as arithmetic passes them on."""
    size = array.dtype.itemsize
    bit = 1 << (22 if size == 4 else 51)
    quieted: Array = array.view(f"u{size}") | np.where(np.isnan(array), bit, 0).astype(f"u{size}")
    return quieted.view(array.dtype)


def by_the_rules(operation: ReduceOp, left: Array, right: Array) -> Array:
    """reduce.h in numpy's selections, with IEEE 754 for what it fixes."""
    if left.dtype.kind != "f":
        with np.errstate(over="ignore"):
            return np.asarray(NUMPY[operation](left, right))
    if operation in (ReduceOp.MIN, ReduceOp.MAX):
        first = left < right if operation is ReduceOp.MIN else left > right
        return np.where(np.isnan(left) | (first & ~np.isnan(right)), left, right)
    with np.errstate(all="ignore"):
        fixed = NUMPY[operation](left, right)
    return np.where(np.isnan(left), quiet(left), np.where(np.isnan(right), quiet(right), fixed))


def assert_same_bits(got: Array, expected: Array) -> None:
    unsigned = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(unsigned), expected.view(unsigned))


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_every_pair_of_boundary_values_at_every_place(name: str, operation: ReduceOp) -> None:
    """Rolled through the lanes of a vector and the rest behind the last one."""
    left, right = pairs(boundary(name))
    expected = by_the_rules(operation, left, right)
    for shift in range(0, 64, 5):
        a, b, wanted = left[shift:], right[shift:], expected[shift:]
        assert_same_bits(combine(operation, a, b), wanted)
        assert_same_bits(combine(operation, a, b[:], np.empty_like(a)), wanted)


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_random_bits_in_place_and_apart(name: str, operation: ReduceOp) -> None:
    rng, dtype = np.random.default_rng(41), np.dtype(name)
    for count in (*range(70), 127, 1000, 4099):
        left, right = (
            np.frombuffer(rng.bytes(count * dtype.itemsize), dtype) if count else np.empty(0, dtype) for _ in range(2)
        )
        expected = by_the_rules(operation, left, right)
        assert_same_bits(combine(operation, left, right), expected)
        for operand in (0, 1):
            operands = [left.copy(), right.copy()]
            assert combine(operation, operands[0], operands[1], operands[operand]) is operands[operand]
            assert_same_bits(operands[operand], expected)
            assert_same_bits(operands[1 - operand], (right, left)[operand])
        both = left.copy()
        assert_same_bits(combine(operation, both, both, both), by_the_rules(operation, left, left))


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_the_same_as_numpy(name: str, operation: ReduceOp) -> None:
    """But for sums and products of two NaNs, which numpy takes now from one side and now from the other, and for
    minima of zeros, which numpy takes as the machine does: all are held against the rules above."""
    left, right = pairs(boundary(name))
    with np.errstate(all="ignore"):
        expected = NUMPY[operation](left, right)
    got = combine(operation, left, right)
    if expected.dtype.kind == "f":
        free = np.isnan(left) & np.isnan(right) & (operation in (ReduceOp.SUM, ReduceOp.PROD))
        if platform.machine() != "x86_64":
            free |= np.isnan(expected) | ((left == right) & (operation in (ReduceOp.MIN, ReduceOp.MAX)))
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        got, expected = got[~free], expected[~free]
    assert_same_bits(got, expected)


@given(
    data=st.data(),
    operation=st.sampled_from(ReduceOp),
    name=st.sampled_from(FLOATS + INTEGERS),
    count=st.integers(0, 80),
)
def test_any_numbers(data: st.DataObject, operation: ReduceOp, name: str, count: int) -> None:
    dtype = np.dtype(name)
    raw = st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
    left, right = (np.frombuffer(data.draw(raw), dtype) for _ in range(2))
    assert_same_bits(combine(operation, left, right), by_the_rules(operation, left, right))


@pytest.mark.parametrize("type_", range(lib.SN_TYPES))
@pytest.mark.parametrize("operation", range(lib.SN_OPERATIONS))
def test_nothing_is_touched_beyond_the_ends(operation: int, type_: int) -> None:
    """Operands and result end at pages nobody may touch, and start at any address."""
    rng, size = np.random.default_rng(42), lib.sn_type_size(type_)
    for count in (*range(40), 63, 64, 65, 200):
        left, right = rng.bytes(count * size), rng.bytes(count * size)
        out = OUT.place(b"\xa5" * 64 + bytes(count * size))
        assert lib.sn_reduce(operation, type_, LEFT.place(left), RIGHT.place(right), count, out + 64) == 0
        assert ffi.buffer(out, 64)[:] == b"\xa5" * 64
        shifted = ffi.new("uint8_t[]", count * size + 1)
        assert lib.sn_reduce(operation, type_, LEFT.place(left + b"\0"), RIGHT.place(right), count, shifted + 1) == 0
        assert ffi.buffer(shifted)[1:] == ffi.buffer(out, 64 + count * size)[64:]


@pytest.mark.parametrize(("operation", "type_"), [(-1, 0), (4, 0), (0, -1), (0, 12), (1000, 1000)])
def test_what_does_not_exist_does_nothing(operation: int, type_: int) -> None:
    out = ffi.new("uint8_t[64]")
    assert lib.sn_reduce(operation, type_, b"\1" * 64, b"\1" * 64, 8, out) == -1
    assert bytes(out) == bytes(64)


def test_type_sizes() -> None:
    assert [lib.sn_type_size(number) for number in range(-1, 13)] == [0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 0]


# The Python face.


def test_types_are_known_by_any_of_their_names() -> None:
    for name in (*FLOATS, *INTEGERS, "long", "longlong", "intc", "uint"):
        ones = np.ones(3, name)
        assert combine(ReduceOp.SUM, ones, ones).tolist() == [2, 2, 2]
    for name in ("bool", "complex64", ">f2", ">f4", "U1"):
        with pytest.raises(TypeError, match=r"reductions of .* are not supported"):
            combine(ReduceOp.SUM, np.zeros(3, name), np.zeros(3, name))


def test_shapes_are_kept() -> None:
    ones = np.ones((2, 3), np.float32)
    assert combine(ReduceOp.SUM, ones, ones).shape == (2, 3)


@pytest.mark.parametrize(
    ("left", "right", "out", "error", "message"),
    [
        (np.ones(4, np.bool_), np.ones(4, np.bool_), None, TypeError, "reductions of bool are not"),
        (np.ones(4, np.float32), np.ones(4, np.float64), None, TypeError, "float32 and float64"),
        (np.ones(4, np.float32), np.ones(4, np.float32), np.ones(4, np.int32), TypeError, "float32 and int32"),
        (np.ones(4, np.float32), np.ones(5, np.float32), None, ValueError, "4 and 5 elements"),
        (np.ones(4, np.float32), np.ones(4, np.float32), np.ones(3, np.float32), ValueError, "4 and 3 elements"),
        (np.ones(8, np.float32)[::2], np.ones(4, np.float32), None, ValueError, "contiguous"),
        (np.ones(4, np.float32), np.ones(4, np.float32), np.frombuffer(bytes(16), np.float32), ValueError, "read-only"),
    ],
)
def test_what_is_no_reduction(left: Array, right: Array, out: Array | None, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        combine(ReduceOp.SUM, left, right, out)


def test_a_result_that_overlaps_an_operand_otherwise_is_refused() -> None:
    memory = np.zeros(10, np.float32)
    for left, right in ((memory[:8], np.ones(8, np.float32)), (np.ones(8, np.float32), memory[:8])):
        with pytest.raises(ValueError, match="overlaps"):
            combine(ReduceOp.SUM, left, right, memory[1:9])
