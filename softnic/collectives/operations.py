"""Reductions and element types: those that a WorkRequest names, and mpi4py's names of types. Immutable values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs.combine import ReduceOp, combine, is_half, narrow, type_number, widen
from softnic.collectives.elements import BFLOAT16, kind_of, name_of, named
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
class Op:
    """A reduction: of arrays element by element, of objects by the corresponding Python operation."""

    name: str
    arrays: np.ufunc
    objects: Callable[[Any, Any], Any]
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

    def __call__(self, left: Any, right: Any) -> Any:
        return self.fold((left, right))

    def fold(self, objects: Sequence[Any]) -> Any:
        """Return the combination of `objects` in their order, so that every rank gets the same."""
        folded = reduce(self.objects, objects)
        return folded / len(objects) if self.average else folded

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Op], tuple[str]]:
        return _op_named, (self.name,)


def _op_named(name: str) -> Op:
    """Return the operation with this name, for pickle."""
    return _OPS[name]


SUM = Op("SUM", np.add, operator.add)
"""Sum; of booleans, or."""
PROD = Op("PROD", np.multiply, operator.mul)
"""Product; of booleans, and."""
MAX = Op("MAX", np.maximum, max, "biuf")
MIN = Op("MIN", np.minimum, min, "biuf")
AVG = Op("AVG", np.add, operator.add, "fc", average=True)
"""Mean: the sum divided by the number of ranks, before a codec rounds it. As PyTorch's ReduceOp.AVG; MPI has none."""
_OPS = {op.name: op for op in (SUM, PROD, MAX, MIN, AVG)}


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

    op: Op
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
    op = _OPS.get(name)
    if op is None or not op.takes(dtype):
        raise ValueError(f"there is no operation {name!r} of {name_of(dtype)}")
    number = type_number(dtype)
    return ElementReduction(op, ranks, None if number is None else (int(_IN_C[op.arrays]), number))


@dataclass(frozen=True)
class Datatype:
    """An element type, as in `[buffer, count, MPI.FLOAT]`."""

    name: str
    dtype: np.dtype[Any]

    def Get_size(self) -> int:
        """Return the bytes of an element."""
        return self.dtype.itemsize

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Datatype], tuple[str]]:
        return _datatype_named, (self.name,)


def _datatype_named(name: str) -> Datatype:
    """Return the datatype with this name, for pickle."""
    return DATATYPES[name]


def _datatypes() -> dict[str, Datatype]:
    """By MPI's names; those of C mean what C's mean on this machine."""
    names: dict[str, Any] = {
        "BYTE": np.uint8, "CHAR": np.int8, "SIGNED_CHAR": np.int8, "UNSIGNED_CHAR": np.uint8,
        "SHORT": np.short, "UNSIGNED_SHORT": np.ushort, "INT": np.intc, "UNSIGNED": np.uintc, "UNSIGNED_INT": np.uintc,
        "LONG": np.int_, "UNSIGNED_LONG": np.uint, "LONG_LONG": np.longlong, "UNSIGNED_LONG_LONG": np.ulonglong,
        "FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16, "BFLOAT16": BFLOAT16,
        "BOOL": np.bool_, "C_BOOL": np.bool_,
        "INT8_T": np.int8, "INT16_T": np.int16, "INT32_T": np.int32, "INT64_T": np.int64,
        "UINT8_T": np.uint8, "UINT16_T": np.uint16, "UINT32_T": np.uint32, "UINT64_T": np.uint64,
        "C_FLOAT_COMPLEX": np.complex64, "C_DOUBLE_COMPLEX": np.complex128,
    }  # fmt: skip
    return {name: Datatype(name, np.dtype(kind)) for name, kind in names.items()}


DATATYPES = _datatypes()
