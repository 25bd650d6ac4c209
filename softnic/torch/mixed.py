"""Groups whose tensors other backends serve for some types of devices, as in "cpu:gloo,cuda:softnic".

torch gives a group of softnic the calls for tensors of all devices, as softnic's group is no part of another group.
So a mixed group has groups of the other backends, and passes calls on by the device of the first tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from softnic.torch.backend import SoftnicGroup
from softnic.torch.untraced import untraced
from softnic.torch_backend import NAME
from softnic.torch_private import nccl_backend, unlisted_group

_CALLS = (
    "allreduce", "allreduce_coalesced", "reduce", "broadcast", "allgather", "allgather_coalesced", "_allgather_base",
    "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "send", "recv", "recv_anysource", "gather", "gather_single",
    "gather_into_tensor", "scatter", "alltoall", "alltoall_base", "all_to_all_single",
)  # fmt: skip
"""Calls of a process group that take tensors."""


class MixedGroup(SoftnicGroup):
    """A group of softnic with groups of other backends, by the type of the devices that they serve."""

    def __init__(self, *given: Any, others: Mapping[str, dist.ProcessGroup]) -> None:
        """`given` is for SoftnicGroup."""
        super().__init__(*given)
        self.others = others

    def shutdown(self) -> None:
        super().shutdown()
        for other in self.others.values():
            other.shutdown()

    def abort(self) -> None:
        super().abort()
        for other in self.others.values():
            other.abort()


def _passed_on(name: str) -> Callable[..., Any]:
    def call(group: MixedGroup, *arguments: Any, **more: Any) -> Any:
        tensor = next(_tensors((*arguments, *more.values())), None)
        other = None if tensor is None else group.others.get(tensor.device.type)
        own = getattr(super(MixedGroup, group), name)
        return (own if other is None else getattr(other, name))(*arguments, **more)

    return untraced(call)


for _name in _CALLS:
    setattr(MixedGroup, _name, _passed_on(_name))


def _tensors(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments of a call."""
    for each in arguments:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)


def other_groups(
    requested: Mapping[str, str], store: Store, rank: int, size: int, timeout: timedelta
) -> dict[str, dist.ProcessGroup]:
    """Return a group for each type of device that another backend is requested for.

    Raises ValueError for backends other than Gloo and NCCL.
    """
    found = {}
    for device, backend in requested.items():
        if backend == NAME:
            continue
        prefixed = PrefixStore(f"softnic/{device}", store)
        made = _backend(device, backend, prefixed, rank, size, timeout)
        found[device] = unlisted_group(made, prefixed, torch.device(device))
    return found


def _backend(device: str, name: str, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a new backend. Raises ValueError."""
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    if name == "nccl":
        return nccl_backend(store, rank, size, timeout)
    raise ValueError(
        f"backend '{device}:{name}': beside softnic there can be gloo and nccl; make another group for {name}: "
        f"new_group(backend={name!r})"
    )
