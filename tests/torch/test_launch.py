"""The environment variables of torch under each launcher."""

from __future__ import annotations

import pytest

from softnic.comm.errors import LaunchError
from softnic.torch.launch import fill

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "1429471233",
}


def filled(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that are added."""
    found = dict(environment)
    fill(found)
    assert environment.items() <= found.items()
    return {name: value for name, value in found.items() if name not in environment}


@pytest.mark.parametrize("environment", [{}, TORCHRUN, {**MPIRUN, **TORCHRUN}])
def test_variables_of_torchrun_or_of_no_launcher_are_unchanged(environment: dict[str, str]) -> None:
    assert filled(environment) == {}


def test_a_cluster_reports_the_address_of_rank_0() -> None:
    environment = {"SOFTNIC_RANK": "1", "SOFTNIC_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "40000"}
    assert filled(environment) == {"RANK": "1", "WORLD_SIZE": "2"}


def test_mpirun_on_one_host() -> None:
    added = filled(MPIRUN)
    port = int(added.pop("MASTER_PORT"))
    assert added == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "MASTER_ADDR": "127.0.0.1"}
    assert 20000 <= port < 32768


def test_a_job_has_one_port_and_the_next_job_another() -> None:
    ports = [filled({**MPIRUN, "OMPI_COMM_WORLD_RANK": rank})["MASTER_PORT"] for rank in "0123"]
    assert len(set(ports)) == 1
    assert filled({**MPIRUN, "PMIX_NAMESPACE": "1429471234"})["MASTER_PORT"] != ports[0]


def test_several_hosts_need_master_addr() -> None:
    environment = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(LaunchError, match="Open MPI does not say where rank 0 is: set MASTER_ADDR"):
        filled(environment)
    assert "MASTER_ADDR" not in filled({**environment, "MASTER_ADDR": "node7"})


def test_slurm_on_one_host() -> None:
    environment = {
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_ID": "77",
        "SLURM_LOCALID": "0",
    }
    assert filled(environment).keys() == {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
