"""Calls that a program makes while the ranks join: asking for the rank starts a thread that joins."""

from __future__ import annotations

from softnic import Cluster
from tests.mpi.test_cluster import Job

RANKS = 4


def test_a_call_waits_until_all_ranks_have_joined() -> None:
    program = "tell(total=comm.allreduce(rank))"
    with Cluster(nodes=RANKS) as cluster:
        for _ in range(3):
            with Job(cluster, program) as job:
                assert [job.line(rank)["total"] for rank in range(RANKS)] == [6] * RANKS
