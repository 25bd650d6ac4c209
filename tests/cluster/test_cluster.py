"""Cluster: starts nodes, runs processes on them, and ends both."""

from __future__ import annotations

import errno
import os
import signal
import socket as stdlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import softnic
from softnic import Cluster, socket
from softnic.cluster import cluster as cluster_module
from softnic.cluster.nic_process import ClusterError, read_stats, running_nics, start_nic, wait_for_nic
from softnic.cluster.supervisor import ProcessSupervisor
from tests.commands.conftest import LIMIT_S


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with softnic.Cluster(nodes=2, rate="10gbit", codec="bounded:12", mode="packet", seed=1) as cluster:
        yield cluster


def test_nics_have_the_requested_configuration(cluster: Cluster) -> None:
    for node in range(2):
        info = cluster.stats(node).info
        assert (info.name, info.ip, info.mode) == (f"node{node}", f"10.77.0.{node + 1}", "packet")
        assert info.offloads == {"0x28": "bounded:12"}
        assert info.pid == cluster.nics[node].pid


def test_the_environment_of_a_rank(cluster: Cluster) -> None:
    environment = cluster.env(1)
    for shared in ("MASTER_PORT", "SOFTNIC_JOB_SECRET"):
        assert environment.pop(shared) == cluster.env(0)[shared]
    assert environment == {
        "SOFTNIC_NIC": str(cluster.directory / "node1.sock"),
        "SOFTNIC_RANK": "1",
        "SOFTNIC_WORLD_SIZE": "2",
        "SOFTNIC_IP": "10.77.0.2",
        "MASTER_ADDR": "127.0.0.1",
    }
    with pytest.raises(ValueError, match="rank 2"):
        cluster.env(2)


def test_ranks_connect(cluster: Cluster) -> None:
    code = "from softnic import MPI; world = MPI.COMM_WORLD; print(world.Get_rank(), world.allreduce(2.5))"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code], env=os.environ | cluster.env(rank), stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks] == ["0 5.0\n", "1 5.0\n"]
    assert cluster.stats(0).counters["tx_bytes"] > 0


def test_spawned_processes_belong_to_a_rank(cluster: Cluster) -> None:
    ours, theirs = os.pipe()
    code = "import os; print(os.environ['SOFTNIC_RANK'], os.environ['MORE'], 'PATH' in os.environ)"
    process = cluster.spawn(1, [sys.executable, "-c", code], [theirs, theirs, theirs], {"MORE": "x"})
    os.close(theirs)
    with open(ours) as out:  # noqa: PTH123 - a file descriptor
        assert out.read() == "1 x False\n"
    assert process.wait(LIMIT_S) == 0


def test_running_nics_are_found(cluster: Cluster) -> None:
    assert set(cluster.controls) <= set(running_nics())


def test_all_pages_of_many_streams_are_read(cluster: Cluster) -> None:
    """The NIC lists its streams in pages."""
    from softnic import socket

    sockets = [socket.socket(nic=str(cluster.controls[0])) for _ in range(205)]
    try:
        for each in sockets:
            each.bind(("10.77.0.1", 0))
        streams = read_stats(cluster.controls[0]).streams
        assert len({stream.stream for stream in streams}) == len(streams) >= 205
    finally:
        for each in sockets:
            each.close()


def test_nics_that_poll_carry_a_conversation() -> None:
    with (
        Cluster(nodes=2, poll="200us") as cluster,
        socket.socket(nic=cluster.controls[1]) as listener,
        socket.socket(nic=cluster.controls[0]) as client,
    ):
        listener.bind(("", 0))
        listener.listen()
        client.connect(("10.77.0.2", listener.getsockname()[1]))
        server, _ = listener.accept()
        with server:
            for number in range(300):
                for end, other in ((client, server), (server, client)):
                    end.sendall(bytes([number % 256]) * 64)
                    assert other.recv(64, socket.MSG_WAITALL) == bytes([number % 256]) * 64


def test_nothing_is_left_of_a_stopped_cluster() -> None:
    with Cluster(nodes=1) as one:
        pids, directory = [nic.pid for nic in one.nics], one.directory
        assert directory.is_dir()
    assert not directory.exists()
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
    one.stop()
    with pytest.raises(OSError, match="no NIC answers"):
        one.stats(0)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"nodes": 0}, "0 nodes"),
        ({"nodes": 251}, "251 nodes"),
        ({"rate": "fast"}, "'fast' is not a rate"),
        ({"delay": "1"}, "'1' is not a time"),
        ({"loss": "200%"}, "more than 100%"),
        ({"limit": "1"}, "'1' is not a size"),
        ({"poll": "often"}, "'often' is not a time"),
        ({"queues": 5}, "5 queues: a NIC has 1, 2, 3"),
    ],
)
def test_invalid_arguments_start_nothing(arguments: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as own:  # other tests' clusters come and go elsewhere
        monkeypatch.setattr(tempfile, "tempdir", own)
        with pytest.raises(ValueError, match=hint):
            Cluster(**arguments)  # type: ignore[arg-type]
        assert list(Path(own).iterdir()) == []


def test_a_nic_that_does_not_start_is_an_error_with_the_reason() -> None:
    with pytest.raises(ClusterError, match=r"the NIC of node 0 did not start: .*nonsense"):
        Cluster(nodes=1, codec="nonsense:1")


def test_a_nic_that_is_killed_as_it_starts_is_an_error(tmp_path: Path) -> None:
    supervisor = ProcessSupervisor()
    log = tmp_path / "nic.log"
    nic, ready = start_nic(supervisor, ["sh", "-c", "kill -9 $$"], log)
    with os.fdopen(ready), pytest.raises(ClusterError, match=r"^the NIC did not start: it was killed by SIGKILL$"):
        wait_for_nic(nic, ready, time.monotonic() + LIMIT_S, "the NIC", log)
    supervisor.stop()


def test_an_error_in_a_cluster_gets_a_note_about_a_lost_nic() -> None:
    def lose() -> None:
        with Cluster(nodes=2) as cluster:
            cluster.nics[1].signal(signal.SIGKILL)
            cluster.nics[1].wait(LIMIT_S)
            raise ValueError("an error of a rank")

    with pytest.raises(ValueError, match="an error of a rank") as raised:
        lose()
    assert raised.value.__notes__ == ["the NIC of node 1 was killed by SIGKILL"]


def test_other_ports_are_tried_if_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may take a port between its choice and the NIC's start."""
    with stdlib.socket(stdlib.AF_INET, stdlib.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        requests = []
        free_ports = cluster_module._free_ports

        def ports(count: int) -> list[int]:
            requests.append(count)
            return [taken.getsockname()[1]] if len(requests) == 1 else free_ports(count)

        monkeypatch.setattr(cluster_module, "_free_ports", ports)
        with Cluster(nodes=1) as cluster:
            assert cluster.stats(0).info.name == "node0"
        assert requests == [1, 1]


def test_a_machine_without_a_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with stdlib.socket(stdlib.AF_INET, stdlib.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(cluster_module, "_free_ports", lambda _count: [taken.getsockname()[1]])
        with pytest.raises(ClusterError, match=os.strerror(errno.EADDRINUSE)):
            Cluster(nodes=1)
