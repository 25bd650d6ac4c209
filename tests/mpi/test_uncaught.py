"""A rank that an uncaught exception ends: the others learn which."""

from __future__ import annotations

import pytest

from softnic import Cluster
from tests.mpi.test_cluster import Job

RAISES = """
comm.Barrier()
if rank == 1:
    raise KeyError("labels.txt")
try:
    {call}
except RuntimeError as error:
    tell(error=str(error), rank=error.rank)
"""
CALLS = {
    "blocking": "comm.Allreduce(MPI.IN_PLACE, np.zeros(4))",
    "executed by the NICs": "comm.Iallreduce(MPI.IN_PLACE, np.zeros(4)).Wait()",
    "message": "comm.recv(source=1)",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_error_of_other_ranks_names_the_exception(call: str) -> None:
    with Cluster(nodes=2) as cluster, Job(cluster, RAISES.format(call=CALLS[call])) as job:
        told = job.line(0)
    assert told["rank"] == 1
    assert "rank 1 has left" in told["error"]
    assert "it raised KeyError: 'labels.txt'" in told["error"]
