"""The reductions, and mpi4py's names for element types. Immutable values; nothing here communicates."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs.combine import ReduceOp, combine, is_half, narrow, widen
from softnic.collectives.elements import BFLOAT16, kind_of

_OF_HALVES: dict[np.ufunc, ReduceOp] = {
    np.add: ReduceOp.SUM,
    np.multiply: ReduceOp.PROD,
    np.minimum: ReduceOp.MIN,
    np.maximum: ReduceOp.MAX,
}


@dataclass(frozen=True)
class Op:
    """A reduction: of arrays element by element, of objects by the Python operation named alike."""

    name: str
    arrays: np.ufunc
    objects: Callable[[Any, Any], Any]
    kinds: str = "biufc"
    """The numpy kinds that it is defined for."""
    average: bool = False
    """What was combined is divided by the number of ranks."""

    def finish(self, array: npt.NDArray[Any], ranks: int) -> None:
        """What is left to do, in place, when the contributions of all ranks are in an array."""
        if self.average and is_half(array.dtype):
            narrow(np.divide(floats := widen(array), np.float32(ranks), out=floats), array)
        elif self.average:
            np.divide(array, ranks, out=array)

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether it is defined for elements of this type."""
        return kind_of(dtype) in self.kinds

    def combine(self, left: npt.NDArray[Any], right: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        """out = left op right, element by element; `out` may be an operand. numpy does not know bfloat16, and is slow
        with float16: those are combined by C, the others by numpy."""
        if is_half(out.dtype):
            combine(_OF_HALVES[self.arrays], left, right, out)
        else:
            self.arrays(left, right, out=out)

    def __call__(self, left: Any, right: Any) -> Any:
        return self.fold((left, right))

    def fold(self, objects: Sequence[Any]) -> Any:
        """In the order given, so that every rank gets the same."""
        folded = reduce(self.objects, objects)
        return folded / len(objects) if self.average else folded

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Op], tuple[str]]:
        return _op_named, (self.name,)


def _op_named(name: str) -> Op:
    """The operation itself, where it was pickled."""
    return next(op for op in (SUM, PROD, MAX, MIN, AVG) if op.name == name)


SUM = Op("SUM", np.add, operator.add)
"""Of booleans: or."""
PROD = Op("PROD", np.multiply, operator.mul)
"""Of booleans: and."""
MAX = Op("MAX", np.maximum, max, "biuf")
MIN = Op("MIN", np.minimum, min, "biuf")
AVG = Op("AVG", np.add, operator.add, "fc", average=True)
"""The sum, divided by the number of ranks before it is rounded by a codec. Not MPI's; PyTorch's ReduceOp.AVG."""


@dataclass(frozen=True)
class Datatype:
    """An element type, as it stands in `[buffer, count, MPI.FLOAT]`."""

    name: str
    dtype: np.dtype[Any]

    def Get_size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize

    def __repr__(self) -> str:
        return f"MPI.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], Datatype], tuple[str]]:
        return _datatype_named, (self.name,)


def _datatype_named(name: str) -> Datatype:
    """The datatype itself, where it was pickled."""
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
