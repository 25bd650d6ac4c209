"""What `init_process_group` reads from the environment, where torchrun has not put it there.

torch wants RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Under mpirun, srun and `softnic run` the first two go by
other names (softnic/comm/bootstrap/launch.py), and mpirun and srun do not say where rank 0 is. What is missing is
filled in when torch asks for it, and nothing that is set is changed:

1. RANK, WORLD_SIZE, LOCAL_RANK: what the launcher says.
2. MASTER_ADDR: this host, if the launcher says that all ranks are here; else it has to be set.
3. MASTER_PORT: one that follows from the launcher's name of the job, as in softnic/comm/bootstrap/discovery.py.

Ray sets all four, and knows where its nodes' NICs are (softnic/ray.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from softnic.autoload import VARIABLES
from softnic.comm.bootstrap.discovery import candidate_ports, is_single_host, job_id
from softnic.comm.bootstrap.launch import LAUNCHERS, from_environment
from softnic.comm.errors import LaunchError


def fill(environment: MutableMapping[str, str]) -> None:
    """Adds what torch's env:// needs and the launcher has not set. Raises LaunchError where it cannot be known."""
    if environment.keys() >= VARIABLES:
        return
    launch = from_environment(environment)
    if launch.source == "none":
        return  # torch says what is missing
    for launcher in LAUNCHERS:
        if launcher.local_rank in environment:
            environment.setdefault("LOCAL_RANK", environment[launcher.local_rank])
    if "MASTER_ADDR" not in environment:
        if not is_single_host(environment, launch):
            hint = "set MASTER_ADDR to its host, as in mpirun -x MASTER_ADDR=HOST"
            raise LaunchError(f"{launch.source} does not say where rank 0 is: {hint}")
        environment["MASTER_ADDR"] = "127.0.0.1"
    if "MASTER_PORT" not in environment:
        # The store of discovery.py takes the other ports first.
        environment["MASTER_PORT"] = str(candidate_ports(job_id(environment, launch))[-1])
    environment.setdefault("RANK", str(launch.rank))
    environment.setdefault("WORLD_SIZE", str(launch.size))


def use_rays_nic() -> None:
    """In a process of Ray's without a NIC of its own: takes the one that was started on this node, if one was."""
    if "SOFTNIC_NIC" not in os.environ and "ray" in sys.modules:
        from softnic import ray

        if (path := ray.find()) is not None:
            os.environ["SOFTNIC_NIC"] = path
