"""The bytes that methods report, compared with the counters of real NICs, with one process per rank."""

from __future__ import annotations

import pytest

from softnic import Cluster
from tests.mpi.test_cluster import Job

PROGRAM = """
from softnic import gradients
from softnic.gradients import get
methods = [get(text) for text in %r]
def call(method):
    draw = np.random.default_rng([rank, method.stats.calls])
    gradient = (draw.standard_normal(200_000) * 0.01).astype(np.float32)
    method.average(comm, {"a": gradient})
    return zlib.crc32(gradient)
for method in methods:
    found = comm.allgather(call(method))
    tell(same=len(set(found)) == 1, executed=comm.executed)
    sys.stdin.readline()
    first = method.stats.sent_bytes
    for _ in range(4):
        call(method)
    comm.Barrier()
    tell(sent=method.stats.sent_bytes - first)
    sys.stdin.readline()
"""
METHODS = {
    "exact": 1.0,
    "sparse-gd:0.01": 1.0,
    "dgc:0.01": 1.0,
    "scalecom:0.01": 1.0,
    "sparseloco:0.01": 1.0,
    "feedback:relative:0": 1.2,
}
"""Wire bytes of each method on two ranks, as a multiple of the reported bytes. Half of a compressed exchange are sums,
which take more bytes than their terms."""


def test_reported_bytes_are_on_the_wire() -> None:
    """With two ranks everything crosses the link once, plus headers and the control messages of collectives."""
    with Cluster(nodes=2) as cluster, Job(cluster, PROGRAM % (list(METHODS),)) as job:

        def wire() -> int:
            return sum(cluster.stats(rank).counters["tx_wire_bytes"] for rank in range(2))

        def go_on() -> None:
            for process in job.ranks:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()

        for method, crossings in METHODS.items():
            assert [job.line(rank) for rank in range(2)] == [{"same": True, "executed": True}] * 2
            before = wire()
            go_on()
            sent = sum(job.line(rank)["sent"] for rank in range(2))
            crossed = wire() - before
            assert crossed == pytest.approx(crossings * sent, rel=0.15, abs=16_000), method
            go_on()
