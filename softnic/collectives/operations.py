"""Reductions and element types that a WorkRequest names: what NICs combine. Immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from softnic.codecs.combine import LogicOp, ReduceOp, combine, divide, type_number
from softnic.collectives.elements import kind_of, name_of, named
from softnic.ipc.work_queue import WorkRequest

Array = npt.NDArray[Any]

_TYPES = {np.dtype(code).name for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"} | {"bfloat16"}


@dataclass(frozen=True)
class ArrayOp:
    """A reduction of arrays element by element, in C."""

    name: str
    number: ReduceOp | LogicOp
    kinds: str = "biufc"
    """The numpy kinds for which it is defined."""
    average: bool = False
    """Whether the combined value is divided by the number of ranks."""

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Return whether it is defined for elements of `dtype`."""
        return kind_of(dtype) in self.kinds

    def combine(self, left: Array, right: Array, out: Array) -> None:
        """Store `left` op `right` in `out`, element by element; `out` may be an operand."""
        combine(self.number, left, right, out)

    def finish(self, array: Array, ranks: int) -> None:
        """Complete the reduction of the contributions of all `ranks` in `array`, in place."""
        if self.average:
            divide(array, ranks)


SUM = ArrayOp("SUM", ReduceOp.SUM)
"""Sum; of booleans, or."""
PROD = ArrayOp("PROD", ReduceOp.PROD)
"""Product; of booleans, and."""
MAX = ArrayOp("MAX", ReduceOp.MAX, "biuf")
MIN = ArrayOp("MIN", ReduceOp.MIN, "biuf")
AVG = ArrayOp("AVG", ReduceOp.SUM, "fc", average=True)
"""Mean: the sum divided by the number of ranks, before a codec rounds it. As PyTorch's ReduceOp.AVG; MPI has none."""
LAND = ArrayOp("LAND", LogicOp.LAND, "biu")
LOR = ArrayOp("LOR", LogicOp.LOR, "biu")
LXOR = ArrayOp("LXOR", LogicOp.LXOR, "biu")
BAND = ArrayOp("BAND", LogicOp.BAND, "biu")
BOR = ArrayOp("BOR", LogicOp.BOR, "biu")
BXOR = ArrayOp("BXOR", LogicOp.BXOR, "biu")
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


class ElementReduction(NamedTuple):
    """An operation on elements of one type, as the engine knows it."""

    operation: int
    """Its number in C."""
    type: int
    """That of the type of the elements."""
    item: int
    """Bytes of an element."""
    average: bool
    """Whether the combination of all contributions is divided by the number of ranks."""


def reduction(name: str, dtype: np.dtype[Any]) -> ElementReduction:
    """Return an operation on elements of `dtype`. Raises ValueError."""
    op = ARRAY_OPS.get(name)
    if op is None or not op.takes(dtype):
        raise ValueError(f"there is no operation {name!r} of {name_of(dtype)}")
    return ElementReduction(op.number, type_number(dtype), dtype.itemsize, op.average)
