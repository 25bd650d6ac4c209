"""Checks the arguments of process group calls, which torch passes in several forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Tensors = Sequence[Tensor]
OWN_TAG = 1 << 30
"""Tag of the messages of collectives. Applications use smaller tags."""


def tensor_list(tensors: Tensor | Tensors) -> list[Tensor]:
    """Return one tensor or several as a list. Raises TypeError for anything but dense tensors."""
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{type(tensor).__name__} where a tensor is expected")
        if tensor.layout != torch.strided:
            raise TypeError(f"a tensor with layout {tensor.layout}: only dense tensors can be sent")
    return found


def only_tensor(tensors: Tensor | Tensors) -> Tensor:
    """Return the tensor of a call that takes one."""
    found = tensor_list(tensors)
    if len(found) != 1:
        raise ValueError(f"{len(found)} tensors where one is expected: a process has one device of a group")
    return found[0]


def flat_list(tensors: Sequence[Any]) -> list[Tensor]:
    """Return a list of tensors, given as such or, as torch does, in a list with one list for each device."""
    return tensor_list(tensors if not tensors or isinstance(tensors[0], Tensor) else tensors[0])


def by_type(tensors: Tensors) -> Iterable[list[Tensor]]:
    """Return the tensors in groups of one type, in the order of each type's first tensor."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return groups.values()


def check_alike(call: str, first: Tensor, second: Tensor, times: int = 1) -> None:
    """Check that `first` has the type of `second` and `times` its elements."""
    if first.dtype != second.dtype:
        raise TypeError(f"{call}: tensors of {first.dtype} and {second.dtype}")
    if first.numel() != second.numel() * times:
        text = f"{times} times {second.numel()}" if times > 1 else str(second.numel())
        raise ValueError(f"{call}: {first.numel()} elements where {text} are expected")


def check_one_per_rank(call: str, tensors: Sequence[Any], size: int) -> None:
    """Check that there is one tensor for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{call}: {len(tensors)} tensors for {size} ranks")


def check_rank(name: str, rank: int, size: int) -> int:
    """Return a rank. Raises ValueError if it is not in the group."""
    if not 0 <= rank < size:
        raise ValueError(f"{name} {rank}: a rank of 0..{size - 1} is expected")
    return rank


def check_tag(tag: int) -> int:
    """Return an application's tag. Raises ValueError if it is out of range."""
    if not 0 <= tag < OWN_TAG:
        raise ValueError(f"tag {tag}: an integer of 0..2^30-1 is expected")
    return tag


def split(name: str, tensor: Tensor, sizes: Sequence[int] | None, ranks: int) -> tuple[Tensor, ...]:
    """Split a tensor along its first dimension: one part for each rank, equal or of the given sizes."""
    length = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if length % ranks:
            raise ValueError(f"the {name} has {length} rows, not a multiple of the {ranks} ranks")
        sizes = [length // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != length:
        raise ValueError(f"split sizes {list(sizes)} do not fit {ranks} ranks and {length} rows of the {name}")
    return torch.split(tensor, list(sizes)) if tensor.dim() else (tensor,)


def reduce_op(options: Any) -> Any:
    """Return the operation, given as such or in options. Default: SUM."""
    if options is None:
        return dist.ReduceOp.SUM
    return getattr(options, "reduceOp", options)


def root_of(options: Any) -> int:
    """Return the root, given as such or in options."""
    return int(getattr(options, "rootRank", options))


def seconds(options: Any, timeout: timedelta | None, default_s: float) -> float:
    """Return the timeout of a call, or the group's. A negative one in options is not set."""
    given = timeout if timeout is not None else getattr(options, "timeout", None)
    return given.total_seconds() if given is not None and given > timedelta(0) else default_s
