"""The programs that give a namespace a route to the host's network: which one is started, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.nic_process import ClusterError
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.cluster.uplink import start_uplink


@pytest.fixture
def supervisor() -> Iterator[ProcessSupervisor]:
    supervisor = ProcessSupervisor()
    yield supervisor
    supervisor.stop()


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def test_without_either_program_the_error_says_what_to_install(
    supervisor: ProcessSupervisor, bin_directory: Path
) -> None:
    with pytest.raises(ClusterError, match=r"slirp4netns or pasta \(apt-get install slirp4netns\)"):
        start_uplink(supervisor, 4711, bin_directory / "log")


@pytest.mark.parametrize("name", ["slirp4netns", "pasta"])
def test_the_last_line_of_a_program_that_fails_is_in_the_error(
    supervisor: ProcessSupervisor, bin_directory: Path, name: str
) -> None:
    install(bin_directory, name, "echo first >&2; echo no way in >&2; exit 1")
    with pytest.raises(ClusterError, match=f"{name} made no uplink for process 4711: no way in"):
        start_uplink(supervisor, 4711, bin_directory / "log")


def test_slirp4netns_is_ready_when_it_says_so(supervisor: ProcessSupervisor, bin_directory: Path) -> None:
    install(bin_directory, "slirp4netns", 'echo "$@"; printf 1 >&3; exec /bin/sleep 1000')
    install(bin_directory, "pasta", "exit 1")
    assert start_uplink(supervisor, 4711, bin_directory / "log").poll() is None
    arguments = (bin_directory / "log").read_text().split()
    assert "--disable-host-loopback" in arguments
    assert arguments[-2:] == ["4711", "uplink0"]


def test_pasta_is_ready_when_it_continues_in_the_background(supervisor: ProcessSupervisor, bin_directory: Path) -> None:
    install(bin_directory, "pasta", 'echo "$@"')
    assert start_uplink(supervisor, 4711, bin_directory / "log").poll() == 0
    arguments = (bin_directory / "log").read_text().split()
    assert arguments[-1] == "4711"
    assert arguments.count("none") == 4, "no port of the namespace is published on the host"
    assert "--no-map-gw" in arguments, "the host's own loopback is not reachable"
