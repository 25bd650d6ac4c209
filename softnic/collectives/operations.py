"""Reductions and element types that a WorkRequest names: what NICs combine. Immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs.combine import ReduceOp, combine, is_half, narrow, type_number, widen
from softnic.collectives.elements import kind_of, name_of, named
from softnic.ipc.work_queue import WorkRequest

Array = npt.NDArray[Any]

_TYPES = {np.dtype(code).name for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"} | {"bfloat16"}
_IN_C: dict[np.ufunc, ReduceOp] = {
    np.add: ReduceOp.SUM,
    np.multiply: ReduceOp.PROD,
    np.minimum: ReduceOp.MIN,
    np.maximum: ReduceOp.MAX,
}


@dataclass(frozen=True)
class ArrayOp:
    """A reduction of arrays element by element."""

    name: str
    arrays: np.ufunc
    kinds: str = "biufc"
    """The numpy kinds for which it is defined."""
    average: bool = False
    """Whether the combined value is divided by the number of ranks."""

    def finish(self, array: Array, ranks: int) -> None:
        """Complete the reduction of the contributions of all `ranks` in `array`, in place."""
        with np.errstate(all="ignore"):  # overflow gives infinity, as in MPI
            if self.average and is_half(array.dtype):
                narrow(np.divide(floats := widen(array), np.float32(ranks), out=floats), array)
            elif self.average:
                np.divide(array, ranks, out=array)

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Return whether it is defined for elements of `dtype`."""
        return kind_of(dtype) in self.kinds

    def combine(self, left: Array, right: Array, out: Array) -> None:
        """Store `left` op `right` in `out`, element by element; `out` may be an operand.

        numpy has no bfloat16 and is slow with float16: these are combined in C, others by numpy.
        """
        if is_half(out.dtype):
            combine(_IN_C[self.arrays], left, right, out)
        else:
            self.arrays(left, right, out=out)


SUM = ArrayOp("SUM", np.add)
"""Sum; of booleans, or."""
PROD = ArrayOp("PROD", np.multiply)
"""Product; of booleans, and."""
MAX = ArrayOp("MAX", np.maximum, "biuf")
MIN = ArrayOp("MIN", np.minimum, "biuf")
AVG = ArrayOp("AVG", np.add, "fc", average=True)
"""Mean: the sum divided by the number of ranks, before a codec rounds it. As PyTorch's ReduceOp.AVG; MPI has none."""
LAND = ArrayOp("LAND", np.logical_and, "biu")
LOR = ArrayOp("LOR", np.logical_or, "biu")
LXOR = ArrayOp("LXOR", np.logical_xor, "biu")
BAND = ArrayOp("BAND", np.bitwise_and, "biu")
BOR = ArrayOp("BOR", np.bitwise_or, "biu")
BXOR = ArrayOp("BXOR", np.bitwise_xor, "biu")
ARRAY_OPS = {op.name: op for op in (SUM, PROD, MAX, MIN, AVG, LAND, LOR, LXOR, BAND, BOR, BXOR)}
"""What NICs combine, by name."""


def element_type(name: str) -> np.dtype[Any]:
    """Return the numpy type of this name. Raises ValueError."""
    if name not in _TYPES:
        raise ValueError(f"{name!r} is not an element type of collectives")
    return named(name)


def nbytes(request: WorkRequest) -> int:
    """Return the bytes of all blocks, which is the size of `source` and of `result`. Raises ValueError."""
    if min(request.counts, default=0) < 0:
        raise ValueError(f"blocks of {min(request.counts)} elements")
    return sum(request.counts) * element_type(request.dtype).itemsize


@dataclass(frozen=True, slots=True)
class ElementReduction:
    """An operation on elements of one type, whose contributions come from `ranks` ranks."""

    op: ArrayOp
    ranks: int
    number: tuple[int, int] | None
    """Of operation and type in C; None: C does not have them."""

    @property
    def average(self) -> bool:
        return self.op.average

    def combine(self, left: Array, right: Array, out: Array) -> None:
        """Store `left` op `right` in `out`."""
        with np.errstate(all="ignore"):  # overflow gives infinity, as in MPI
            self.op.combine(left, right, out)

    def finish(self, array: Array) -> None:
        """Complete the combination of all contributions, in place."""
        self.op.finish(array, self.ranks)


def reduction(name: str, dtype: np.dtype[Any], ranks: int) -> ElementReduction:
    """Return an operation on elements of `dtype`. Raises ValueError."""
    op = ARRAY_OPS.get(name)
    if op is None or not op.takes(dtype):
        raise ValueError(f"there is no operation {name!r} of {name_of(dtype)}")
    number = type_number(dtype) if op.arrays in _IN_C else None
    return ElementReduction(op, ranks, None if number is None else (int(_IN_C[op.arrays]), number))
