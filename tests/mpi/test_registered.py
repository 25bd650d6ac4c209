"""Collectives on registered memory, over real NICs: the same bits as on any other, whatever is mixed."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest

from benchmarks.schedules import execute
from softnic import Cluster, codecs
from tests.mpi.ranks import by_hand, gradient
from tests.mpi.test_cluster import Job, told_after_a_kill
from tests.slow import slow_after

MAKE = """
import gc, os, time, zlib
import softnic
from softnic import socket
def make(kind, like):
    array = softnic.empty(like.shape, like.dtype) if kind == "registered" else np.empty_like(like)
    array[...] = like
    return array
"""

EVERY_CALL = (
    MAKE
    + """
os.environ["SOFTNIC_PATHS"] = "off"  # on a busy machine ranks may find that links differ, and bits depend on the plan
def every_call(kind, other, count):
    "All collectives, on buffers of this kind (the input) and the other (the result); digests of all results."
    data, results = gradient(rank, count), []
    source, result = make(kind, data), make(other, np.zeros_like(data))
    comm.Allreduce(source, result)
    results.append(result.copy())
    for codec in ("bounded:10", "inceptionn:10"):
        comm.Allreduce_comp(source, result, codec=codec)
        results.append(result.copy())
    result[:] = data
    comm.Allreduce_comp(MPI.IN_PLACE, result, codec="bounded:10")
    results.append(result.copy())
    result[:] = data
    comm.Allreduce(MPI.IN_PLACE, result, MPI.MAX)
    results.append(result.copy())
    result[:] = 0
    comm.Reduce_comp(source, result if rank == 1 else None, root=1, codec="bounded:10")
    comm.Reduce(source, result if rank == 0 else None, root=0)
    results.append(comm.bcast(result.copy() if rank == 0 else None, root=0))
    block = make(other, np.zeros(len(range(rank, count, size)), np.float32))
    comm.Reduce_scatter(source, block)
    results.append(np.concatenate(comm.allgather(block.copy())))
    comm.Reduce_scatter_comp(source, block, codec="bounded:10")
    results.append(np.concatenate(comm.allgather(block.copy())))
    part, whole = make(kind, data[: count // 7]), make(other, np.zeros(count // 7 * size, np.float32))
    comm.Allgather(part, whole)
    results.append(whole.copy())
    comm.Allgather_comp(part, whole, codec="bounded:10")
    results.append(whole.copy())
    for root in range(size):
        source[:] = data
        comm.Bcast(source, root=root)
        results.append(source.copy())
        source[:] = data
        comm.Bcast_comp(source, root=root, codec="bounded:8")
        results.append(source.copy())
    half = make(kind, np.arange(count, dtype=np.float64) * (rank + 1))
    comm.Allreduce(MPI.IN_PLACE, half)
    results.append(half.copy())
    comm.Barrier()
    return [zlib.crc32(result.tobytes()) for result in results]
"""
)


def digests(job: Job, ranks: int) -> Any:
    told = [job.line(rank) for rank in range(ranks)]
    assert all(each == told[0] for each in told)
    return told[0]


@pytest.mark.parametrize(
    "link", slow_after(1, [{}, {"rate": "1gbit", "loss": "0.5%", "reorder": "1%", "duplicate": "0.5%"}])
)
def test_every_call_gives_the_same_bits_on_any_memory(link: dict[str, str]) -> None:
    program = (
        EVERY_CALL
        + """
for count in (200_003, 5_000):
    expected = every_call("plain", "plain", count)
    for kind in ("registered", "plain"):
        for other in ("registered", "plain"):
            assert every_call(kind, other, count) == expected, (kind, other, count)
own = every_call("registered" if rank == 1 else "plain", "registered" if rank != 2 else "plain", 200_003)
tell(expected=expected, own=own)
"""
    )
    with Cluster(nodes=3, seed=3, **link) as cluster, Job(cluster, program) as job:  # type: ignore[arg-type]
        digests(job, 3)
        assert [job.finish(rank)[1] for rank in range(3)] == [""] * 3
        assert all(cluster.stats(node).counters["work_requests_malformed"] == 0 for node in range(3))


def test_views_of_registered_arrays_and_all_dtypes() -> None:
    program = (
        MAKE
        + """
big = softnic.empty(1_000_000)
view = big[100_001:300_004]
view[:] = gradient(rank, view.size)
big[:100_001] = big[300_004:] = 7
comm.Allreduce_comp(MPI.IN_PLACE, view, codec="bounded:10")
assert (big[:100_001] == 7).all() and (big[300_004:] == 7).all()
matrix = softnic.empty((300, 200), np.int64)
matrix[:] = rank + 1
comm.Allreduce(MPI.IN_PLACE, matrix.T)
assert (matrix == 6).all()
for dtype in ("uint8", "float64", "complex128", "int16"):
    array = softnic.empty(100_003, dtype)
    array[:] = rank + 1
    comm.Allreduce(MPI.IN_PLACE, [array, 50_001])
    assert (array[:50_001] == 6).all() and (array[50_001:] == rank + 1).all()
tell(view=view.tobytes().hex()[:4000])
"""
    )
    with Cluster(nodes=3) as cluster, Job(cluster, program) as job:
        told = digests(job, 3)
    assert bytes.fromhex(told["view"]) == by_hand(3, 200_003, "bounded:10").tobytes()[:2000]


def test_all_algorithms() -> None:
    """Some ranks' memory registered, others' not: blocks are combined behind one another as both kinds. Frames get
    lost, so memory that results overwrite is sent again."""
    program = (
        MAKE
        + """
found = {}
for kinds in (("registered",) * 4, ("registered", "plain") * 2):
    for algorithm in ("direct", "tree", "hierarchical", "wa"):
        array = make(kinds[rank], gradient(rank, 700_001))
        comm.Allreduce_comp(MPI.IN_PLACE, array, codec="bounded:10", algorithm=algorithm)
        found.setdefault(algorithm, []).append(zlib.crc32(array))
tell(**found)
"""
    )
    with Cluster(nodes=4, loss="0.3%", reorder="0.5%") as cluster, Job(cluster, program) as job:
        told = [job.line(rank) for rank in range(4)]
    contributions = [gradient(rank, 700_001) for rank in range(4)]
    for algorithm in ("direct", "tree", "hierarchical", "wa"):
        digest = zlib.crc32(execute(contributions, algorithm, codecs.get("bounded:10"))[0].tobytes())
        assert [each[algorithm] for each in told] == [[digest, digest]] * 4


def test_single_messages() -> None:
    program = (
        MAKE
        + """
data = gradient(5, 300_001)
for kind in ("plain", "registered"):
    for other in ("registered", "plain"):
        array = make(kind if rank == 0 else other, data if rank == 0 else np.zeros_like(data))
        if rank == 0:
            comm.Send(array, 1, tag=1)
            array[:] = 0  # it is ours again
            array[:] = data
            comm.Send_comp(array, 1, tag=2, codec="bounded:8")
            array[:] = 0
            comm.send({"a": 1}, 1)
        else:
            comm.Recv(array, 0, tag=1)
            assert array.tobytes() == data.tobytes()
            comm.Recv_comp(array, 0, tag=2)
            assert array.tobytes() == softnic.codecs.get("bounded:8").roundtrip(data).tobytes()
            assert comm.recv(source=0) == {"a": 1}
# Messages that nobody waits for yet, and small ones between large ones.
large = make("registered", data)
for _ in range(5):
    if rank == 0:
        comm.Send(large, 1, tag=3)
        comm.Send(large[:100], 1, tag=4)
        comm.Send(large[5:50_000], 1, tag=5)
    else:
        got = [make("registered", np.zeros_like(data)) for _ in range(3)]
        for index, (tag, size) in enumerate([(5, 49_995), (4, 100), (3, 300_001)]):
            comm.Recv(got[index], 0, tag=tag)
        assert got[2].tobytes() == data.tobytes()
        assert got[1][:100].tobytes() == data[:100].tobytes() and not got[1][100:].any()
        assert got[0][:49_995].tobytes() == data[5:50_000].tobytes()
comm.Barrier()
tell(done=True)
"""
    )
    with Cluster(nodes=2) as cluster, Job(cluster, program) as job:
        assert digests(job, 2) == {"done": True}


def test_what_was_sent_is_the_callers_again() -> None:
    """The buffers change right after each call, on links that lose frames."""
    program = (
        MAKE
        + """
buffer = softnic.empty(100_003)
data = gradient(rank, buffer.size)
expected = None
for turn in range(15):
    buffer[:] = data
    comm.Allreduce_comp(MPI.IN_PLACE, buffer, codec="bounded:10")
    digest = zlib.crc32(buffer.tobytes())
    expected = expected or digest
    assert digest == expected, turn
    buffer[:] = np.nan
tell(digest=expected)
"""
    )
    with Cluster(nodes=3, seed=5, loss="2%", reorder="2%") as cluster, Job(cluster, program) as job:
        digests(job, 3)


def test_memory_is_given_back() -> None:
    program = (
        MAKE
        + """
for size in (50_000, 100_000, 200_000):
    array = softnic.empty(size)
    array[:] = 1
    comm.Allreduce(MPI.IN_PLACE, array)
    assert array[0] == 2
    del array
    gc.collect()
comm.Barrier()
tell(done=True)
sys.stdin.readline()
"""
    )
    with Cluster(nodes=2) as cluster, Job(cluster, program) as job:
        digests(job, 2)
        scratch = [cluster.stats(node).counters["region_bytes"] for node in range(2)]
        assert scratch == [4 << 20] * 2  # what a rank keeps for what it combines
        for rank in range(2):
            job.ranks[rank].kill()
        deadline = time.monotonic() + 60
        while any(cluster.stats(node).counters["regions"] for node in range(2)):
            assert time.monotonic() < deadline


@pytest.mark.parametrize("victim", slow_after(1, ["process", "nic"]))
def test_a_killed_process_or_nic_is_an_error_on_every_rank_within_5_s(victim: str) -> None:
    program = (
        MAKE
        + """
data = softnic.zeros(1_000_000)
try:
    comm.Barrier()
    tell(ready=True)
    while True:
        comm.Allreduce_comp(MPI.IN_PLACE, data, codec="bounded:10")
except MPI.Exception as error:
    tell(error=str(error), rank=error.rank, call=error.call)
"""
    )
    for told in told_after_a_kill(program, victim).values():
        assert (told["rank"], told["call"]) == (2, "Allreduce_comp")
        assert "is gone" in told["error"] or "rank 2 lost its NIC" in told["error"]


def test_a_rank_that_is_gone_before_the_first_registered_call() -> None:
    program = (
        MAKE
        + """
comm.Barrier()
if rank == 1:
    tell(gone=True)
    os.kill(os.getpid(), 9)
sys.stdin.readline()
try:
    comm.Allreduce(MPI.IN_PLACE, softnic.zeros(1_000_000))
except MPI.Exception as error:
    tell(error=str(error), rank=error.rank)
"""
    )
    with Cluster(nodes=3) as cluster, Job(cluster, program) as job:
        assert job.line(1) == {"gone": True}
        job.ranks[1].wait()
        for rank in (0, 2):
            stdin = job.ranks[rank].stdin
            assert stdin is not None
            stdin.write("\n")
            stdin.flush()
        for rank in (0, 2):
            told = job.line(rank)
            assert told["rank"] == 1
            assert "rank 1 is gone" in told["error"]


def test_after_an_error_the_memory_is_the_callers_at_once() -> None:
    """A rank that gives up in the middle of a call may write to its buffer: nobody gets what it writes."""
    program = (
        MAKE
        + """
import signal
data = softnic.empty(4_000_000)
data[:] = 1
comm.Allreduce(MPI.IN_PLACE, softnic.zeros(100_000))
class Enough(Exception):
    pass
def stop(*_):
    raise Enough
signal.signal(signal.SIGALRM, stop)
if rank == 1:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    for turn in range(1000):
        data[:] = 1
        comm.Allreduce(MPI.IN_PLACE, data)
        assert (data == size).all()
except Enough:
    data[:] = 99
    time.sleep(0.5)
    tell(error="own", clean=bool((data == 99).all()))
except MPI.Exception as error:
    tell(error=str(error), clean=True)
"""
    )
    with Cluster(nodes=3, rate="300mbit") as cluster, Job(cluster, program) as job:
        told = [job.line(rank) for rank in range(3)]
    assert told[1] == {"error": "own", "clean": True}
    assert all("rank 1" in told[rank]["error"] for rank in (0, 2))
