"""Ranks that connect when they need to: every kind of call, with only a tree connected at the start."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from softnic import MPI, Cluster
from softnic.collectives.pairs import FULL_RANKS
from softnic.comm.bootstrap.first_pairs import VARIABLE, connected_at_start
from softnic.comm.errors import CommError
from softnic.mpi.communicator import Communicator
from tests.daemon.nics import TOLD_S
from tests.mpi.connections import connections_of
from tests.mpi.ranks import failures, gradient, listeners, run
from tests.mpi.test_cluster import Job

SIZE = 7


@pytest.fixture(autouse=True)
def needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "needed")


def connected(comm: Communicator) -> list[int]:
    """The ranks that this one is connected with."""
    return sorted(connections_of(comm).progress.connected)


# -- what is connected at the start ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 5, 9, 64, 1000])
def test_a_tree_is_connected_at_the_start(size: int) -> None:
    """Both ends of each pair know of it, all ranks can be reached, and no rank has many."""
    first = {rank: connected_at_start(rank, size) for rank in range(size)}
    assert all(rank in first[other] for rank, others in first.items() for other in others)
    assert sum(map(len, first.values())) == 2 * (size - 1)
    reached, new = {0}, {0}
    while new:
        new = {other for rank in new for other in first[rank]} - reached
        reached |= new
    assert len(reached) == size
    assert max(map(len, first.values())) <= 3 * np.ceil(np.log(size) / np.log(4))


def test_few_ranks_are_all_connected_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    assert connected_at_start(2, FULL_RANKS) == set(range(FULL_RANKS)) - {2}
    assert len(connected_at_start(2, FULL_RANKS + 1)) < FULL_RANKS
    monkeypatch.setenv(VARIABLE, "all")
    assert len(connected_at_start(2, 100)) == 99


def test_a_setting_of_nonsense_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "some")
    for error in failures(2, lambda comm: comm.Barrier()):
        assert f"{VARIABLE}=some: it is all or needed" in str(error)


# -- connections at the first use ------------------------------------------------------------------------------------


def test_a_call_connects_the_ranks_of_its_schedule_and_no_others() -> None:
    def program(comm: Communicator) -> list[list[int]]:
        comm.Barrier()
        found = []
        for algorithm in (None, "ring", "direct"):
            if algorithm is None:
                comm.Allreduce(MPI.IN_PLACE, gradient(comm.rank, 100))
            else:
                comm.Allreduce_comp(MPI.IN_PLACE, gradient(comm.rank, 100), codec="bounded:10", algorithm=algorithm)
            found.append(connected(comm))
            comm.Barrier()  # no rank makes the next call before all have looked
        return found

    for rank, (tree, ring, direct) in enumerate(run(SIZE, program)):
        first = sorted(connected_at_start(rank, SIZE))
        assert tree == first
        assert ring == sorted({*first, (rank + 1) % SIZE, (rank - 1) % SIZE})
        assert direct == sorted(set(range(SIZE)) - {rank})


@pytest.mark.parametrize("size", [6, 9])
def test_messages_between_all_ranks(size: int) -> None:
    """Short, long and compressed ones, synchronous ones, and from any rank."""

    def program(comm: Communicator) -> None:
        rank = comm.rank
        for other in [*range(rank), *range(rank + 1, size)]:
            values = gradient(10 * rank + other, 200_000)
            theirs = np.empty_like(values)
            assert comm.sendrecv([rank, other], other, 1, None, other, 1) == [other, rank]
            comm.Sendrecv(values, other, 2, theirs, other, 2)
            assert theirs.tobytes() == gradient(10 * other + rank, 200_000).tobytes()
        request = comm.issend("late", (rank + 2) % size, 3)
        comm.recv(source=(rank - 2) % size, tag=3)
        request.wait()
        comm.send(rank, (rank + 3) % size, 4)
        assert comm.recv(source=MPI.ANY_SOURCE, tag=4) == (rank - 3) % size

    run(size, program)


def test_requests_are_complete_whatever_is_waited_for() -> None:
    def program(comm: Communicator) -> None:
        size, rank = comm.size, comm.rank
        ring, direct = gradient(rank, 5000), gradient(rank, 5000)
        requests = [
            comm.Iallreduce_comp(MPI.IN_PLACE, ring, codec="bounded:10", algorithm="ring"),
            comm.irecv(source=(rank + 3) % size, tag=1),
            comm.Iallreduce_comp(MPI.IN_PLACE, direct, codec="bounded:10", algorithm="direct"),
            comm.isend(rank, (rank - 3) % size, 1),
        ]
        for request in reversed(requests):
            request.wait()
        assert comm.allreduce(ring.tobytes().count(b"\0"), MPI.MAX) == ring.tobytes().count(b"\0")

    run(SIZE, program)


def test_new_communicators_connect_their_own_ranks() -> None:
    def program(comm: Communicator) -> int:
        half = comm.Split(comm.rank % 2, comm.rank)
        both = comm.Dup()
        assert half.allreduce(1) == half.size
        assert both.sendrecv(comm.rank, (comm.rank + 4) % SIZE, 0, None, (comm.rank - 4) % SIZE, 0) is not None
        half.Free()
        both.Free()
        return int(comm.allreduce(1))

    assert run(SIZE, program) == [SIZE] * SIZE


def test_a_message_that_is_sent_before_the_end_arrives_though_no_connection_was_made() -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 1:
            comm.isend("bye", 6).wait()
            comm.Free()
        elif comm.rank == 6:
            time.sleep(0.2)
            assert comm.recv(source=1) == "bye"

    run(SIZE, program)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_rank_that_has_left_is_an_error_for_one_that_was_not_connected_with_it() -> None:
    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank != 6:
            comm.recv(source=6)

    errors = failures_of(SIZE, program, left=6)
    assert {error.rank for error in errors} == {6}


def failures_of(size: int, program: object, left: int) -> list[CommError]:
    """The errors of all ranks but one that leaves."""

    def leaving(comm: Communicator) -> None:
        assert callable(program)
        try:
            program(comm)
        finally:
            if comm.rank == left:
                comm.Free()
        if comm.rank == left:
            raise CommError("left", rank=left)

    found = [error for rank, error in enumerate(failures(size, leaving)) if rank != left]
    assert all(isinstance(error, CommError) for error in found)
    return [error for error in found if isinstance(error, CommError)]


def test_strangers_do_not_end_a_communicator_that_still_listens() -> None:
    opened = listeners(1)
    opened[0].close()

    def program(comm: Communicator) -> None:
        comm.Barrier()
        mesh = connections_of(comm).progress.mesh
        assert mesh is not None or comm.rank == 0
        if comm.rank == 1 and mesh is not None and mesh.listener is not None:
            import socket

            with socket.create_connection(mesh.listener.getsockname()) as stranger:
                stranger.sendall(b"\x03\0\0\0abc")
            with socket.create_connection(mesh.listener.getsockname()) as stranger:
                from softnic.comm import messages

                stranger.sendall(messages.pack(messages.Hello(messages.VERSION, 99, 1, 1, 0)))
        comm.Barrier()
        comm.sendrecv(1, (comm.rank + 1) % SIZE, 0, None, (comm.rank - 1) % SIZE, 0)

    run(SIZE, program)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["process", "nic"])
def test_a_killed_rank_is_an_error_on_ranks_that_are_not_connected_with_it(victim: str) -> None:
    """Rank 0, by which the others are connected, computes meanwhile: the NICs tell each other."""
    program = """
comm.Barrier()
tell(ready=True)
sys.stdin.readline()
if rank == 0:
    import time
    time.sleep(4.5)
try:
    comm.recv(source=(rank + 1) % 5)
except MPI.Exception as error:
    tell(error=str(error), rank=error.Get_error_class() and error.rank)
sys.stdin.readline()
"""
    with Cluster(nodes=6) as cluster, Job(cluster, program) as job:
        assert [job.line(rank) for rank in range(6)] == [{"ready": True}] * 6
        for process in job.ranks:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(job.ranks[5].pid if victim == "process" else cluster.stats(5).info.pid, signal.SIGKILL)
        told = [job.line(rank) for rank in (1, 2, 3)]
        assert time.monotonic() - began < TOLD_S
    assert [each["rank"] for each in told] == [5, 5, 5], told
