"""PyTorch over softnic: the backend `softnic` of torch.distributed.

    import softnic.torch
    torch.distributed.init_process_group("softnic")     # under torchrun, mpirun or softnic run; then DDP, FSDP as usual

Reading order: launch; untraced, arguments, reduction, devices, staging, work, parts, engine, compression, sparse,
identity, backend, layers; then what users call: this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from softnic.autoload import register
from softnic.comm import Communicator, meet
from softnic.torch import launch
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import FLOOR_BYTES, Compression
from softnic.torch.layers import Layers, layers_hook
from softnic.torch.untraced import untraced

__all__ = ["communicator", "compress", "register"]

_MEETING_S = 60.0
"""How long ranks wait for each other, unless the group's timeout is shorter."""


def create(options: Any, _: Any = None) -> SoftnicGroup:
    """What torch calls for each group that this process is in."""
    launch.use_rays_nic()
    limit_s = min(_MEETING_S, options.timeout.total_seconds())
    comm = meet(options.store, options.group_rank, options.group_size, timeout_s=limit_s)
    return SoftnicGroup(comm, options.group_id or "world", options.timeout, options.store)


def _group(group: Any) -> SoftnicGroup:
    found = dist.group.WORLD if group is None else group
    if not isinstance(found, SoftnicGroup):
        raise ValueError(f"{found} is no process group of the backend softnic")
    return found


@untraced
def communicator(group: Any = None) -> Communicator:
    """The ranks of a process group (None: all) as a communicator of softnic.MPI, with connections of its own: what is
    called there and torch's calls do not wait for each other. All ranks of the group call this; later calls give the
    same communicator. Not for several threads at a time, unless all ranks agree on the order of their calls."""
    return _group(group).communicator()


@untraced
def compress(
    target: Any,
    codec: str | None,
    *,
    layers: Mapping[str, str | None] | None = None,
    floor_bytes: int = FLOOR_BYTES,
) -> None:
    """From now on, sums and means of floats cross the network compressed by `codec` ("bounded:10"; None: exactly), if
    they have at least `floor_bytes`. What is compressed, and what never is: softnic/torch/compression.py.

    `target` is a process group (None: the default one), or a DistributedDataParallel model. Of a model, only its
    gradients are meant, and `layers` may name other codecs for some of its parameters, by shell patterns of their
    names: {"fc3.*": None, "conv*": "bounded:8"}, the first that fits. All ranks call this, between the same calls.
    """
    if isinstance(target, DistributedDataParallel):
        state = Layers(_group(target.process_group), target, codec, layers or {}, floor_bytes)
        target.register_comm_hook(state, layers_hook)
    elif layers:
        raise ValueError("a process group sees no names of parameters: give `layers` with a DistributedDataParallel")
    else:
        _group(target).compression = Compression(codec, floor_bytes)


register()
