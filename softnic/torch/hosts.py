"""Which ranks of a process group share a host, as their launcher says it.

Ranks share a host if they share a NIC, and what the launcher says must agree with that: LOCAL_RANK and
LOCAL_WORLD_SIZE, by the names that the launcher has for them. Every rank writes these to the store of the group and
reads those of all others, so all come to the same result.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.distributed as dist

from softnic.comm.bootstrap.launch import job_secret, local_rank
from softnic.comm.bootstrap.store import Store
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.scratch import Allocation

VARIABLE = "SOFTNIC_LOCAL"
_NONE = (0, 0)
_FIELDS = {
    "local_rank": int, "local_size": int, "gpu": str, "process": int, "file": int, "inode": int, "token": str,
}  # fmt: skip

Hosts = tuple[tuple[int, ...], ...]
"""The ranks of each host, in order; the hosts are in the order of their first ranks."""


@dataclass(frozen=True)
class RankPlace:
    """What one rank writes to the store."""

    local_rank: int
    local_size: int
    """Number of the job's ranks on this host; 0: the launcher does not say it, or SOFTNIC_LOCAL is off."""
    gpu: str = ""
    """As gpu_of."""
    process: int = 0
    file: int = 0
    inode: int = 0
    """A file descriptor of the process, and the inode of its file: memory that begins with `token`."""
    token: str = ""
    """A fresh name."""


def exchange_places(store: Store, rank: int, size: int, own: RankPlace, timeout_s: float) -> list[RankPlace]:
    """Return the place of each rank. All ranks call this. Raises CommError."""
    exchange = StoreExchange(store, "local", job_secret(os.environ))
    exchange.begin(rank, size, timeout_s)
    exchange.write(f"rank/{rank}", asdict(own))
    found = [exchange.read(f"rank/{other}", other, _FIELDS) for other in range(size)]
    return [RankPlace(**{name: each[name] for name in _FIELDS}) for each in found]


def own_place(device: torch.device, shown: Allocation) -> RankPlace:
    """Return the place of this rank, whose tensors are on a device. `shown`: memory for the ranks of this host."""
    place = None if os.environ.get(VARIABLE) == "off" else local_rank(os.environ)
    token, file = secrets.token_hex(8), shown.region.fd
    shown.bytes[: len(token)] = np.frombuffer(token.encode(), np.uint8)
    return RankPlace(*(place or _NONE), gpu_of(device), os.getpid(), file, os.fstat(file).st_ino, token)


def gpu_of(device: torch.device) -> str:
    """Return what identifies a GPU among those of all hosts; empty if NCCL cannot be used with it."""
    usable = device.type == "cuda" and dist.is_nccl_available()
    return str(torch.cuda.get_device_properties(device).uuid) if usable else ""


def hosts_of(nics: Sequence[str]) -> Hosts | None:
    """Return the hosts of a group, given the address of each rank's NIC.

    None if there is one host, or one rank on each, or if hosts have different numbers of ranks.
    """
    by_nic: dict[str, list[int]] = {}
    for rank, nic in enumerate(nics):
        by_nic.setdefault(nic, []).append(rank)
    hosts = tuple(tuple(ranks) for ranks in by_nic.values())
    numbers = {len(ranks) for ranks in hosts}
    return hosts if len(hosts) > 1 and len(numbers) == 1 and max(numbers) > 1 else None


def launcher_agrees(places: Sequence[RankPlace]) -> bool:
    """Return whether these can be the places of ranks of one host. A group may have some of the host's ranks."""
    ranks, sizes = {place.local_rank for place in places}, {place.local_size for place in places}
    return len(sizes) == 1 and len(ranks) == len(places) and min(ranks) >= 0 and max(ranks) < max(sizes)


def have_own_gpus(places: Sequence[RankPlace]) -> bool:
    """Return whether each rank of a host has a GPU of its own, between which NCCL can be used."""
    gpus = {place.gpu for place in places}
    return len(gpus) == len(places) and "" not in gpus
