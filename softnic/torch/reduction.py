"""torch's ReduceOps as a communicator does them.

SUM, PRODUCT, MIN and MAX are the NICs'. The others are made of these: BAND, BOR and BXOR of what all ranks have,
gathered; PREMUL_SUM of contributions that were multiplied before; AVG of 16-bit floats of contributions that were made
smaller by a power of two before, so that no partial sum overflows where the mean does not.

AVG of integers is NCCL's (FuncSumPostDiv::divide in its src/device/reduce_kernel.h): the sum, which wraps around in the
element type, divided by the number of ranks and truncated toward zero. As in torch's ProcessGroupNCCL, booleans have no
AVG, and only floats have PREMUL_SUM.
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
Fold = Callable[..., torch.Tensor]
"""Of two tensors, to `out`."""
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
"""What can be computed with. Other types are moved only."""
_HALVES = (torch.float16, torch.bfloat16)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Reduction:
    """What to do with the elements of all ranks."""

    name: str
    op: MPI.Op | None
    """What NICs do; None: nothing, the contributions of all are gathered and folded here."""
    fold: Fold | None = None
    before: Multiplier | None = None
    """Every contribution is multiplied by it."""
    after: Multiplier | None = None
    """The result is multiplied by it."""
    divisor: int = 1
    """The result, of integers, is divided by it and truncated toward zero."""
    sums: bool = False
    """Of gradients, perhaps: a codec may round them."""


def reduction_of(op: Any, dtype: torch.dtype, size: int, *, compressed: bool = False) -> Reduction:
    """`op` for elements of this type on `size` ranks. `compressed`: by a codec, which widens halves to float32.

    Raises ValueError where it is not defined for them.
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
        raise ValueError(f"{op} is no ReduceOp that softnic knows")
    if dtype.is_complex and _OPS[kind] in (MPI.MIN, MPI.MAX):
        raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")
    if kind == dist.ReduceOp.PREMUL_SUM:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")
        return Reduction(name, MPI.SUM, before=_factor(op), sums=True)
    if kind == dist.ReduceOp.AVG:
        return _average(name, dtype, size, compressed)
    return Reduction(name, _OPS[kind], sums=kind == dist.ReduceOp.SUM)


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
    """Divides integers in place and truncates toward zero."""
    if values.dtype in _UNSIGNED:  # torch cannot divide these
        array = values.numpy()
        array //= divisor
    else:
        torch.div(values, divisor, rounding_mode="trunc", out=values)
