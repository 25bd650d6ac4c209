"""Collectives that real NICs execute: the bits of the blocking calls, in any order and memory; and their faults."""

from __future__ import annotations

import os
import select
import signal
import socket as stdlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import pytest

from softnic import Cluster
from softnic.cluster.nic_process import node_ip
from tests.daemon.nics import TOLD_S
from tests.mpi.test_cluster import Job
from tests.slow import slow_after

LINK = {"rate": "1gbit", "delay": "20us", "loss": "0.3%", "reorder": "0.5%", "duplicate": "0.3%"}

EVERY_CALL = """
import asyncio, softnic
def make(kind, like):
    array = softnic.empty(like.shape, like.dtype) if kind == "registered" else np.empty_like(like)
    array[...] = like
    return array

def both(kind, count, codec, in_turn):
    "Results of the blocking calls, and of the others."
    comp = {} if codec is None else {"codec": codec}
    data, twin = gradient(rank, count), "" if codec is None else "_comp"
    found = []
    for prefix in ("", "I"):
        results, requests = [], []
        def call(name, *arguments, keep):
            name = prefix + (name.lower() if prefix else name) + twin
            request = getattr(comm, name)(*arguments, **comp)
            results.append(keep)
            if request is not None:
                requests.append(request)
                if in_turn:
                    request.Wait()
        source = make(kind, data)
        blank = lambda size: make(kind, np.zeros(size, np.float32))
        sums, in_place, mean, at_root = blank(count), make(kind, data), blank(count), blank(count)
        call("Allreduce", source, sums, keep=sums)
        call("Allreduce", MPI.IN_PLACE, in_place, MPI.MAX, keep=in_place)
        call("Allreduce", source, mean, MPI.AVG, keep=mean)
        call("Reduce", source, at_root if rank == 1 else None, MPI.SUM, 1, keep=at_root)
        own = blank(len(range(rank, count, size)))
        call("Reduce_scatter", source, own, keep=own)
        part = make(kind, data)
        call("Reduce_scatter", MPI.IN_PLACE, part, keep=part[: own.size])
        equal, whole = make(kind, data[: count // size * size]), blank(count // size)
        call("Reduce_scatter_block", equal, whole, keep=whole)
        gathered = blank(count * size)
        call("Allgather", source, gathered, keep=gathered)
        for root in range(size):
            sent = make(kind, data)
            call("Bcast", sent, root, keep=sent)
        MPI.Request.Waitall(requests)
        found.append([zlib.crc32(result.tobytes()) for result in results])
    return found
"""


@contextmanager
def job(nodes: int, program: str, **link: Any) -> Iterator[tuple[Cluster, Job]]:
    with Cluster(nodes=nodes, codec="bounded:10", **link) as cluster, Job(cluster, program) as ranks:
        yield cluster, ranks


def test_the_bits_of_the_blocking_calls_over_links_that_lose_frames() -> None:
    program = (
        EVERY_CALL
        + """
import os
os.environ["SOFTNIC_PATHS"] = "off"  # else what NICs measure may change the plan between the calls, and so their bits
for kind, count, codec, in_turn in (
    ("registered", 50_003, None, False), ("ordinary", 50_003, None, False), ("ordinary", 7, None, False),
    ("registered", 50_003, "bounded:10", False), ("ordinary", 50_003, "inceptionn:10", False),
    ("registered", 300_007, "bfp:7", True), ("ordinary", 1, "bounded:8", False), ("registered", 0, "bounded:8", True),
):
    blocking, executed = both(kind, count, codec, in_turn)
    tell(equal=blocking == executed, case=[kind, count, codec], sums=executed[0])
tell(done=True)
"""
    )
    with job(3, program, seed=3, **LINK) as (cluster, ranks):
        for _ in range(8):
            told = [ranks.line(rank) for rank in range(3)]
            assert all(each["equal"] for each in told), told
            assert len({each["sums"] for each in told}) == 1
        counters = cluster.stats(1).counters
    assert counters["collectives_posted"] == counters["collectives_completed"] >= 2 * 8 * 11


def test_requests_in_flight_beside_blocking_calls_threads_and_await() -> None:
    program = """
import asyncio, threading, softnic
arrays = [gradient(rank, 100_000 + index) for index in range(12)]
expected = [sum(gradient(each, array.size).astype(np.float64) for each in range(size)) for array in arrays]
requests = [comm.Iallreduce(MPI.IN_PLACE, array) for array in arrays]
assert comm.allreduce(rank) == 3
comm.Allreduce(MPI.IN_PLACE, np.ones(1000))
threads = [threading.Thread(target=request.Wait) for request in requests[:4]]
for thread in threads:
    thread.start()
async def main():
    await asyncio.gather(*requests[4:8])
    await comm.Ibarrier()
asyncio.run(main())
for thread in threads:
    thread.join()
left = {8, 9, 10, 11}
while (index := MPI.Request.Waitany(requests)) != MPI.UNDEFINED:
    left.discard(index)
assert not left
assert all(np.allclose(array, exact, atol=1e-6) for array, exact in zip(arrays, expected))
comm.Iallreduce(MPI.IN_PLACE, arrays[0])  # nobody waits for it
comm.Ibarrier().Wait()
names = {"done": True, "bytes": sum(array.nbytes for array in arrays)}
MPI.Finalize()
tell(**names)
"""
    with job(3, program) as (_, ranks):
        for rank in range(3):
            assert ranks.line(rank)["done"]
            assert ranks.finish(rank)[1] == ""


def test_progress_needs_no_call_of_the_process() -> None:
    """All of a collective is done while no rank does anything but stare at its own memory."""
    program = """
import softnic
data = softnic.empty(2_000_000)
data[:] = rank + 1
comm.Barrier()
request = comm.Iallreduce(MPI.IN_PLACE, data)
while data[0] != 6 or data[-1] != 6 or data[999_999] != 6:
    pass
request.Wait()
tell(done=bool((data == 6).all()))
"""
    with job(3, program) as (_, ranks):
        assert all(ranks.line(rank) == {"done": True} for rank in range(3))


IN_PROGRESS = """
import softnic
data = [softnic.zeros(500_000), np.zeros(300_000, np.float32), softnic.zeros(20_000)]
def post(index):
    return comm.Iallreduce_comp(MPI.IN_PLACE, data[index]) if index else comm.Iallreduce(MPI.IN_PLACE, data[0], MPI.MAX)
requests, posting = [], False
try:
    comm.Ibarrier().Wait()
    requests = [post(index) for index in range(3)]
    tell(ready=True)
    for turn in range(10**9):
        WAIT
        posting = True
        requests[turn % 3] = post(turn % 3)
        posting = False
except MPI.Exception as error:
    failed = 0
    for request in requests:
        try:
            request.Wait()
        except MPI.Exception as another:
            failed += "Iallreduce" in another.call
    tell(error=str(error), rank=error.rank, call=error.call, failed=failed, posting=posting, ended=comm.ended)
"""
"""Three requests in progress, always."""

WAITS = {
    "Wait": "requests[turn % 3].Wait()",
    "await": "import asyncio; asyncio.run(asyncio.wait_for(requests[turn % 3], None))",
    "Test": "all(iter(requests[turn % 3].Test, True))",
}
BLOCKING = """
import softnic
data = softnic.zeros(500_000)
try:
    comm.Allreduce(MPI.IN_PLACE, data)
    tell(ready=True)
    while True:
        comm.Allreduce(MPI.IN_PLACE, data)
except MPI.Exception as error:
    tell(error=str(error), rank=error.rank, call=error.call)
"""

FORKED = """
import os
if rank == 2:
    comm.Barrier()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        sys.stdin.read()  # until the test is over
        os._exit(0)
else:
    comm.Barrier()
"""

FAULTS = [("process", "Wait"), ("nic", "Wait"), ("stopped nic", "Wait"), ("stopped nic", "await"), ("nic", "Test")]


def check(told: dict[int, Any]) -> None:
    for rank, what in told.items():
        assert what["call"].startswith("Iallreduce"), what
        assert f"{what['call']} on rank {rank}" in what["error"]
        # How many were over depends on the machine; where the next post was refused, all of them may have been.
        assert what["failed"] >= 1 or what["posting"]
        assert what["ended"]


@pytest.mark.parametrize(("victim", "wait"), slow_after(1, FAULTS))
def test_a_fault_is_an_error_of_every_request_on_every_rank_within_5_s(victim: str, wait: str) -> None:
    with job(3, IN_PROGRESS.replace("WAIT", WAITS[wait])) as (cluster, ranks):
        for rank in range(3):
            assert ranks.line(rank) == {"ready": True}
        pid = ranks.ranks[2].pid if victim == "process" else cluster.stats(2).info.pid
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP if victim == "stopped nic" else signal.SIGKILL)
        told = {rank: ranks.line(rank) for rank in ([0, 1] if victim == "process" else [0, 1, 2])}
        assert time.monotonic() - began < TOLD_S
    check(told)
    for rank, what in told.items():
        assert what["rank"] == 2, told
        assert ("NIC" if rank == 2 else "rank 2") in what["error"]


@pytest.mark.slow
def test_a_nic_that_stands_still_is_an_error_of_a_blocking_call_too() -> None:
    with job(3, BLOCKING) as (cluster, ranks):
        for rank in range(3):
            assert ranks.line(rank) == {"ready": True}
        began = time.monotonic()
        os.kill(cluster.stats(2).info.pid, signal.SIGSTOP)
        told = [ranks.line(rank) for rank in range(3)]
        assert time.monotonic() - began < TOLD_S
    assert [(what["rank"], what["call"]) for what in told] == [(2, "Allreduce")] * 3
    reasons = ("rank 2 lost its NIC", "the NIC of rank 2 stalled", "rank 2 is gone")  # the last: of peers
    assert any(reason in told[2]["error"] for reason in reasons), told[2]["error"]


def test_the_connections_of_a_process_end_with_it_though_one_was_forked_from_it() -> None:
    with job(3, FORKED + IN_PROGRESS.replace("WAIT", WAITS["Wait"])) as (_, ranks):
        for rank in range(3):
            assert ranks.line(rank) == {"ready": True}
        began = time.monotonic()
        ranks.ranks[2].kill()
        told = {rank: ranks.line(rank) for rank in (0, 1)}
        assert time.monotonic() - began < TOLD_S
    check(told)
    assert [what["rank"] for what in told.values()] == [2, 2]


class Wires:
    """UDP relays between the NICs of a cluster: wires that can be cut."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.pairs = {
            (a, b): stdlib.socket(stdlib.AF_INET, stdlib.SOCK_DGRAM) for a, b in permutations(range(nodes), 2)
        }
        """By node and the node that it takes it for."""
        for end in self.pairs.values():
            end.bind(("127.0.0.1", 0))
        self.nics: list[tuple[str, int]] = []
        self.cut: set[int] = set()
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._relay, daemon=True)

    def begin(self, wires: list[str]) -> None:
        self.nics = [(wire.split(":")[0], int(wire.split(":")[1])) for wire in wires]
        self._thread.start()

    def _relay(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        ends = {end.fileno(): pair for pair, end in self.pairs.items()}
        for descriptor in ends:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    return
                a, b = ends[descriptor]
                data = self.pairs[a, b].recv(1 << 16)
                if not self.cut & {a, b}:
                    self.pairs[b, a].sendto(data, self.nics[b])

    def close(self) -> None:
        os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._wake)
        for end in self.pairs.values():
            end.close()


class Wired(Cluster):
    """A cluster whose NICs reach each other through Wires."""

    def __init__(self, wires: Wires, **link: Any) -> None:
        self._wires = wires
        self._commands: dict[int, list[str]] = {}
        super().__init__(wires.nodes, **link)
        wires.begin([self._argument(nic, "--wire") for nic in range(wires.nodes)])

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:
        argv = list(argv)
        self._commands[node] = argv
        found = list(argv)
        for index, word in enumerate(argv):
            if word == "--peer":
                ip = argv[index + 1].partition("=")[0]
                peer = next(other for other in range(self._wires.nodes) if node_ip(other) == ip)
                port = self._wires.pairs[node, peer].getsockname()[1]
                found[index + 1] = f"{ip}=127.0.0.1:{port}"
        return found

    def _argument(self, node: int, name: str) -> str:
        argv = self._commands[node]
        return str(argv[argv.index(name) + 1])


@pytest.mark.slow
def test_a_cut_wire_is_an_error_of_every_request_on_every_rank_within_5_s() -> None:
    wires = Wires(3)
    try:
        with Wired(wires, rate="50mbit") as cluster, Job(cluster, IN_PROGRESS.replace("WAIT", WAITS["Wait"])) as ranks:
            for rank in range(3):
                assert ranks.line(rank) == {"ready": True}
            began = time.monotonic()
            wires.cut.add(2)
            told = {rank: ranks.line(rank) for rank in range(3)}
            assert time.monotonic() - began < TOLD_S
    finally:
        wires.close()
    check(told)
    assert (told[0]["rank"], told[1]["rank"]) == (2, 2)
    assert told[2]["rank"] in (0, 1)


@pytest.mark.slow
def test_ranks_that_post_different_things_and_one_that_cancels() -> None:
    program = """
try:
    comm.Iallreduce(MPI.IN_PLACE, np.zeros(100 + (rank == 1 and CASE == "count"))).Wait()
    request = None
    if CASE == "cancel":
        if rank == 1:
            request = comm.Iallreduce(MPI.IN_PLACE, np.zeros(3_000_000))
            request.Cancel()
        else:
            request = comm.Iallreduce(MPI.IN_PLACE, np.zeros(3_000_000))
    elif CASE == "leave":
        request = comm.Ibcast(np.zeros(3_000_000), root=0) if rank else None
        if rank == 0:
            MPI.Finalize()
    if request is not None:
        request.Wait()
    tell(error="none")
except MPI.Exception as error:
    tell(error=str(error), rank=error.rank, call=error.call)
"""
    for case, says in (
        ("count", "Iallreduce(101 x float64, op=SUM"),
        ("cancel", "rank 1 cancelled Iallreduce"),
        ("leave", "rank 0"),
    ):
        with job(3, program.replace("CASE", repr(case))) as (_, ranks):
            told = [ranks.line(rank) for rank in range(3)]
        for rank, what in enumerate(told):
            if case == "leave" and rank == 0:
                assert what == {"error": "none"}
            else:
                assert says in what["error"], told
                # Of two that differ, either may be the first to notice, and then it names the other one.
                assert what["rank"] in {"count": (0, 1, 2), "cancel": (1,), "leave": (0,)}[case], told
                assert what["call"] == ("Ibcast" if case == "leave" else "Iallreduce")


def test_a_rank_that_is_done_leaves_while_the_others_go_on() -> None:
    """The NIC of a rank that has sent all it had to says goodbye in order."""
    program = """
import softnic
data = softnic.zeros(3_000_000)
data[:] = rank + 1
comm.Ireduce(data, data.copy() if rank == 1 else None, root=1).Wait()
MPI.Finalize()
tell(done=True)
"""
    with job(3, program, rate="200mbit") as (_, ranks):
        assert [ranks.line(rank) for rank in range(3)] == [{"done": True}] * 3
