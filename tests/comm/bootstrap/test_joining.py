"""Ranks that join late or exit before their first call, as processes, with given NICs and with one that is started."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from softnic import Cluster
from tests.comm.bootstrap.test_nic_launcher import as_torchrun, clean
from tests.mpi.test_cluster import ROOT

TIMEOUT_S = 1.0
LIMIT_S = 60.0
BARRIER = """
import json, sys
from softnic import MPI
comm = MPI.COMM_WORLD
try:
    comm.Barrier()
    print(json.dumps({"done": comm.rank}), flush=True)
except MPI.Exception as error:
    print(json.dumps({"error": str(error), "rank": error.rank}), flush=True)
    sys.exit(1)
"""
LATE_TO_START = "import sys\nsys.stdin.readline()\n" + BARRIER
LATE_TO_CALL = "import sys\nfrom softnic import MPI\nMPI.COMM_WORLD.Get_rank()\nsys.stdin.readline()\n" + BARRIER
SLOW_CASES = [(LATE_TO_START, 0), (LATE_TO_CALL, 1)]
ENDS_AT_ONCE = "import softnic.MPI"
ENDS_WITHOUT_A_CALL = "from softnic import MPI\nassert MPI.COMM_WORLD.Get_size() == 2"
FAILS_WITHOUT_A_CALL = "from softnic import MPI\nMPI.COMM_WORLD.Get_size()\nraise ValueError('bad data')"


class Rank:
    """A process of a rank."""

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**clean(), "SOFTNIC_RENDEZVOUS_TIMEOUT": str(TIMEOUT_S), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def is_silent(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        return not select.select([self.process.stdout.fileno()], [], [], seconds)[0]

    def result(self) -> Any:
        """Read all output, and return the result in it."""
        out, errors = self.process.communicate("\n", timeout=LIMIT_S)
        assert out, errors
        return json.loads(out)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as started:
        yield started


@pytest.fixture(params=["given NICs", pytest.param("a started NIC", marks=pytest.mark.slow)])
def environments(request: pytest.FixtureRequest, cluster: Cluster) -> list[dict[str, str]]:
    """Return the environment variables of two ranks."""
    if request.param == "given NICs":
        return [cluster.env(rank) for rank in range(2)]
    run = f"{os.getpid()}-{request.node.name}"
    return [as_torchrun(rank, 2, run) for rank in range(2)]


def kill(*ranks: Rank) -> None:
    for rank in ranks:
        rank.process.kill()
        rank.process.communicate()


@pytest.mark.parametrize(
    ("program", "late"),
    [(LATE_TO_START, 1), (LATE_TO_CALL, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES)],
)
def test_ranks_wait_for_a_rank_while_its_process_lives(
    environments: list[dict[str, str]], program: str, late: int
) -> None:
    ranks = [Rank(program if rank == late else BARRIER, environments[rank]) for rank in range(2)]
    try:
        assert ranks[1 - late].is_silent(3 * TIMEOUT_S)
        assert [rank.result() for rank in (ranks[late], ranks[1 - late])] == [{"done": late}, {"done": 1 - late}]
    finally:
        kill(*ranks)


@pytest.mark.parametrize("program", [ENDS_AT_ONCE, ENDS_WITHOUT_A_CALL, FAILS_WITHOUT_A_CALL])
def test_a_rank_that_exits_without_a_call_is_named(environments: list[dict[str, str]], program: str) -> None:
    ranks = [Rank(program if rank else BARRIER, environments[rank]) for rank in range(2)]
    try:
        result = ranks[0].result()
    finally:
        kill(*ranks)
    assert result["rank"] == 1
    errors = (
        "rank 1 exited without joining",
        "rank 1 exited before all ranks had joined",
        "did not meet rank 1",
        "it made no collective call",
        "rank 1 is gone",
        "has no valid entry of rank 1",
    )
    assert any(text in result["error"] for text in errors)


def test_rank_0_says_that_it_refused_connections_to_its_store() -> None:
    run = f"{os.getpid()}-refused"
    ranks = [Rank(BARRIER, {**as_torchrun(rank, 2, run), "SOFTNIC_JOB_SECRET": str(rank)}) for rank in range(2)]
    try:
        errors = [rank.result()["error"] for rank in ranks]
    finally:
        kill(*ranks)
    assert "SOFTNIC_JOB_SECRET differs there" in errors[1]
    assert re.search(r"connections to the store that rank 0 refused, of strangers or of other jobs: \d+$", errors[0])


def test_a_rank_that_joins_and_leaves_without_a_call(cluster: Cluster) -> None:
    leaves = "from softnic import MPI\nMPI.Init()\nprint('joined', flush=True)"
    ranks = [Rank(LATE_TO_CALL, cluster.env(0)), Rank(leaves, cluster.env(1))]
    try:
        out, errors = ranks[1].process.communicate(timeout=LIMIT_S)
        assert (out, errors) == ("joined\n", "")  # rank 0 has joined too, in its other thread
        result = ranks[0].result()
    finally:
        kill(*ranks)
    assert result["rank"] == 1
    assert "rank 1 has left without Barrier(): it made no collective call" in result["error"]


def test_a_rank_can_abort_while_it_joins(cluster: Cluster) -> None:
    aborts = "from softnic import MPI\nMPI.COMM_WORLD.Get_rank()\nMPI.COMM_WORLD.Abort(3)"
    ranks = [Rank(aborts, {**cluster.env(0), "SOFTNIC_RENDEZVOUS_TIMEOUT": "600"}), Rank(LATE_TO_START, cluster.env(1))]
    try:
        assert ranks[0].process.wait(LIMIT_S) == 3
        assert ranks[1].process.poll() is None
    finally:
        kill(*ranks)


def test_a_fork_does_not_join_in_place_of_its_parent(cluster: Cluster) -> None:
    program = """
import json, os, sys
from softnic import MPI
comm = MPI.COMM_WORLD
comm.Get_rank()
if not os.fork():
    try:
        comm.Barrier()
    except MPI.Exception as error:
        print(json.dumps({"child": str(error)}), flush=True)
    os._exit(0)
os.wait()
"""
    ranks = [Rank(program + BARRIER, cluster.env(0)), Rank(LATE_TO_START, cluster.env(1))]
    try:
        assert ranks[0].process.stdout
        assert "belong to the process that this one was forked from" in ranks[0].process.stdout.readline()
        assert [ranks[1].result(), ranks[0].result()] == [{"done": 1}, {"done": 0}]
    finally:
        kill(*ranks)
