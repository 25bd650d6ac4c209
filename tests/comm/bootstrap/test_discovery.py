"""Where ranks look for each other: the order of what says it, and which of them won."""

from __future__ import annotations

import pytest

from tests.facades.bootstrap import StoreLocation, from_environment, host_address, locate_store
from tests.facades.comm import LaunchError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "123"}
HNP = {"OMPI_MCA_orte_hnp_uri": "882769920.0;tcp://192.0.2.2,198.51.100.2:46383;tcp6://[fd00::2]:58977"}
HERE = [(TORCHRUN, {"LOCAL_WORLD_SIZE": "2"}), (MPIRUN | HNP, {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"})]


def where(environment: dict[str, str]) -> StoreLocation:
    return locate_store(environment, from_environment(environment))


@pytest.mark.parametrize(("job", "all_here"), HERE)
def test_the_store_that_is_named_wins(job: dict[str, str], all_here: dict[str, str]) -> None:
    found = where(job | all_here | {"SOFTNIC_STORE": "node0:5000"})
    assert found.addresses == [("node0", 5000)]
    assert found.why == "SOFTNIC_STORE=node0:5000"


@pytest.mark.parametrize(("job", "all_here"), HERE)
def test_then_one_host(job: dict[str, str], all_here: dict[str, str]) -> None:
    [address] = where(job | all_here).addresses
    assert isinstance(address, str)
    assert address.startswith("\0softnic-")
    assert where(job | all_here).why.startswith("one host, ")


def test_then_the_masters_address() -> None:
    found = where(TORCHRUN | {"LOCAL_WORLD_SIZE": "1"})
    assert {address[0] for address in found.addresses} == {"192.0.2.1"}
    ports = [address[1] for address in found.addresses if isinstance(address, tuple)]
    assert len(set(ports)) == len(ports) > 1
    assert all(20000 <= port < 32768 for port in ports)
    assert found.why == "MASTER_ADDR=192.0.2.1"
    assert where(MPIRUN | HNP | {"MASTER_ADDR": "192.0.2.1"}).why == "MASTER_ADDR=192.0.2.1"


def test_then_mpiruns_host() -> None:
    found = where(MPIRUN | HNP)
    assert [address[0] for address in found.addresses[:2]] == ["192.0.2.2", "198.51.100.2"]
    assert found.why.startswith("mpirun's host, 192.0.2.2")
    assert host_address.mpirun_addresses({}) == []


@pytest.mark.parametrize("change", [{"MASTER_PORT": "29501"}, {"TORCHELASTIC_RUN_ID": "other"}])
def test_another_job_is_elsewhere(change: dict[str, str]) -> None:
    """And has another name, should it come to the same place."""
    more: dict[str, str]
    for more in ({}, {"LOCAL_WORLD_SIZE": "2"}):
        first, second = where(TORCHRUN | more), where(TORCHRUN | more | change)
        assert first.job != second.job
        assert list(first.addresses) != list(second.addresses)


def test_another_attempt_is_elsewhere_on_one_host() -> None:
    """On several, torchrun's agents need not agree which attempt it is."""
    again, one_host = {"TORCHELASTIC_RESTART_COUNT": "1"}, {"LOCAL_WORLD_SIZE": "2"}
    assert where(TORCHRUN | one_host | again).addresses != where(TORCHRUN | one_host).addresses
    assert where(TORCHRUN | again) == where(TORCHRUN)


@pytest.mark.parametrize("environment", [MPIRUN, {"SOFTNIC_RANK": "0", "SOFTNIC_WORLD_SIZE": "2"}])
def test_who_knows_nothing_is_told_what_to_set(environment: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=r"set SOFTNIC_STORE=HOST:PORT.*or SOFTNIC_NIC"):
        where(environment)


@pytest.mark.parametrize("text", ["node0", ":5000", "node0:port", "node0:0", "node0:70000"])
def test_a_store_that_is_no_address(text: str) -> None:
    with pytest.raises(LaunchError, match="is not HOST:PORT"):
        where(TORCHRUN | {"SOFTNIC_STORE": text})
