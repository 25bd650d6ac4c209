"""Compression of a model that `fully_shard` has sharded (FSDP2), both ways.

1. Forward and backward: the shards of the weights are gathered by the codec `weights`, lossless as a rule, in the type
   that the mixed precision policy gives them.
2. Backward: the gradients' reduce-scatter, and with replicas (HSDP) the all-reduce after it, have the
   codec `gradients`.

FSDP2 takes both calls as objects of each sharded module. Its all-reduce between replicas has no such object: the
compression of the replicas' process group is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import Compression
from softnic.torch.untraced import untraced
from softnic.torch.work import SoftnicWork


class _ShardExchange:
    """What both exchanges of a sharded module have in common."""

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class ShardGather(_ShardExchange, AllGather):
    """The all-gather of a sharded module's weights."""

    @untraced
    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        assert isinstance(group, SoftnicGroup)
        work = group.gather_shards(output_tensor, input_tensor, self._compression)
        return work if async_op else _wait(work)


class GradientScatter(_ShardExchange, ReduceScatter):
    """The reduce-scatter of a sharded module's gradients."""

    @untraced
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        assert isinstance(group, SoftnicGroup)
        work = group.scatter_sum(output_tensor, input_tensor, op, self._compression)
        return work if async_op else _wait(work)


def _wait(work: SoftnicWork) -> None:
    work.wait()


def compress_shards(model: torch.nn.Module, compression: Compression) -> None:
    """Compress the gradients and weights of a model with sharded modules. Raises ValueError if there are none."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise ValueError(
            f"a {type(model).__name__} is neither a DistributedDataParallel model nor sharded: call fully_shard before"
        )
    groups = [group for module in sharded for group in _groups(module)]
    for group in groups:
        if not isinstance(group, SoftnicGroup):
            raise ValueError(f"the model is sharded over a process group of the backend {dist.get_backend(group)}")
    for module in sharded:
        module.set_custom_all_gather(ShardGather(compression))
        module.set_custom_reduce_scatter(GradientScatter(compression))
        for replicas in _groups(module, "replicate_process_group"):
            replicas.compression = Compression(compression.codec, compression.floor_bytes)


def _groups(module: FSDPModule, *names: str) -> Iterator[Any]:
    """Yield the process groups with these names, or all, of a sharded module."""
    for parameters in module._get_fsdp_state()._fsdp_param_groups:
        for name in names or ("shard_process_group", "replicate_process_group"):
            group = getattr(parameters.mesh_info, name, None)
            if group is not None:
                yield group
