"""What `init_process_group` reads from the environment, where torchrun has not put it there.

torch wants RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Under mpirun, srun and `softnic run` the first two go by
other names (softnic/comm/launch.py), and mpirun and srun do not say where rank 0 is. What is missing is filled in when
torch asks for it, and nothing that is set is changed:

1. RANK, WORLD_SIZE, LOCAL_RANK: what the launcher says.
2. MASTER_ADDR: this host, if the launcher says that all ranks are here; else it has to be set.
3. MASTER_PORT: one that follows from the launcher's name of the job, which is another one each time. Linux gives none
   of these ports away by itself.

Ray sets all four, and knows where its nodes' NICs are (softnic/ray.py).
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from torch.distributed.rendezvous import _rendezvous_handlers as handlers

from softnic.comm.errors import LaunchError
from softnic.comm.launch import from_environment

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_RANKS_HERE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_JOBS = ("OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID")
"""What tells one job from another, on every host the same."""
_FIRST_PORT = 20000
_PORTS = 12000
"""Ends below 32768, where Linux takes ports from for whoever does not care."""


def fill(environment: MutableMapping[str, str]) -> None:
    """Adds what torch's env:// needs and the launcher has not set. Raises LaunchError where it cannot be known."""
    if all(name in environment for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return
    launch = from_environment(environment)
    if launch.source == "none":
        return  # torch says what is missing
    for name in _LOCAL_RANKS:
        if name in environment:
            environment.setdefault("LOCAL_RANK", environment[name])
    if "MASTER_ADDR" not in environment:
        if not _all_here(environment, launch.size):
            hint = "set MASTER_ADDR to its host, as in mpirun -x MASTER_ADDR=HOST"
            raise LaunchError(f"{launch.source} does not say where rank 0 is: {hint}")
        environment["MASTER_ADDR"] = "127.0.0.1"
    if "MASTER_PORT" not in environment:
        environment["MASTER_PORT"] = str(_port(environment, launch.source))
    environment.setdefault("RANK", str(launch.rank))
    environment.setdefault("WORLD_SIZE", str(launch.size))


def install() -> None:
    """Has torch's env:// call `fill` first. May be called twice."""
    torchs = handlers["env"]
    if getattr(torchs, "fills", False):
        return

    def env(url: str, **options: Any) -> Iterator[Any]:
        fill(os.environ)
        found: Iterator[Any] = torchs(url, **options)
        return found

    env.fills = True  # type: ignore[attr-defined]
    handlers["env"] = env


def use_rays_nic() -> None:
    """In a process of Ray's without a NIC of its own: takes the one that was started on this node, if one was."""
    if "SOFTNIC_NIC" not in os.environ and "ray" in sys.modules:
        from softnic import ray

        if (path := ray.find()) is not None:
            os.environ["SOFTNIC_NIC"] = path


def _all_here(environment: Mapping[str, str], size: int) -> bool:
    if environment.get("SLURM_NNODES", environment.get("SLURM_JOB_NUM_NODES")) == "1":
        return True
    return any(environment.get(name) == str(size) for name in _RANKS_HERE)


def _port(environment: Mapping[str, str], source: str) -> int:
    job = ".".join(environment[name] for name in _JOBS if name in environment)
    if not job:
        raise LaunchError(f"{source} gives the job no name: set MASTER_PORT to a port that is free where rank 0 is")
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS
