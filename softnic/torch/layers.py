"""Compression of a DistributedDataParallel model, layer by layer, as its communication hook.

1. Each parameter has a codec: that of the first pattern of `layers` that its name fits, or the general one; none, if
   its gradient has fewer bytes than `floor_bytes` (biases, normalisation: nothing to gain, and they are sensitive).
2. When a bucket is ready its gradients are divided by the number of ranks, as DDP does without a hook.
3. All gradients of the bucket with one codec are summed as one all-reduce by it, the others exactly.

Without any codec this gives the bits of DDP without a hook. It is not worth it where one codec does for all layers:
a process group's own compression (compression.py) sums each bucket in one piece, and without this detour.
"""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import codec_name, floor_of
from softnic.torch.untraced import untraced

_SHOWN = 8
"""Names of parameters in an error."""


@dataclass
class Layers:
    """The hook's state: by parameter, the codec of its gradient."""

    group: SoftnicGroup
    model: DistributedDataParallel
    codec: str | None
    patterns: Mapping[str, str | None]
    """By shell pattern of a parameter's name ("fc*.weight"), the codec; None: exactly."""
    floor_bytes: int
    codecs: dict[int, str | None] = field(init=False)
    """By the parameter's identity."""

    def __post_init__(self) -> None:
        """Raises ValueError for what is no codec, no pattern, or a pattern that no parameter's name matches."""
        self.codec, self.floor_bytes = codec_name(self.codec), floor_of(self.floor_bytes)
        names = [name for name, _ in self.model.module.named_parameters()]
        self.patterns = {_pattern(each): codec_name(codec) for each, codec in self.patterns.items()}
        unused = [each for each in self.patterns if not any(fnmatchcase(name, each) for name in names)]
        if unused:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ValueError(f"layers: no parameter's name matches {', '.join(unused)}; the model has {shown}")
        self.codecs = {id(each): self._codec_for(name, each) for name, each in self.model.module.named_parameters()}

    def _codec_for(self, name: str, parameter: torch.Tensor) -> str | None:
        if not parameter.is_floating_point() or parameter.numel() * parameter.element_size() < self.floor_bytes:
            return None
        return next((codec for pattern, codec in self.patterns.items() if fnmatchcase(name, pattern)), self.codec)


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError(f"layers: {pattern!r} is no pattern: a str as in 'fc*.weight' is expected")
    return pattern


@untraced
def layers_hook(state: Layers, bucket: GradBucket) -> Future[torch.Tensor]:
    """For `register_comm_hook`."""
    buffer = bucket.buffer()
    buffer.div_(state.group.size())
    by_codec: dict[str | None, list[torch.Tensor]] = {}
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        by_codec.setdefault(state.codecs[id(parameter)], []).append(gradient)
    work = state.group.sum_by_codec(by_codec, buffer)
    return work.get_future().then(lambda future: future.value()[0])
