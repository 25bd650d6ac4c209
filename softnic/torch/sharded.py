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

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import EXACT, Compression
from softnic.torch.untraced import untraced
from softnic.torch.work import SoftnicWork
from softnic.torch_private import shard_meshes


class _ShardExchange:
    """What both exchanges of a sharded module have in common: the shape of torch's AllGather and ReduceScatter.

    FSDP2 does not ask for their classes, which have no public name.
    """

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class ShardGather(_ShardExchange):
    """The all-gather of a sharded module's weights."""

    @untraced
    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        assert isinstance(group, SoftnicGroup)
        work = group.gather_shards(output_tensor, input_tensor, self._compression)
        return work if async_op else _wait(work)


class GradientScatter(_ShardExchange):
    """The reduce-scatter of a sharded module's gradients, exact in the first `warmup` steps.

    With replicas their groups sum the gradients afterwards, and are compressed from the same step on.
    """

    def __init__(self, compression: Compression, warmup: int, replicas: Sequence[SoftnicGroup]) -> None:
        super().__init__(compression)
        self._exact_steps = warmup
        self._replicas = replicas
        """Those whose compression is to be set yet."""
        self._compress_replicas(EXACT if warmup else compression)

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
        work = group.scatter_sum(output_tensor, input_tensor, op, self._next())
        return work if async_op else _wait(work)

    def _next(self) -> Compression:
        """Return the compression of this step's sum, and set that of the replicas' sum after it."""
        if self._exact_steps:
            self._exact_steps -= 1
            return EXACT
        self._compress_replicas(self._compression)
        self._replicas = ()
        return self._compression

    def _compress_replicas(self, by: Compression) -> None:
        for group in self._replicas:
            group.compression = Compression(by.codec, by.floor_bytes)


def _wait(work: SoftnicWork) -> None:
    work.wait()


def compress_shards(model: torch.nn.Module, compression: Compression, warmup: int) -> None:
    """Compress the weights of a model with sharded modules, and after `warmup` steps the gradients.

    Raises ValueError if there are none.
    """
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
        module.set_custom_all_gather(ShardGather(compression))  # type: ignore[arg-type]
        replicas = list(_groups(module, "replicate_process_group"))
        module.set_custom_reduce_scatter(GradientScatter(compression, warmup, replicas))  # type: ignore[arg-type]


def _groups(module: FSDPModule, *names: str) -> Iterator[Any]:
    """Yield the process groups with these names, or all, of a sharded module."""
    for mesh in shard_meshes(module):
        for name in names or ("shard_process_group", "replicate_process_group"):
            group = getattr(mesh, name, None)
            if group is not None:
                yield group
