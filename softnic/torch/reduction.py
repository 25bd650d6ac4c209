"""Maps torch's ReduceOps to those of a communicator.

NICs execute SUM, PRODUCT, MIN and MAX. The others are composed of these: BAND, BOR and BXOR gather all contributions
and combine them on each rank; PREMUL_SUM multiplies contributions before the sum; AVG of 16-bit floats scales them
down by a power of two first, so that no partial sum overflows unless the mean does.

AVG of integers is defined as in NCCL (FuncSumPostDiv::divide in src/device/reduce_kernel.h): the sum, which wraps
around in the element type, is divided by the number of ranks and truncated toward zero. As in torch's
ProcessGroupNCCL, AVG is not defined for booleans, and PREMUL_SUM is defined for floats only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from softnic import MPI

_OPS = {
    dist.ReduceOp.SUM: MPI.SUM,
    dist.ReduceOp.AVG: MPI.AVG,
    dist.ReduceOp.PRODUCT: MPI.PROD,
    dist.ReduceOp.MIN: MPI.MIN,
    dist.ReduceOp.MAX: MPI.MAX,
    dist.ReduceOp.PREMUL_SUM: MPI.SUM,
}
_OF_BOOLEANS = {
    dist.ReduceOp.SUM: MPI.LOR,
    dist.ReduceOp.MAX: MPI.LOR,
    dist.ReduceOp.PRODUCT: MPI.LAND,
    dist.ReduceOp.MIN: MPI.LAND,
}
"""What these operations are of booleans, which MPI's are not defined for."""
Fold = Callable[..., torch.Tensor]
"""Combines two tensors into `out`."""
Multiplier = float | torch.Tensor
_BITWISE: dict[Any, Fold] = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
_NUMBERS = {
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
}  # fmt: skip
"""Types that can be reduced. Others are moved only."""
_HALVES = (torch.float16, torch.bfloat16)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Reduction:
    """The steps that combine the contributions of all ranks."""

    name: str
    op: MPI.Op | None
    """Executed by NICs. None: all contributions are gathered, and combined by `fold`."""
    fold: Fold | None = None
    before: Multiplier | None = None
    """Factor of each contribution."""
    after: Multiplier | None = None
    """Factor of the result."""
    divisor: int = 1
    """Divides an integer result, which is truncated toward zero."""
    sums: bool = False
    """True for sums and means, which a codec may round."""


NO_REDUCTION = Reduction("", None)
"""Of collectives that move data only."""


def reduction_of(op: Any, dtype: torch.dtype, size: int, *, compressed: bool = False) -> Reduction:
    """Return the reduction for a ReduceOp, an element type and a number of ranks.

    `compressed`: a codec is used, which widens 16-bit floats to float32. Raises ValueError if the operation is not
    defined for the type.
    """
    kind = getattr(op, "op", op)
    name = str(kind).rpartition(".")[2]
    if dtype not in _NUMBERS:
        raise ValueError(f"there are no reductions of {dtype}")
    if kind in _BITWISE:
        if dtype.is_floating_point or dtype.is_complex:
            raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")
        return Reduction(name, None, _BITWISE[kind])
    if kind not in _OPS:
        raise ValueError(f"{op} is not a ReduceOp that softnic supports")
    if dtype.is_complex and _OPS[kind] in (MPI.MIN, MPI.MAX):
        raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")
    if kind == dist.ReduceOp.PREMUL_SUM:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")
        return Reduction(name, MPI.SUM, before=_factor(op), sums=True)
    if kind == dist.ReduceOp.AVG:
        return _average(name, dtype, size, compressed)
    operation = _OF_BOOLEANS[kind] if dtype == torch.bool else _OPS[kind]
    return Reduction(name, operation, sums=kind == dist.ReduceOp.SUM)


def _factor(op: Any) -> Multiplier:
    factor: Multiplier = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
    return factor.cpu() if isinstance(factor, torch.Tensor) else factor


def _average(name: str, dtype: torch.dtype, size: int, compressed: bool) -> Reduction:
    if dtype == torch.bool:
        raise ValueError(f"ReduceOp.{name} is not defined for {dtype}: use BAND or BOR, or convert to another type")
    if not (dtype.is_floating_point or dtype.is_complex):
        return Reduction(name, MPI.SUM, divisor=size)
    if dtype not in _HALVES or compressed:
        return Reduction(name, MPI.AVG, sums=True)
    power = 1 << (size - 1).bit_length()
    return Reduction(name, MPI.SUM, before=1 / power, after=None if power == size else power / size, sums=True)


def divide(values: torch.Tensor, divisor: int) -> None:
    """Divide integers in place, truncating toward zero."""
    if values.dtype in _UNSIGNED:  # torch cannot divide these
        array = values.numpy()
        array //= divisor
    else:
        torch.div(values, divisor, rounding_mode="trunc", out=values)
