"""The attributes by which torch identifies a process group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from softnic.mpi.communicator import Communicator
from softnic.torch.untraced import Untraced


class Identity(Untraced, dist.ProcessGroup):
    """Base of a process group that is its own backend, for CPUs and CUDA devices."""

    supports_splitting = False
    supports_coalescing = False
    supports_shrinking = False
    supports_time_estimate = False

    def __init__(self, comm: Communicator, name: str) -> None:
        super().__init__(comm.rank, comm.size)  # type: ignore[call-arg]
        self._rank = comm.rank
        self._size = comm.size
        self._name = name
        self._description = "undefined"

    def getBackendName(self) -> str:
        return "softnic"

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, desc: str) -> None:
        self._description = desc

    def supports_tensor_alloc(self, _: torch.device) -> bool:
        return False

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices whose tensors may be passed: the CPU, and CUDA once the process uses it."""
        cuda = [torch.device("cuda")] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        return [torch.device("cpu"), *cuda]

    def _get_backend(self, device: torch.device) -> Any:
        """Return this group. Raises RuntimeError, as torch does, for devices that are not supported."""
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"the backend softnic does not support {device.type} tensors: it supports cpu and cuda")
        return self

    name = getBackendName
    rank = getRank
    size = getSize
    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
