"""What torch hands to a process group, checked, whatever form it has: a tensor or a list of one, options or values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Tensors = Sequence[Tensor]
OWN_TAG = 1 << 30
"""Of the messages that collectives are made of. Programs' tags are smaller."""


def listed(tensors: Tensor | Tensors) -> list[Tensor]:
    """One tensor or several."""
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{type(tensor).__name__} where a tensor is expected")
        if tensor.layout != torch.strided:
            raise TypeError(f"a tensor with layout {tensor.layout}: only dense tensors can be sent")
    return found


def single(tensors: Tensor | Tensors) -> Tensor:
    """The tensor that a call is about."""
    found = listed(tensors)
    if len(found) != 1:
        raise ValueError(f"{len(found)} tensors where one is expected: a process has one device of a group")
    return found[0]


def rows(tensors: Sequence[Any]) -> list[Tensor]:
    """A list of tensors, or what torch makes of it: a list of one list for each device."""
    return listed(tensors if not tensors or isinstance(tensors[0], Tensor) else tensors[0])


def by_type(tensors: Tensors) -> Iterable[list[Tensor]]:
    """Groups of tensors that can travel as one: of a type, in the order of the first of each."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return groups.values()


def alike(call: str, first: Tensor, second: Tensor, times: int = 1) -> None:
    """`first` holds `second` so many times, and both have elements of one type."""
    if first.dtype != second.dtype:
        raise TypeError(f"{call}: tensors of {first.dtype} and {second.dtype}")
    if first.numel() != second.numel() * times:
        text = f"{times} times {second.numel()}" if times > 1 else str(second.numel())
        raise ValueError(f"{call}: {first.numel()} elements where {text} are expected")


def one_each(call: str, tensors: Sequence[Any], size: int) -> None:
    """A tensor for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{call}: {len(tensors)} tensors for {size} ranks")


def peer(what: str, rank: int, size: int) -> int:
    if not 0 <= rank < size:
        raise ValueError(f"{what} {rank}: a rank of 0..{size - 1} is expected")
    return rank


def user_tag(tag: int) -> int:
    if not 0 <= tag < OWN_TAG:
        raise ValueError(f"tag {tag}: an integer of 0..2^30-1 is expected")
    return tag


def split(what: str, tensor: Tensor, sizes: Sequence[int] | None, ranks: int) -> tuple[Tensor, ...]:
    """The parts of a tensor along its first dimension, one a rank: equal ones, or of the sizes given."""
    length = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if length % ranks:
            raise ValueError(f"the {what} has {length} rows, no multiple of the {ranks} ranks")
        sizes = [length // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != length:
        raise ValueError(f"split sizes {list(sizes)} do not fit {ranks} ranks and {length} rows of the {what}")
    return torch.split(tensor, list(sizes)) if tensor.dim() else (tensor,)


def reduce_op(options: Any) -> Any:
    """Of options, or the operation itself; None is SUM."""
    if options is None:
        return dist.ReduceOp.SUM
    return getattr(options, "reduceOp", options)


def root_of(options: Any) -> int:
    """Of options, or the rank itself."""
    return int(getattr(options, "rootRank", options))


def seconds(options: Any, timeout: timedelta | None, default_s: float) -> float:
    """The time that a call may take: its own, or the group's. Options that name none have a negative one."""
    given = timeout if timeout is not None else getattr(options, "timeout", None)
    return given.total_seconds() if given is not None and given > timedelta(0) else default_s
