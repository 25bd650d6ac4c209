"""Reductions on AArch64, alone and fused with the codecs, against their rules and the library here."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import codecs
from softnic.codecs.combine import ReduceOp
from tests.aarch64.machine import NUMBERS, Answer, Call, Machine
from tests.codecs import test_halves as halves
from tests.codecs.cases import RANGES, gradients
from tests.codecs.test_reduce import FLOATS, INTEGERS, Array, boundary, by_the_rules, pairs

pytestmark = pytest.mark.slow

SIMD = tuple(NUMBERS)
TYPES = FLOATS + INTEGERS
"""In the order of the C's numbers."""
CODECS = [f"{name}:{range_[place]}" for name, range_ in RANGES.items() for place in (0, len(range_) // 2, -1)]
INVALID_OPERATION = {4: 0x7FC00000, 8: 0x7FF8 << 48}
"""The NaN that AArch64 makes of inf - inf and 0 * inf; the rules leave it open."""


def check(machine: Machine, name: str, operation: ReduceOp, left: Array, right: Array) -> None:
    expected = by_the_rules(operation, left, right)
    if name in FLOATS:
        made = np.isnan(expected) & ~np.isnan(left) & ~np.isnan(right)
        expected.view(f"u{expected.itemsize}")[made] = INVALID_OPERATION[expected.itemsize]
    for simd in SIMD:
        for in_place in (False, True):
            given = machine.run(
                Call.REDUCE,
                simd,
                left=left.tobytes(),
                right=right.tobytes(),
                room=left.nbytes,
                operation=operation,
                type_=TYPES.index(name),
                in_place=in_place,
            )
            assert (given.result, given.data) == (0, expected.tobytes())


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", TYPES)
def test_every_pair_of_boundary_values_at_every_place(machine: Machine, name: str, operation: ReduceOp) -> None:
    left, right = pairs(boundary(name))
    for shift in range(16):
        check(machine, name, operation, left[shift:], right[shift:])


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", TYPES)
def test_random_bits(machine: Machine, name: str, operation: ReduceOp) -> None:
    rng, dtype = np.random.default_rng(41), np.dtype(name)
    for count in (*range(1, 40), 127, 4099):
        left, right = (np.frombuffer(rng.bytes(count * dtype.itemsize), dtype) for _ in range(2))
        check(machine, name, operation, left, right)


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", halves.HALVES)
def test_halves(machine: Machine, name: str, operation: ReduceOp) -> None:
    """Boundary values at every place of a vector, and any others."""
    rng = np.random.default_rng(42)
    left, right = pairs(halves.boundary(name))
    given = [(left[shift:], right[shift:]) for shift in range(16)]
    for count in (*range(1, 40), 4099):
        given.append((rng.integers(0, 1 << 16, count, np.uint16), rng.integers(0, 1 << 16, count, np.uint16)))
    for a, b in given:
        expected = halves.expected_of(name, operation, a, b)
        made = halves.is_nan(name, expected) & ~halves.is_nan(name, a) & ~halves.is_nan(name, b)
        expected = np.where(made, np.uint16(halves.INFINITY[name] | halves.QUIET[name]), expected)
        for simd in SIMD:
            answer = machine.run(
                Call.REDUCE,
                simd,
                left=a.tobytes(),
                right=b.tobytes(),
                room=a.nbytes,
                operation=operation,
                type_=halves.TYPES[name],
            )
            assert (answer.result, answer.data) == (0, expected.tobytes())


# Fused with the codecs: what the portable kernels there give one after the other.


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("name", CODECS)
def test_fused_is_one_after_the_other(machine: Machine, name: str, operation: ReduceOp) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(51)

    def run(call: Call, simd: str, left: bytes, right: bytes, room: int, *, in_place: bool = False) -> Answer:
        return machine.run(call, simd, codec, left=left, right=right, room=room, operation=operation, in_place=in_place)

    for count in (1, 16, 65, 1023, 1024, 2500):
        left, right = gradients(rng, count), gradients(rng, count)
        body, a, b = codec.encode(left.view(np.float32)), left.tobytes(), right.tobytes()
        combined = np.frombuffer(run(Call.REDUCE, "scalar", a, b, len(a)).data, np.uint32)
        encoded = machine.encode("scalar", codec, combined, 16, codec.bound(count))
        kept = machine.roundtrip("scalar", codec, combined)
        received = run(Call.REDUCE, "scalar", machine.roundtrip("scalar", codec, left), b, len(a)).data
        for simd in SIMD:
            given = run(Call.COMBINE_ENCODE, simd, a, b, codec.bound(count))
            assert (given.data, given.consumed) == encoded
            assert run(Call.COMBINE_ROUNDTRIP, simd, a, b, len(a), in_place=True) == Answer(0, 0, kept)
            assert run(Call.DECODE_COMBINE, simd, body, b, len(a)) == Answer(0, 0, received)
