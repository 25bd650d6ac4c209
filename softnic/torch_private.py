"""What softnic uses of torch beyond its documented interface, and the releases of torch with which it is tested.

Each private name is looked up when it is used, so that a release that lacks it costs the users of one feature only.
`softnic.torch_backend` runs whenever torch is imported: this module imports torch in functions only.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

OLDEST = (2, 9)
NEWEST = (2, 15)
"""The releases with which CI runs .ci/torch-releases, as pyproject.toml and the README state them."""
RendezvousHandler = Callable[..., Iterator[Any]]


def check_release(version: str) -> None:
    """Raise ImportError for a release of torch before `OLDEST`; warn of one after `NEWEST`.

    Parameters
    ----------
    version : str
        As torch.__version__ has it.
    """
    release = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    tested = f"torch {_text(OLDEST)} to {_text(NEWEST)}"
    if release < OLDEST:
        raise ImportError(f"softnic works with {tested}, and this is torch {version}: install a later one")
    if release > NEWEST:
        warnings.warn(f"softnic is tested with {tested}, and this is torch {version}", RuntimeWarning, stacklevel=3)


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def wrap_env_handler(wrap: Callable[[RendezvousHandler], RendezvousHandler]) -> None:
    """Replace the handler of env://, the default init_method, by what `wrap` makes of it.

    torch.distributed.register_rendezvous_handler refuses a scheme that has a handler.
    """
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers

    handlers["env"] = wrap(handlers["env"])


def keep_own_flight_record(backend: str) -> None:
    """Report that a backend records its calls itself, as it does on releases before 2.15 without being asked.

    From 2.15 on torch attaches its recorder to the process groups of all other backends, and cannot to a group that is
    its own backend.
    """
    from torch.distributed import distributed_c10d

    recording = getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recording is not None:
        recording.add(backend)


def shard_meshes(module: Any) -> list[Any]:
    """Return the meshes over which a module's own parameters are sharded: `fully_shard` stores them in its state.

    Releases before 2.12 have one group of parameters or None, later ones a list.
    """
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [each for each in [state._fsdp_param_group] if each is not None]
    return [group.mesh_info for group in groups]


def copy_each(targets: list[Any], sources: list[Any]) -> None:
    """Copy each source to its target: on a GPU in one kernel, if they have one type."""
    import torch

    torch._foreach_copy_(targets, sources)


def requested_backends() -> dict[str, str]:
    """Return the backend that init_process_group or new_group is asked for, by type of device; empty: not known.

    The creator of a backend is not told: it is a local variable of the function that calls it.
    """
    from torch.distributed.distributed_c10d import BackendConfig

    frame: FrameType | None = sys._getframe()
    while frame is not None:
        config = frame.f_locals.get("backend_config")
        if isinstance(config, BackendConfig):
            return {device: str(backend) for device, backend in config.get_device_backend_map().items()}
        frame = frame.f_back
    return {}


def nccl_backend(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """Return a new backend of NCCL for CUDA tensors, with a time limit of its calls."""
    import torch.distributed as dist

    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def unlisted_group(backend: Any, store: Any, device: Any) -> Any:
    """Return a process group of a backend, for the tensors of a device, that torch.distributed does not list.

    It is its owner's: groups of `new_group` end with the default one, and all ranks of the job have to make them.
    """
    import torch.distributed as dist

    group = dist.ProcessGroup(store, backend.rank(), backend.size())
    kind = getattr(dist.ProcessGroup.BackendType, backend.name().upper())
    backend._set_sequence_number_for_group()
    group._set_default_backend(kind)
    group._register_backend(device, kind, backend)
    return group
