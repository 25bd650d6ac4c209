"""Reductions: every implementation against reduce.h's rules written out, against numpy, and between fences."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.codecs.combine import LogicOp, ReduceOp, combine, divide, type_number
from tests.codecs.cases import Fence

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


DEFINED = [
    (operation, type_)
    for operation in range(lib.SN_OPERATIONS)
    for type_ in range(lib.SN_TYPES)
    if lib.sn_reduces(operation, type_)
]


@pytest.mark.parametrize(("operation", "type_"), DEFINED)
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


@pytest.mark.parametrize(("operation", "type_"), [(-1, 0), (4, 0), (10, 4), (0, -1), (0, 17), (2, 13), (1000, 1000)])
def test_what_does_not_exist_does_nothing(operation: int, type_: int) -> None:
    out = ffi.new("uint8_t[64]")
    assert lib.sn_reduce(operation, type_, b"\1" * 64, b"\1" * 64, 8, out) == -1
    assert bytes(out) == bytes(64)


def test_type_sizes() -> None:
    sizes = [0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 1, 8, 16, np.dtype("g").itemsize, np.dtype("G").itemsize, 0]
    assert [lib.sn_type_size(number) for number in range(-1, 18)] == sizes


# Booleans, logic, complex numbers and long doubles.

BOOLEANS = {
    ReduceOp.SUM: np.logical_or, ReduceOp.PROD: np.logical_and, ReduceOp.MIN: np.logical_and,
    ReduceOp.MAX: np.logical_or, LogicOp.LAND: np.logical_and, LogicOp.LOR: np.logical_or, LogicOp.LXOR: np.logical_xor,
    LogicOp.BAND: np.logical_and, LogicOp.BOR: np.logical_or, LogicOp.BXOR: np.logical_xor,
}  # fmt: skip
LOGIC = {
    LogicOp.LAND: np.logical_and, LogicOp.LOR: np.logical_or, LogicOp.LXOR: np.logical_xor,
    LogicOp.BAND: np.bitwise_and, LogicOp.BOR: np.bitwise_or, LogicOp.BXOR: np.bitwise_xor,
}  # fmt: skip
PARTS = {"complex64": "float32", "complex128": "float64", "G": "g"}


@pytest.mark.parametrize("operation", BOOLEANS)
def test_booleans(operation: ReduceOp | LogicOp) -> None:
    left, right = pairs(np.array([False, True] * 9))
    assert_same_bits(combine(operation, left, right), BOOLEANS[operation](left, right))


@pytest.mark.parametrize("operation", LogicOp)
@pytest.mark.parametrize("name", INTEGERS)
def test_logic_of_integers(name: str, operation: LogicOp) -> None:
    left, right = pairs(boundary(name))
    expected = np.asarray(LOGIC[operation](left, right)).astype(name)
    assert_same_bits(combine(operation, left, right), expected)
    assert_same_bits(combine(operation, left, right, right), expected)


def complex_numbers(name: str) -> tuple[Array, Array]:
    """Pairs of numbers whose parts are zeros, ones, infinities and numbers that lose digits, and random ones."""
    few = np.array([0, -0.0, 1, -1, 3, 1 / 3, 1e-30, 1e30, np.inf, -np.inf], PARTS[name])
    left, right = pairs(np.array([complex(a, b) for a in few for b in few]).astype(name))
    rng = np.random.default_rng(43)
    more = [(rng.standard_normal(999) + 1j * rng.standard_normal(999)).astype(name) for _ in range(2)]
    return np.concatenate([left, more[0]]), np.concatenate([right, more[1]])


def meaning(array: Array) -> Array:
    """The parts of complex numbers, without the bytes of long doubles that have no meaning."""
    return array.view(PARTS[array.dtype.name if array.dtype.name in PARTS else "G"])


@pytest.mark.parametrize("name", PARTS)
def test_complex_numbers(name: str) -> None:
    left, right = complex_numbers(name)
    with np.errstate(all="ignore"):
        parts = [left.real * right.real - left.imag * right.imag, left.real * right.imag + left.imag * right.real]
        total = left + right
    product = np.stack(parts, axis=1).reshape(-1)
    for shift in range(0, 40, 3):
        np.testing.assert_array_equal(
            meaning(combine(ReduceOp.PROD, left[shift:], right[shift:])), product[2 * shift :]
        )
    np.testing.assert_array_equal(meaning(combine(ReduceOp.SUM, left, right)), meaning(total))
    both = left.copy()
    combine(ReduceOp.PROD, both, right, both)
    np.testing.assert_array_equal(meaning(both), product)


LONG = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum}


@pytest.mark.parametrize("operation", LONG)
def test_long_doubles(operation: ReduceOp) -> None:
    few = np.array([0, -0.0, 1, 1 / 3, -1e300, 1e-300, np.inf, -np.inf, np.nan], "g")
    left, right = pairs(np.concatenate([few, few * np.longdouble(2) ** 9000, few / 3]))
    with np.errstate(all="ignore"):
        expected = LONG[operation](left, right)
    got = combine(operation, left, right)
    np.testing.assert_array_equal(got, expected)
    padding = got.view(np.uint8).reshape(-1, 16)[:, 10:] if np.finfo("g").nmant == 63 else np.zeros(1)
    assert not padding.any()


@pytest.mark.parametrize("divisor", [1, 3, 4, 7])
@pytest.mark.parametrize("name", ["float32", "float64", "g", *PARTS])
def test_division_is_numpys(name: str, divisor: int) -> None:
    left = complex_numbers(name)[0] if name in PARTS else complex_numbers("G")[0].real.astype(name)
    with np.errstate(all="ignore"):
        expected = left / np.array(divisor, left.dtype)
    divide(left, divisor)
    np.testing.assert_array_equal(left.view(PARTS.get(name, name)), expected.view(PARTS.get(name, name)))


@pytest.mark.parametrize("name", ["int32", "bool"])
def test_what_is_not_divided(name: str) -> None:
    with pytest.raises(TypeError, match="is not divided"):
        divide(np.ones(3, name), 2)


def test_which_operations_are_defined() -> None:
    of_floats = sum(type_ in (0, 1, 10, 11, 15) for _, type_ in DEFINED)
    of_complex = sum(type_ in (13, 14, 16) for _, type_ in DEFINED)
    assert (of_floats, of_complex, len(DEFINED)) == (5 * 4, 3 * 2, 5 * 4 + 3 * 2 + 9 * 10)


def test_every_type_of_a_buffer_has_a_number() -> None:
    known = {np.dtype(code) for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"}
    assert all(type_number(dtype) >= 0 for dtype in known)
    assert type_number(np.dtype("U1")) == type_number(np.dtype(">f4")) == -1


# The Python face.


def test_types_are_known_by_any_of_their_names() -> None:
    for name in (*FLOATS, *INTEGERS, "long", "longlong", "intc", "uint"):
        ones = np.ones(3, name)
        assert combine(ReduceOp.SUM, ones, ones).tolist() == [2, 2, 2]
    for name in (">f2", ">f4", "U1"):
        with pytest.raises(TypeError, match=r"SUM of .* is not supported"):
            combine(ReduceOp.SUM, np.zeros(3, name), np.zeros(3, name))


def test_shapes_are_kept() -> None:
    ones = np.ones((2, 3), np.float32)
    assert combine(ReduceOp.SUM, ones, ones).shape == (2, 3)


@pytest.mark.parametrize(
    ("left", "right", "out", "error", "message"),
    [
        (np.ones(4, ">i2"), np.ones(4, ">i2"), None, TypeError, "SUM of >i2 is not"),
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
