"""PyTorch over softnic: the backend `softnic` of torch.distributed.

    import softnic.torch
    torch.distributed.init_process_group("softnic")     # under torchrun, mpirun or softnic run; then DDP, FSDP as usual

Reading order: launch, untraced, arguments, reduction, devices, staging, exec_context, flight_recorder, traffic,
work, joined, work_items, group_thread, unencoded, encoded, message_rounds, exchange, hosts, local_nccl, local_memory,
local, local_sum, shards, device_codecs, device_items, compression, sparse, identity, backend, reconfigurable, mixed,
trials, layers, sharded, and the public functions below; hooks, outer_steps.
"""

from __future__ import annotations

import errno
import pickle
import resource
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch

from softnic.torch_private import check_release, requested_backends

check_release(torch.__version__)

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from softnic.codecs import Codec
from softnic.comm.errors import CommError
from softnic.comm.messages import CHANNELS
from softnic.mpi.communicator import Communicator, init_communicator
from softnic.torch import launch
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import (
    FLOOR_BYTES,
    UNSET,
    Compression,
    Unset,
    codec_name,
    copy_codec_name,
    floor_of,
    warmup_of,
)
from softnic.torch.flight_recorder import recorder
from softnic.torch.joined import keep_works
from softnic.torch.layers import LayerCodecs, compress_layers
from softnic.torch.mixed import MixedGroup, other_groups
from softnic.torch.reconfigurable import Reconfigurable
from softnic.torch.sharded import choose_for_shards, compress_shards
from softnic.torch.traffic import GroupStats
from softnic.torch.trials import trials_of
from softnic.torch.untraced import untraced
from softnic.torch_backend import register_backend

__all__ = ["GroupStats", "communicator", "compress", "dump_fr_trace", "register", "stats"]

_CONNECT_S = 60.0
"""Time limit for ranks to connect, unless the group's timeout is shorter."""
_OTHER_FILES = 6
"""Open files of a group beside its connections: work queue, heartbeat, registered memory, events."""


def create(options: Any, _: Any = None) -> SoftnicGroup:
    """Create a process group of this process for torch.

    Raises
    ------
    DistBackendError
        If the ranks cannot connect or a NIC fails, as later from calls of the group.
    ValueError
        If another backend than Gloo and NCCL is to serve some devices beside softnic.
    """
    launch.use_rays_nic()
    rank, size = options.group_rank, options.group_size
    others = other_groups(requested_backends(), options.store, rank, size, options.timeout)
    comm = connected(options.store, rank, size, options.timeout, "init_process_group")
    given = comm, options.group_id or "world", options.timeout, options.store
    return MixedGroup(*given, others=others) if others else SoftnicGroup(*given)


def connected(store: Any, rank: int, size: int, timeout: timedelta, call: str) -> Communicator:
    """Return a communicator of ranks that meet by a store, within a timeout.

    Raises
    ------
    DistBackendError
        If they cannot connect; its text begins with the name of the call.
    """
    try:
        return init_communicator(store, rank, size, timeout_s=min(_CONNECT_S, timeout.total_seconds()))
    except CommError as error:
        raise dist.DistBackendError(f"{call}: {error}{_advice(error, size)}") from error


def _advice(error: CommError, size: int) -> str:
    """Return what to do if this process has too many open files, which is what many groups come to."""
    if getattr(error.__cause__, "errno", None) != errno.EMFILE:
        return ""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f": a group of {size} ranks takes about {CHANNELS * (size - 1) + _OTHER_FILES} files of each process, which "
        f"may have {limit}: raise the limit (ulimit -n)"
    )


def present_group(group: Any) -> SoftnicGroup:
    """Return the group of the backend softnic that a process group is, or has now. Raises ValueError."""
    found = dist.group.WORLD if group is None else group
    if isinstance(found, SoftnicGroup):
        return found
    if isinstance(found, Reconfigurable):
        return found.present_group()
    text = f"{found!r} is not a process group of the backend softnic"
    if found is None:
        text = "there is no process group: call torch.distributed.init_process_group('softnic') first"
    elif found is dist.GroupMember.NON_GROUP_MEMBER:
        text = "this process is not a member of the process group"
    elif isinstance(found, torch.nn.Module):
        text = f"a {type(found).__name__} is not a process group"
    elif isinstance(found, DeviceMesh):
        text = "a device mesh has a process group for each dimension: give mesh.get_group(dimension)"
    elif isinstance(found, dist.ProcessGroup):
        text = f"the process group is of the backend {dist.get_backend(found)}, not of softnic"
    raise ValueError(text)


@untraced
def communicator(group: Any = None) -> Communicator:
    """Return a communicator of softnic.MPI with the ranks of a process group.

    All ranks of the group call this; later calls return the same communicator. It has connections of its own: its calls
    and torch's do not wait for each other.

    Parameters
    ----------
    group : ProcessGroup, optional
        A process group of the backend softnic. Default: all ranks.

    Returns
    -------
    Communicator
        It ends with the group. Several threads may use it only if all ranks agree on the order of their calls.

    Raises
    ------
    ValueError
        If `group` is not a process group of the backend softnic.
    """
    return present_group(group).communicator()


@untraced
def compress(
    target: Any,
    codec: str | Codec | Unset | None = UNSET,
    *,
    gradients: str | Codec | None = None,
    weights: str | Codec | None = None,
    layers: Mapping[str, str | None] | None = None,
    floor_bytes: int = FLOOR_BYTES,
    warmup: int = 0,
) -> None:
    """Compress sums of floats and copies of weights: compression.py and sharded.py say in which calls.

    All ranks of the group call this between the same calls. A later call replaces the settings of an earlier one.
    ``compress(model)``, without a codec, chooses in the first steps after `warmup`, by their length, if gradients are
    compressed, where, and in pieces of which size (trials.py). Rank 0 says once on its standard error what was chosen.

    Parameters
    ----------
    target : ProcessGroup, torch.nn.Module or None
        A process group; None is the default one. Of a model that `fully_shard` has sharded, or in
        DistributedDataParallel, only its own exchanges are compressed, whatever the compression of its group.
        For a device mesh, pass the group of one dimension: `mesh.get_group(dimension)`.
    codec, gradients : str, Codec or None
        The codec of sums and means, as in "rht:4"; `gradients` is its name beside `weights`. "either": bounded:10 or
        rht:4, by what each sum's data is. None, or no codec for anything but a model: exact.
    weights : str, Codec or None
        The codec of all_gather and broadcast. "exact:16" and "exact:32" keep every bit, of elements of any width;
        others round weights. None: not encoded. DistributedDataParallel broadcasts when it is created: compress its
        group before.
    layers : mapping of str to codec, optional
        For DistributedDataParallel: codecs of gradients by shell patterns of their parameters' names, as in
        {"fc3.*": None, "conv*": "bounded:8"}. The first pattern that matches applies.
    floor_bytes : int
        Calls with fewer bytes are exact.
    warmup : int
        For models: the number of steps, from this call on, of which the gradients are exact.

    Raises
    ------
    ValueError
        For an argument of another type, an unknown codec, a pattern that matches no parameter, another model, or a
        process group of another backend. The settings are unchanged then.
    """
    if isinstance(target, torch.nn.Module) and (codec, gradients, weights, layers) == (UNSET, None, None, None):
        _choose(target, floor_of(floor_bytes), warmup_of(warmup))
        return
    codec = None if codec is UNSET else codec
    if codec is not None and gradients is not None:
        raise ValueError("codec and gradients are two names of one argument: give one of them")
    if layers is not None and not isinstance(layers, Mapping):
        raise ValueError(f"layers is {layers!r}: a dict of patterns and codecs is expected")
    sums = codec_name(gradients if codec is None else codec)
    _apply(target, Compression(sums, floor_bytes, copy_codec_name(weights)), layers or {}, warmup_of(warmup))


def _choose(model: torch.nn.Module, floor_bytes: int, warmup: int) -> None:
    """Have the compression of a model chosen in its first steps."""
    if isinstance(model, DistributedDataParallel):
        group = present_group(model.process_group)
        trials = trials_of(group, model, floor_bytes)
        compress_layers(model, LayerCodecs(group, model, None, {}, floor_bytes, warmup, trials))
    else:
        choose_for_shards(model, floor_bytes, warmup)


def _apply(target: Any, compression: Compression, layers: Mapping[str, str | None], warmup: int) -> None:
    if isinstance(target, DistributedDataParallel):
        _compress_replicas(target, compression, layers, warmup)
    elif layers:
        raise ValueError("only a DistributedDataParallel model has names of parameters: give `layers` with one")
    elif isinstance(target, torch.nn.Module):
        compress_shards(target, compression, warmup)
    elif warmup:
        raise ValueError("only a model has steps: give `warmup` with a DistributedDataParallel or sharded model")
    else:
        (target if isinstance(target, Reconfigurable) else present_group(target)).compression = compression


def _compress_replicas(
    model: DistributedDataParallel, compression: Compression, layers: Mapping[str, str | None], warmup: int
) -> None:
    group = present_group(model.process_group)
    state = LayerCodecs(group, model, compression.codec, layers, compression.floor_bytes, warmup)
    if compression.weights is not None:
        group.compression = replace(group.compression, weights=compression.weights)
    compress_layers(model, state)


@untraced
def stats(group: Any = None) -> GroupStats:
    """Return what this rank has exchanged in a process group so far, for a training's own log.

    Parameters
    ----------
    group : ProcessGroup, optional
        A process group of the backend softnic. Default: all ranks.

    Returns
    -------
    GroupStats
        `calls`, `given_bytes` (before compression), `sent_bytes` (after it), `ratio`, `wire_bytes`, and `exchange_s`,
        the seconds in which a call was in progress. ``later - earlier`` has what happened in between, with its ratio.
        Bytes count once the other rank's NIC has acknowledged them.

    Raises
    ------
    ValueError
        If `group` is not a process group of the backend softnic.
    OSError
        If the NIC does not answer.

    Notes
    -----
    The NIC is asked about each connection: call it every few seconds, not in every step.
    """
    return present_group(group).stats()


def dump_fr_trace() -> bytes:
    """Return the last calls of all process groups of this process, in the format of torch's flight recorder.

    The same is written to a file when a group ends by an error (flight_recorder.py).

    Returns
    -------
    bytes
        A pickled dictionary, as from torch's function of this name for its own backends: `torchfrtrace` reads a
        directory of such files, one of each rank, named by a prefix and the rank.
    """
    return pickle.dumps(recorder.dump())


def register() -> None:
    """Register the backend `softnic` with torch.distributed. Importing softnic.torch does it."""
    register_backend(create, launch.fill)


register()
keep_works()
