"""What ranks contribute: cut from arrays that are made once, so that every rank knows what all others have."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs.combine import BFLOAT16, narrow, widen
from softnic.collectives.elements import named
from tests.mpi.programs.program import FLOATS, MOST_ELEMENTS, Call

Array = npt.NDArray[Any]
_SHIFTS = 1 << 14


@lru_cache
def _pool(dtype: str, bounded: bool) -> Array:
    """Normal numbers, none beyond 4; `bounded`: none beyond 1. Integers are any."""
    rng, count = np.random.default_rng(17), MOST_ELEMENTS + _SHIFTS
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype not in FLOATS and not dtype.startswith("complex"):
        return np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), dtype)
    numbers = rng.uniform(-1, 1, count) if bounded else rng.standard_normal(count).clip(-4, 4)
    if dtype.startswith("complex"):
        return (numbers + 1j * np.roll(numbers, 1)).astype(dtype) / 2
    return of_numbers(numbers, dtype)


def of_numbers(numbers: Array, dtype: str) -> Array:
    """Floats of a type, the nearest to float64s by way of float32."""
    if dtype == "bfloat16":
        return narrow(numbers.astype(np.float32), np.empty(numbers.shape, BFLOAT16))
    return numbers.astype(dtype)


def numbers(array: Array) -> Array:
    """Elements to compute with."""
    return widen(array) if array.dtype == BFLOAT16 else array


def contribution(seed: int, call: Call, rank: int) -> Array:
    """A rank's input, not to be written to."""
    shift = zlib.crc32(f"{seed} {call.index} {rank}".encode()) % _SHIFTS
    array = _pool(call.dtype, call.op == "PROD")[shift : shift + call.count]
    if call.dtype in FLOATS and call.scale != 1.0:
        return of_numbers(numbers(array).astype(np.float64) * call.scale, call.dtype)
    return array


def empty(count: int, dtype: str) -> Array:
    return np.empty(count, named(dtype))
