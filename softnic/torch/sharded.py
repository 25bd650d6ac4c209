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
from softnic.torch.trials import Trials, trials_of
from softnic.torch.untraced import untraced
from softnic.torch.work import SoftnicWork
from softnic.torch_private import shard_meshes


class ChosenCompression:
    """The compression of a model's exchanges that trials choose: one for each step."""

    def __init__(self, trials: Trials) -> None:
        self.compression = EXACT
        self._trials = trials
        self._first: GradientScatter | None = None
        """The first one that is called in each step."""

    def begin(self, scatter: GradientScatter) -> None:
        """Note that a module's gradients are ready."""
        self._first = self._first or scatter
        if scatter is self._first:
            self.compression = self._trials.next_step().compression


class _ShardExchange:
    """What both exchanges of a sharded module have in common: the shape of torch's AllGather and ReduceScatter.

    FSDP2 does not ask for their classes, which have no public name.
    """

    def __init__(self, compression: Compression, chosen: ChosenCompression | None = None) -> None:
        self._given = compression
        self._chosen = chosen

    @property
    def _compression(self) -> Compression:
        return self._given if self._chosen is None else self._chosen.compression

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

    def __init__(
        self,
        compression: Compression,
        warmup: int,
        replicas: Sequence[SoftnicGroup],
        chosen: ChosenCompression | None = None,
    ) -> None:
        super().__init__(compression, chosen)
        self._exact_steps = warmup
        self._replicas = replicas
        self._of_replicas: Compression | None = None
        """What is set for them."""
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
        if self._chosen is not None:
            self._chosen.begin(self)
        self._compress_replicas(self._compression)
        return self._compression

    def _compress_replicas(self, by: Compression) -> None:
        if by != self._of_replicas:
            self._of_replicas = by
            for group in self._replicas:
                group.compression = Compression(by.codec, by.floor_bytes, use=by.use)


def _wait(work: SoftnicWork) -> None:
    work.wait()


def choose_for_shards(model: torch.nn.Module, floor_bytes: int, warmup: int) -> None:
    """Have the compression of a model with sharded modules chosen by trials. Raises ValueError if there are none."""
    sharded = _sharded(model)
    group = next(group for module in sharded for group in _groups(module, "shard_process_group"))
    _set(sharded, EXACT, warmup, ChosenCompression(trials_of(group, model, floor_bytes, "exact:32")))


def compress_shards(model: torch.nn.Module, compression: Compression, warmup: int) -> None:
    """Compress the weights of a model with sharded modules, and after `warmup` steps the gradients.

    Raises ValueError if there are none.
    """
    _set(_sharded(model), compression, warmup, None)


def _sharded(model: torch.nn.Module) -> list[FSDPModule]:
    """Return the sharded modules of a model. Raises ValueError if there are none, or over another backend."""
    sharded: list[FSDPModule] = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise ValueError(
            f"a {type(model).__name__} is neither a DistributedDataParallel model nor sharded: call fully_shard before"
        )
    groups = [group for module in sharded for group in _groups(module)]
    for group in groups:
        if not isinstance(group, SoftnicGroup):
            raise ValueError(f"the model is sharded over a process group of the backend {dist.get_backend(group)}")
    return sharded


def _set(
    sharded: Sequence[FSDPModule], compression: Compression, warmup: int, chosen: ChosenCompression | None
) -> None:
    for module in sharded:
        module.set_custom_all_gather(ShardGather(compression, chosen))  # type: ignore[arg-type]
        replicas = list(_groups(module, "replicate_process_group"))
        scatter = GradientScatter(compression, warmup, replicas, chosen)
        module.set_custom_reduce_scatter(scatter)  # type: ignore[arg-type]


def _groups(module: FSDPModule, *names: str) -> Iterator[Any]:
    """Yield the process groups with these names, or all, of a sharded module."""
    for mesh in shard_meshes(module):
        for name in names or ("shard_process_group", "replicate_process_group"):
            group = getattr(mesh, name, None)
            if group is not None:
                yield group
