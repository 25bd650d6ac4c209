"""Survivors of real deaths: of a process, and of a NIC with it. They agree, shrink and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from softnic import Cluster
from tests.daemon.nics import TOLD_S

_PROGRAM = """
import numpy as np
from softnic import MPI
comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
floats = np.ones(200_000, np.float32)
comm.Allreduce(MPI.IN_PLACE, floats)
print("begun", flush=True)
try:
    while True:
        comm.Allreduce(MPI.IN_PLACE, floats)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED, error
try:
    comm.Agree(3)
except MPI.Exception as error:
    assert "rank 1 has failed" in str(error), error
comm = comm.Shrink()
floats[:] = rank
comm.Allreduce(MPI.IN_PLACE, floats)
print(comm.rank, comm.size, floats.min(), floats.max(), flush=True)
"""


@pytest.mark.parametrize("victim", ["process", "nic"])
def test_those_that_are_left_go_on(victim: str) -> None:
    with Cluster(nodes=4) as cluster:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                env={**os.environ, **cluster.env(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if rank == 1 else None,
                text=True,
            )
            for rank in range(4)
        ]
        try:
            for rank in ranks:
                assert rank.stdout is not None
                assert rank.stdout.readline() == "begun\n"
            os.kill((ranks[1] if victim == "process" else cluster.nics[1]).pid, signal.SIGKILL)
            began = time.monotonic()
            found = [ranks[rank].communicate(timeout=30)[0] for rank in (0, 2, 3)]
            took_s = time.monotonic() - began
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()
    assert found == ["0 3 5.0 5.0\n", "1 3 5.0 5.0\n", "2 3 5.0 5.0\n"]
    assert took_s < 2 * TOLD_S
