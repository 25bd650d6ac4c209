"""Ranks as processes, over real NICs: few tests, for what the others cannot show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster
from tests.daemon.nics import TOLD_S
from tests.mpi.ranks import by_hand
from tests.slow import slow_after

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import json, sys, zlib
import numpy as np
from softnic import MPI
from tests.mpi.ranks import gradient
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
def tell(**what):
    sys.stdout.write(json.dumps(what) + "\\n")  # one write, also where Python does not buffer: launchers merge lines
    sys.stdout.flush()
"""


class Job:
    """The same program on every rank of a cluster."""

    def __init__(self, cluster: Cluster, program: str) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-c", PRELUDE + program],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **cluster.env(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(cluster.nodes)
        ]

    def line(self, rank: int) -> Any:
        """The next thing that a rank tells."""
        output = self.ranks[rank].stdout
        assert output is not None
        text = output.readline()
        assert text, f"rank {rank} ended: {self.finish(rank)[1]}"
        return json.loads(text)

    def finish(self, rank: int) -> tuple[str, str]:
        return self.ranks[rank].communicate(timeout=300)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.ranks:
            process.kill()
            process.communicate()


def told_after_a_kill(program: str, victim: str) -> dict[int, Any]:
    """What each of three ranks that is left tells within 5 s, once they are ready and the "process" or "nic" of rank 2
    is killed."""
    with Cluster(nodes=3) as cluster, Job(cluster, program) as job:
        for rank in range(3):
            assert job.line(rank) == {"ready": True}
        pid = job.ranks[2].pid if victim == "process" else cluster.stats(2).info.pid
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        told = {rank: job.line(rank) for rank in ([0, 1] if victim == "process" else [0, 1, 2])}
        assert time.monotonic() - began < TOLD_S
    return told


def test_a_process_closes_its_connections_to_nics_when_it_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "always::ResourceWarning")
    program = """
import os
import softnic
from softnic import socket
comm.Allreduce(MPI.IN_PLACE, softnic.zeros(1000))
with socket.create_server((os.environ["SOFTNIC_IP"], 0)):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
    with Cluster(nodes=2) as cluster, Job(cluster, program) as job:
        assert [job.finish(rank) for rank in range(2)] == [("", "")] * 2


def test_every_call_over_nics_that_lose_frames() -> None:
    program = """
data = gradient(rank, 50_003)
exact, comp, reduced = np.empty_like(data), np.empty_like(data), np.empty_like(data)
comm.Allreduce(data, exact)
comm.Allreduce_comp(data, comp)
comm.Reduce_comp(data, reduced if rank == 1 else None, root=1)
assert rank != 1 or reduced.tobytes() == comp.tobytes()
other = np.empty_like(data)
comm.Allreduce_comp(data, other, codec="inceptionn:10")
blocks = np.empty(1000 * size, np.float32)
comm.Allgather_comp(data[:1000].copy(), blocks, codec="bounded:12")
comm.Bcast_comp(data, root=2, codec="bounded:8")
if rank == 0:
    comm.Send_comp(data, 1, codec="bounded:8")
    comm.send("hello", 1)
elif rank == 1:
    comm.Recv_comp(other, 0)
    assert other.tobytes() == data.tobytes() and comm.recv() == "hello"
    other[:] = 0
total = comm.allreduce(rank)
comm.Barrier()
tell(exact=zlib.crc32(exact), comp=comp.tobytes().hex(), blocks=zlib.crc32(blocks), data=zlib.crc32(data), total=total)
"""
    link = {"rate": "1gbit", "delay": "20us", "loss": "0.5%", "reorder": "1%", "duplicate": "0.5%"}
    with Cluster(nodes=3, seed=7, codec="bounded:10", **link) as cluster, Job(cluster, program) as job:  # type: ignore[arg-type]
        told = [job.line(rank) for rank in range(3)]
        counters = cluster.stats(0).counters
    assert told[0] == told[1] == told[2]
    assert told[0]["total"] == 3
    assert bytes.fromhex(told[0]["comp"]) == by_hand(3, 50_003, "bounded:10").tobytes()
    assert counters["tx_offload_encoded_bytes"] * 2 < counters["tx_offload_original_bytes"]


@pytest.mark.parametrize("victim", slow_after(1, ["process", "nic"]))
def test_a_killed_process_or_nic_is_an_error_on_every_rank_within_5_s(victim: str) -> None:
    program = """
import time
data = np.ones(1_000_000, np.float32)
try:
    comm.Barrier()
    tell(ready=True)
    while True:
        comm.Allreduce(MPI.IN_PLACE, data)
except MPI.Exception as error:
    tell(error=str(error), rank=error.rank, call=error.call)
"""
    for rank, told in told_after_a_kill(program, victim).items():
        assert (told["rank"], told["call"]) == (2, "Allreduce")
        assert f"Allreduce on rank {rank}" in told["error"]
        assert "rank 2 is gone" in told["error"] or "rank 2 lost its NIC" in told["error"]


def test_ranks_that_disagree_over_nics() -> None:
    program = """
try:
    comm.Allreduce_comp(MPI.IN_PLACE, np.zeros(1000 + (rank == 1), np.float32), codec="bounded:10")
except MPI.Exception as error:
    tell(error=str(error))
"""
    with Cluster(nodes=3) as cluster, Job(cluster, program) as job:
        for rank in range(3):
            error = job.line(rank)["error"]
            assert "rank 1" in error
            assert "Allreduce_comp(1001 x float32, op=SUM, codec=bounded:10, algorithm=tree)" in error


def test_one_rank_needs_no_nic_and_no_variables() -> None:
    program = (
        PRELUDE
        + """
assert MPI.Is_initialized() and not MPI.COMM_WORLD.connected
data = gradient(0, 100)
comm.Allreduce_comp(MPI.IN_PLACE, data)
assert data.tobytes() == gradient(0, 100).tobytes()
assert comm.allgather(MPI.Wtime() > 0) == [True]
assert MPI.Is_initialized() and not MPI.Is_finalized()
MPI.Finalize()
assert MPI.Is_finalized()
tell(rank=rank, size=size)
"""
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTNIC", "RANK", "WORLD_SIZE"))}
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=kept, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"rank": 0, "size": 1}


class UnevenCluster(Cluster):
    """Its last node has a fifth of the others' rate."""

    def _start_nic(self, node: int, wires: list[str], flags: list[str]) -> int:
        slow = ["--rate", "40mbit"] if node == self.nodes - 1 else []
        return super()._start_nic(node, wires, flags + slow)


@pytest.mark.slow
def test_a_slow_rank_gets_no_block() -> None:
    """All ranks agree on it, with the same bits. Calls last longer than two windows in which rates are measured."""
    program = """
found = []
for number in range(4):
    values = gradient(rank, 3_000_000)
    comm.Allreduce(MPI.IN_PLACE, values)
    found.append(zlib.crc32(values.tobytes()))
tell(found=found)
comm.Barrier()
sys.stdin.readline()
"""
    with UnevenCluster(nodes=4, rate="200mbit") as cluster, Job(cluster, program) as job:
        told = [job.line(rank)["found"] for rank in range(4)]
        plans = {communicator.paths for node in range(4) for communicator in cluster.stats(node).communicators}
    assert told == [told[0]] * 4
    [plan] = plans
    *others, slow = plan.removeprefix("shares ").split()
    assert slow == "0%"
    assert sum(float(share.removesuffix("%")) for share in others) == pytest.approx(100, abs=0.2)
