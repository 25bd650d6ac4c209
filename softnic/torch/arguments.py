"""Checks the arguments of process group calls, which torch passes in several forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import index
from types import NoneType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

DEVICES = ("cpu", "cuda")
"""Types of devices whose tensors may be passed."""
Tensor = torch.Tensor
Tensors = Sequence[Tensor]
OWN_TAG = 1 << 30
"""Tag of the messages of collectives. Applications use smaller tags."""


def tensor_list(tensors: Tensor | Tensors) -> list[Tensor]:
    """Return one tensor or several as a list.

    Raises TypeError for anything but dense tensors of a CPU or a GPU, NotImplementedError for quantized ones.
    """
    if not isinstance(tensors, (Tensor, Iterable)):
        raise TypeError(f"{type(tensors).__name__} where a tensor or a list of tensors is expected")
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in found:
        _check_tensor(tensor)
    return found


def _check_tensor(tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{type(tensor).__name__} where a tensor is expected")
    if tensor.is_quantized:
        raise NotImplementedError(f"a quantized tensor ({tensor.dtype}): send its int_repr() or dequantize()")
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "a nested tensor" if tensor.is_nested else f"a tensor with layout {tensor.layout}"
        raise TypeError(f"{kind}: only dense tensors can be sent")
    if isinstance(tensor, DTensor):
        raise TypeError("a DTensor: pass its to_local()")
    if tensor.device.type not in DEVICES:
        raise TypeError(f"a tensor of the device {tensor.device}: tensors of {' and '.join(DEVICES)} can be sent")


def writable(tensors: Iterable[Tensor]) -> None:
    """Check that results can be stored. Raises ValueError for tensors whose elements share memory."""
    for tensor in tensors:
        if any(stride == 0 and length > 1 for stride, length in zip(tensor.stride(), tensor.shape, strict=True)):
            raise ValueError("an expanded tensor cannot hold a result: its elements share memory; pass its clone()")


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
    check_type(call, [first], second)
    if first.numel() != second.numel() * times:
        text = f"{times} times {second.numel()}" if times > 1 else str(second.numel())
        raise ValueError(f"{call}: {first.numel()} elements where {text} are expected")


def check_type(call: str, tensors: Tensors, other: Tensor) -> None:
    """Check that tensors have the type of another."""
    for tensor in tensors:
        if tensor.dtype != other.dtype:
            raise TypeError(f"{call}: tensors of {tensor.dtype} and {other.dtype}")


def check_one_per_rank(call: str, tensors: Sequence[Any], size: int) -> None:
    """Check that there is one tensor for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{call}: {len(tensors)} tensors for {size} ranks")


def check_rank(name: str, rank: int, size: int) -> int:
    """Return a rank. Raises ValueError if it is not in the group, TypeError if it is no integer."""
    if not 0 <= index(rank) < size:
        raise ValueError(f"{name} {rank}: a rank of 0..{size - 1} is expected")
    return index(rank)


def check_tag(tag: int) -> int:
    """Return an application's tag. Raises ValueError if it is out of range."""
    if not 0 <= index(tag) < OWN_TAG:
        raise ValueError(f"tag {tag}: an integer of 0..2^30-1 is expected")
    return index(tag)


def split(name: str, tensor: Tensor, sizes: Sequence[int] | None, ranks: int) -> tuple[Tensor, ...]:
    """Split a tensor along its first dimension: one part for each rank, equal or of the given sizes."""
    length = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if length % ranks:
            raise ValueError(f"the {name} has {length} rows, not a multiple of the {ranks} ranks")
        sizes = [length // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != length or min(sizes) < 0:
        raise ValueError(f"split sizes {list(sizes)} do not fit {ranks} ranks and {length} rows of the {name}")
    return torch.split(tensor, list(sizes)) if tensor.dim() else (tensor,)


def reduce_op(options: Any) -> Any:
    """Return the operation, given as such or in options. Default: SUM."""
    if options is None or isinstance(options, timedelta):
        return dist.ReduceOp.SUM
    return getattr(options, "reduceOp", options)


def root_of(options: Any, size: int) -> int:
    """Return the root, given as such or in options. Default: 0. Raises ValueError if it is not in the group."""
    if getattr(options, "rootTensor", 0) != 0:
        raise ValueError(f"root tensor {options.rootTensor}: a process has one tensor")
    root = 0 if options is None else getattr(options, "rootRank", options)
    return check_rank("root", root, size)


def seconds(options: Any, timeout: timedelta | None, default_s: float) -> float:
    """Return the timeout of a call, given as such or in options, or the group's. A negative one is not set."""
    in_options = options if isinstance(options, timedelta) else getattr(options, "timeout", None)
    given = in_options if timeout is None else timeout
    if not isinstance(given, (timedelta, NoneType)):
        raise TypeError(f"timeout {given!r}: a datetime.timedelta is expected")
    return given.total_seconds() if given is not None and given > timedelta(0) else default_s
