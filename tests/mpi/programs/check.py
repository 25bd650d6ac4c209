"""What numpy says that a call has to give, and how far from it results may be.

Exact calls: as far as the order of additions can move them. Compressed ones: in every algorithm each rank's partial
result crosses the network once, so N-1 messages are rounded by the codec for an element of the result, and the result
itself once more; an error of a part is no larger in the whole (products are of numbers of at most 1).
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.collectives.elements import carried, named
from tests.mpi.programs.contents import contribution, numbers, of_numbers
from tests.mpi.programs.program import DEFAULT_CODEC, FLOATS, HALVES, Call

Array = npt.NDArray[Any]
UFUNCS = {
    "SUM": np.add, "AVG": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum,
    "LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
}  # fmt: skip
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half the distance of 1 from the next larger number."""
LEAST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
"""The smallest number above zero."""


class Mismatch(AssertionError):
    """A result that is not what it has to be."""


def used_codec(call: Call, size: int) -> codecs.Codec | None:
    """What elements are compressed by; None: by nothing."""
    if not call.compressed or size == 1:
        return None
    codec = codecs.get(call.codec or DEFAULT_CODEC)
    return carried(named(call.dtype), None if codec.name == "raw" else codec)[1]


def check(seed: int, call: Call, size: int, got: Array, part: slice) -> None:
    """Raises Mismatch unless `got` is what `part` of the call's result has to be."""
    if call.collective == "bcast":
        _same(got, _sent(seed, call, call.root, size)[part], "what the root sent")
    elif call.collective == "allgather":
        whole = np.concatenate([_sent(seed, call, rank, size) for rank in range(size)])
        _same(got, whole[part], "what all ranks sent")
    else:
        _check_reduced(seed, call, size, got, part)


def _sent(seed: int, call: Call, rank: int, size: int) -> Array:
    """What others get of a rank's input that is not combined with anything."""
    array, codec = contribution(seed, call, rank), used_codec(call, size)
    if codec is None:
        return array
    rounded = codec.roundtrip(numbers(array).astype(np.float32))
    return of_numbers(rounded.astype(np.float64) if call.dtype == "float64" else rounded, call.dtype)


def _same(got: Array, expected: Array, what: str) -> None:
    if got.tobytes() != expected.tobytes():
        differ = np.flatnonzero(got.view(f"V{got.itemsize}") != expected.view(f"V{got.itemsize}"))
        raise Mismatch(f"{differ.size} of {got.size} elements are not {what}, the first at {differ[0]}")


def _check_reduced(seed: int, call: Call, size: int, got: Array, part: slice) -> None:
    parts = [numbers(contribution(seed, call, rank))[part] for rank in range(size)]
    ufunc = UFUNCS[call.op]
    if call.dtype not in FLOATS and not call.dtype.startswith("complex"):
        with np.errstate(over="ignore"):
            _same(got, reduce(ufunc, parts), f"numpy's {call.op}")
        return
    wide = np.complex128 if call.dtype.startswith("complex") else np.float64
    expected: Array = reduce(ufunc, (each.astype(wide) for each in parts))
    magnitudes: Array = reduce(ufunc if call.op == "PROD" else np.add, (np.abs(each.astype(wide)) for each in parts))
    allowed = tolerance(call, size, magnitudes, max((float(np.abs(p).max(initial=0)) for p in parts), default=0.0))
    if call.op == "AVG":
        expected = expected / size
    error = np.abs(numbers(got).astype(wide) - expected)
    wrong = np.flatnonzero(~(error <= allowed))
    if wrong.size:
        at = wrong[0]
        limit = np.broadcast_to(allowed, error.shape)[at]
        raise Mismatch(
            f"{wrong.size} of {got.size} elements differ from numpy's {call.op}, the first at {at}: "
            f"{numbers(got)[at]} for {expected[at]}, off by {error[at]:.3g} where {limit:.3g} is allowed"
        )


def tolerance(call: Call, size: int, magnitudes: Array, largest: float) -> Array | float:
    """How far an element of a reduction may be off. `magnitudes` bounds every partial result of an element, `largest`
    every contribution."""
    codec = used_codec(call, size)
    if codec is None and call.op in ("MAX", "MIN"):
        return 0.0
    through = call.dtype if codec is None else "float32"
    kind = {"complex64": "float32", "complex128": "float64"}.get(through, through)
    steps = 4 * size if call.dtype.startswith("complex") else 2 * size
    allowed: Array = steps * (UNIT[kind] * magnitudes + LEAST[kind])
    if codec is not None:
        greatest = 1.0 if call.op == "PROD" else 2 * size * largest
        allowed = allowed + size * rounding_error(codec, greatest)
        final = UNIT["float32"] if call.dtype == "float64" else UNIT[call.dtype]
        allowed = allowed + 2 * final * (magnitudes + allowed) + (LEAST[call.dtype] if call.dtype in HALVES else 0.0)
    return allowed


def rounding_error(codec: codecs.Codec, greatest: float) -> float:
    """What a codec adds at most to a number of magnitude `greatest` or less (docs/FORMAT.md)."""
    k = codec.parameter
    match codec.name:
        case "bounded":
            return 2.0**-k
        case "inceptionn":  # vectors of 8 bits are cut off at 2^-7, whatever the threshold
            return max(2.0**-k, 2.0**-7)
        case "bfp":  # a step of the block's largest; half of one, but for the largest itself, which never grows
            return 2.0 ** (math.frexp(greatest)[1] - 1 - (k - 1)) if greatest else 0.0
        case "truncate":
            return greatest * min(1.0, 2.0 ** (9 - k))
    raise ValueError(f"{codec}: what it adds is not known here")
