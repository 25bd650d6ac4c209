"""Sets the environment variables of `init_process_group` under launchers other than torchrun.

torch reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Under mpirun, srun and `softnic run` the first two have other
names (softnic/comm/bootstrap/launch.py), and mpirun and srun do not report the host of rank 0. Missing variables are
set when torch reads them; those that are set stay as they are:

1. RANK, WORLD_SIZE, LOCAL_RANK: from the launcher's variables.
2. MASTER_ADDR: this host if the launcher reports that all ranks are on it; else the user must set it.
3. MASTER_PORT: derived from the launcher's name of the job, as in softnic/comm/bootstrap/discovery.py.

Ray sets all four, and softnic/ray.py knows the NICs of its nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from softnic.comm.bootstrap.discovery import candidate_ports, is_single_host, job_id
from softnic.comm.bootstrap.launch import LAUNCHERS, from_environment
from softnic.comm.errors import LaunchError
from softnic.torch_backend import VARIABLES


def fill(environment: MutableMapping[str, str]) -> None:
    """Add the variables that torch's env:// needs. Raises LaunchError if one cannot be derived."""
    if environment.keys() >= VARIABLES:
        return
    launch = from_environment(environment)
    if launch.source == "none":
        return  # torch reports what is missing
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
    """Use the NIC that softnic.ray started on this node, in a Ray worker without SOFTNIC_NIC."""
    if "SOFTNIC_NIC" not in os.environ and "ray" in sys.modules:
        from softnic import ray

        if (path := ray.find()) is not None:
            os.environ["SOFTNIC_NIC"] = path
