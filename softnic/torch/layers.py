"""Compression of a DistributedDataParallel model by layers, as its communication hook.

1. Each parameter gets the codec of the first pattern of `layers` that its name matches, or the general one. Gradients
of fewer than `floor_bytes` are exact: biases and normalisation are sensitive, and gain nothing.
2. When a bucket is ready, its gradients are divided by the number of ranks, as in DDP without a hook.
3. One all-reduce sums all gradients of the bucket with the same codec, another one the exact gradients. In the first
`warmup` steps all gradients are exact.

Without a codec the result equals DDP without a hook, bit for bit. With one codec for all layers, prefer the compression
of the process group (compression.py), which sums each bucket in one call.
"""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, but not in its __all__
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import DeviceUse, codec_name, floor_of
from softnic.torch.trials import Trials
from softnic.torch.untraced import untraced

_SHOWN = 8
"""Number of parameter names in an error."""


@dataclass
class LayerCodecs:
    """The state of the hook: the codec of each parameter's gradient."""

    group: SoftnicGroup
    model: InitVar[DistributedDataParallel]
    codec: str | None
    patterns: Mapping[str, str | None]
    """Codecs by shell patterns of parameter names ("fc*.weight"); None: exact."""
    floor_bytes: int
    warmup: int = 0
    """Number of steps of which the gradients are exact."""
    trials: Trials | None = None
    """Choose the codec, after `warmup`."""
    use: DeviceUse = field(default_factory=DeviceUse)
    steps: int = 0
    """Back-propagations so far."""
    codecs: dict[int, str | None] = field(init=False)
    """Codecs by id() of the parameters."""

    def __post_init__(self, model: DistributedDataParallel) -> None:
        """Assign codecs. Raises ValueError for an invalid codec or pattern, or a pattern without a match."""
        self.codec, self.floor_bytes = codec_name(self.codec), floor_of(self.floor_bytes)
        names = [name for name, _ in model.module.named_parameters()]
        self.patterns = {_pattern(each): codec_name(codec) for each, codec in self.patterns.items()}
        unused = [each for each in self.patterns if not any(fnmatchcase(name, each) for name in names)]
        if unused:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ValueError(f"layers: no parameter's name matches {', '.join(unused)}; the model has {shown}")
        self.parameters = list(model.module.named_parameters())
        self._assign()

    def begin(self, *, exact: bool) -> None:
        """Begin a step."""
        if self.trials is not None and not exact:
            way = self.trials.next_step()
            if (self.codec, self.use) != (way.compression.codec, way.compression.use):
                self.codec, self.use = way.compression.codec, way.compression.use
                self._assign()

    def _assign(self) -> None:
        self.codecs = {id(each): self._codec_for(name, each) for name, each in self.parameters}

    def _codec_for(self, name: str, parameter: torch.Tensor) -> str | None:
        if not parameter.is_floating_point() or parameter.numel() * parameter.element_size() < self.floor_bytes:
            return None
        return next((codec for pattern, codec in self.patterns.items() if fnmatchcase(name, pattern)), self.codec)


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError(f"layers: {pattern!r} is not a pattern: a str as in 'fc*.weight' is expected")
    return pattern


_states: WeakKeyDictionary[DistributedDataParallel, LayerCodecs] = WeakKeyDictionary()
"""By model: torch takes one hook of a model."""


def compress_layers(model: DistributedDataParallel, state: LayerCodecs) -> None:
    """Compress the gradients of a model by a state made for it, in place of an earlier one."""
    registered = _states.get(model)
    if registered is None:
        model.register_comm_hook(state, layers_hook)
        _states[model] = state
    else:
        vars(registered).update(vars(state))


@untraced
def layers_hook(state: LayerCodecs, bucket: GradBucket) -> Future[torch.Tensor]:
    """Sum the gradients of a bucket, each by its codec. Passed to `register_comm_hook`."""
    buffer = bucket.buffer()
    buffer.div_(state.group.size())
    by_codec: dict[str | None, list[torch.Tensor]] = {}
    exact = state.steps < state.warmup
    if bucket.index() == 0:
        state.begin(exact=exact)
    state.steps += bucket.is_last()
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        by_codec.setdefault(None if exact else state.codecs[id(parameter)], []).append(gradient)
    work = state.group.sum_by_codec(by_codec, buffer, state.use)
    return work.get_future().then(lambda future: future.value()[0])
