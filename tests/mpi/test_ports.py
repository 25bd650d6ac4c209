"""Processes of two jobs, and newcomers, meet at ports of their NICs."""

from __future__ import annotations

import os
import socket as stdlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from softnic import MPI, Cluster

_IMPORTS = """
import os, socket, sys, threading, time
import numpy as np
from softnic import MPI

def total(comm):
    "The sum of the ranks, which all must have."
    found = np.full(1000, comm.rank, np.float32)
    comm.Allreduce(MPI.IN_PLACE, found)
    assert (found == found[0]).all()
    return int(found[0])

def error_of(call):
    try:
        call()
    except MPI.Exception as error:
        return error
    raise AssertionError("no error")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=4) as made:
        yield made


class Jobs:
    """Programs on the nodes of a cluster; the ranks of one job are nodes that follow each other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, first: int, size: int, program: str, *, descriptor: int = -1) -> None:
        for rank in range(size):
            env = {**os.environ, **self._cluster.env(first + rank), "SOFTNIC_RANK": str(rank)}
            env |= {
                "SOFTNIC_WORLD_SIZE": str(size),
                "SOFTNIC_PEERS": ",".join(_ips(first, size)),
                "FD": f"{descriptor}",
            }
            env["SOFTNIC_RENDEZVOUS_TIMEOUT"] = "20"
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", _IMPORTS + program],
                    env=env,
                    stdout=subprocess.PIPE,
                    text=True,
                    pass_fds=(descriptor,) if descriptor >= 0 else (),
                )
            )

    def results(self) -> list[str]:
        """What each process has printed. All must have ended well."""
        try:
            found = [process.communicate(timeout=60)[0].strip() for process in self._processes]
        finally:
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        assert [process.returncode for process in self._processes] == [0] * len(found), found
        return found


def _ips(first: int, size: int) -> list[str]:
    return [f"10.77.0.{node + 1}" for node in range(first, first + size)]


def test_two_jobs_meet_and_become_one(cluster: Cluster) -> None:
    jobs = Jobs(cluster)
    jobs.start(
        0,
        2,
        """
world = MPI.COMM_WORLD
port = MPI.Open_port(MPI.Info.Create({"ip_port": "7000"})) if world.rank == 1 else ""
assert world.rank == 0 or port == "10.77.0.2:7000"
others = world.Accept(port, root=1)
assert (others.rank, others.size, others.remote_size) == (world.rank, 2, 2)
assert others.allgather(f"job 0, rank {world.rank}") == ["job 1, rank 0", "job 1, rank 1"]
both = others.Merge()
print(both.rank, both.size, total(both), total(world), both.Get_group().Get_size())
if port:
    MPI.Close_port(port)
""",
    )
    jobs.start(
        2,
        2,
        """
world = MPI.COMM_WORLD
others = None
while others is None:  # the port may not be there yet
    try:
        others = world.Connect("10.77.0.2:7000")
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_PORT, error
        time.sleep(0.1)
assert others.allgather(f"job 1, rank {world.rank}") == ["job 0, rank 0", "job 0, rank 1"]
both = others.Merge(high=True)
print(both.rank, both.size, total(both), total(world), both.Get_group().Get_size())
""",
    )
    assert jobs.results() == ["0 4 6 1 4", "1 4 6 1 4", "2 4 6 1 4", "3 4 6 1 4"]


def test_a_newcomer_joins_those_that_are_left(cluster: Cluster) -> None:
    """As in docs/elastic.md: after a death the survivors shrink, and accept who comes while they compute."""
    jobs = Jobs(cluster)
    jobs.start(
        0,
        3,
        """
comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
comm.Barrier()
if rank == 2:
    print("ends", flush=True)
    os._exit(0)
try:
    while True:
        comm.Barrier()
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
comm = comm.Shrink()
arrived = []
def wait(port):
    arrived.append(MPI.COMM_SELF.Accept(port).Merge())
if comm.rank == 0:
    port = MPI.Open_port(MPI.Info.Create({"ip_port": "7001"}))
    waiter = threading.Thread(target=wait, args=(port,))
    waiter.start()
while not comm.bcast(bool(arrived) if comm.rank == 0 else None):
    assert total(comm) == 1
wider = comm.Create_intercomm(0, arrived[0] if arrived else MPI.COMM_SELF, 1).Merge()
print(wider.rank, wider.size, total(wider))
""",
    )
    jobs.start(
        3,
        1,
        """
while True:
    try:
        pair = MPI.COMM_SELF.Connect("10.77.0.1:7001").Merge(high=True)
        break
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_PORT, error
        time.sleep(0.1)
wider = MPI.COMM_SELF.Create_intercomm(0, pair, 0).Merge(high=True)
print(wider.rank, wider.size, total(wider))
""",
    )
    assert jobs.results() == ["0 3 3", "1 3 3", "ends", "2 3 3"]


def test_join_over_any_socket(cluster: Cluster) -> None:
    program = """
fd = int(os.environ["FD"])
other = MPI.Comm.Join(fd)
print(other.size, other.remote_size, total(other.Merge()), other.allgather(os.environ["SOFTNIC_IP"]))
assert socket.socket(fileno=fd).send(b"x") == 1  # it is still open
"""
    jobs = Jobs(cluster)
    ends = stdlib.socketpair()
    for node, end in enumerate(ends):
        jobs.start(node, 1, program, descriptor=end.fileno())
    try:
        assert jobs.results() == ["1 1 1 ['10.77.0.2']", "1 1 1 ['10.77.0.1']"]
    finally:
        for end in ends:
            end.close()


def test_what_goes_wrong_at_a_port(cluster: Cluster) -> None:
    jobs = Jobs(cluster)
    jobs.start(
        0,
        1,
        """
alone = MPI.COMM_SELF
port = MPI.Open_port()
taken = error_of(lambda: MPI.Open_port(MPI.Info.Create({"ip_port": port.rpartition(":")[2]})))
assert taken.Get_error_class() == MPI.ERR_PORT, taken
closed = []
waiter = threading.Thread(target=lambda: closed.append(error_of(lambda: alone.Accept(port))))
waiter.start()
time.sleep(0.5)
MPI.Close_port(port)
waiter.join(5)
assert "the port was closed" in str(closed[0]), closed
for call in (lambda: alone.Accept(port), lambda: MPI.Close_port(port), lambda: alone.Connect("nowhere")):
    assert error_of(call).Get_error_class() == MPI.ERR_PORT
refused = error_of(lambda: alone.Connect("10.77.0.2:7999"))
assert "no process has the port 10.77.0.2:7999" in str(refused), refused
port = MPI.Open_port(MPI.Info.Create({"ip_port": "7002"}))
print("nonsense:", error_of(lambda: alone.Accept(port)))
print("a good one:", alone.Accept(port).remote_size)
""",
    )
    jobs.start(
        1,
        1,
        """
from softnic import socket
while True:
    try:
        with socket.create_connection(("10.77.0.1", 7002)) as stranger:
            stranger.sendall(bytes(100))
            stranger.recv(1)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
print(MPI.COMM_SELF.Connect("10.77.0.1:7002").remote_size)
""",
    )
    first, second = jobs.results()
    assert "nonsense: Accept on rank 0: the other side is no port of softnic" in first
    assert first.endswith("a good one: 1")
    assert second == "1"


def test_a_port_number_that_is_none() -> None:
    with pytest.raises(MPI.Exception, match="up to 65535"):
        MPI.Open_port(MPI.Info.Create({"ip_port": "70000"}))
