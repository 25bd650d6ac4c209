"""Where ranks look for the store: the order of the rules, and the one that applies."""

from __future__ import annotations

import pytest

from softnic.comm.bootstrap import host_address
from softnic.comm.bootstrap.discovery import StoreLocation, locate_store
from softnic.comm.bootstrap.launch import from_environment
from softnic.comm.errors import LaunchError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500"}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "123"}
HNP = {"OMPI_MCA_orte_hnp_uri": "882769920.0;tcp://192.0.2.2,198.51.100.2:46383;tcp6://[fd00::2]:58977"}
HERE = [(TORCHRUN, {"LOCAL_WORLD_SIZE": "2"}), (MPIRUN | HNP, {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"})]


def located(environment: dict[str, str]) -> StoreLocation:
    return locate_store(environment, from_environment(environment))


@pytest.mark.parametrize(("job", "single_host"), HERE)
def test_softnic_store_comes_first(job: dict[str, str], single_host: dict[str, str]) -> None:
    found = located(job | single_host | {"SOFTNIC_STORE": "node0:5000"})
    assert found.addresses == [("node0", 5000)]
    assert found.why == "SOFTNIC_STORE=node0:5000"


@pytest.mark.parametrize(("job", "single_host"), HERE)
def test_a_single_host_comes_second(job: dict[str, str], single_host: dict[str, str]) -> None:
    [address] = located(job | single_host).addresses
    assert isinstance(address, str)
    assert address.startswith("\0softnic-")
    assert located(job | single_host).why.startswith("one host, ")


def test_master_addr_comes_third() -> None:
    found = located(TORCHRUN | {"LOCAL_WORLD_SIZE": "1"})
    assert {address[0] for address in found.addresses} == {"192.0.2.1"}
    ports = [address[1] for address in found.addresses if isinstance(address, tuple)]
    assert len(set(ports)) == len(ports) > 1
    assert all(20000 <= port < 32768 for port in ports)
    assert found.why == "MASTER_ADDR=192.0.2.1"
    assert located(MPIRUN | HNP | {"MASTER_ADDR": "192.0.2.1"}).why == "MASTER_ADDR=192.0.2.1"


def test_the_host_of_mpirun_comes_last() -> None:
    found = located(MPIRUN | HNP)
    assert [address[0] for address in found.addresses[:2]] == ["192.0.2.2", "198.51.100.2"]
    assert found.why.startswith("mpirun's host, 192.0.2.2")
    assert host_address.mpirun_addresses({}) == []


@pytest.mark.parametrize("change", [{"MASTER_PORT": "29501"}, {"TORCHELASTIC_RUN_ID": "other"}])
def test_another_job_has_another_store(change: dict[str, str]) -> None:
    """The job's name differs, too."""
    more: dict[str, str]
    for more in ({}, {"LOCAL_WORLD_SIZE": "2"}):
        first, second = located(TORCHRUN | more), located(TORCHRUN | more | change)
        assert first.job != second.job
        assert list(first.addresses) != list(second.addresses)


def test_another_attempt_has_another_store_on_one_host() -> None:
    """The agents of torchrun on several hosts may count attempts differently."""
    again, one_host = {"TORCHELASTIC_RESTART_COUNT": "1"}, {"LOCAL_WORLD_SIZE": "2"}
    assert located(TORCHRUN | one_host | again).addresses != located(TORCHRUN | one_host).addresses
    assert located(TORCHRUN | again) == located(TORCHRUN)


@pytest.mark.parametrize("environment", [MPIRUN, {"SOFTNIC_RANK": "0", "SOFTNIC_WORLD_SIZE": "2"}])
def test_the_error_without_a_store_says_what_to_set(environment: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=r"set SOFTNIC_STORE=HOST:PORT.*or SOFTNIC_NIC"):
        located(environment)


def test_ipv6_addresses_of_the_store() -> None:
    assert located(TORCHRUN | {"SOFTNIC_STORE": "[2001:db8::1]:5000"}).addresses == [("2001:db8::1", 5000)]
    for master in ("2001:db8::1", "[2001:db8::1]"):
        assert {address[0] for address in located(TORCHRUN | {"MASTER_ADDR": master}).addresses} == {"2001:db8::1"}


@pytest.mark.parametrize("text", ["node0", ":5000", "node0:port", "node0:0", "node0:70000", "2001:db8::1:5000"])
def test_an_invalid_address_of_a_store_is_an_error(text: str) -> None:
    with pytest.raises(LaunchError, match="is not HOST:PORT"):
        located(TORCHRUN | {"SOFTNIC_STORE": text})
