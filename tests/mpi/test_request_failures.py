"""A group that fails is an error of every Request in progress, at every way of waiting, and ends the communicator."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import softnic
from softnic import MPI
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.offload_queue import OffloadQueue, PostedRequest
from softnic.ipc.regions import Region
from softnic.ipc.work_queue import WorkFailed
from softnic.mpi.collectives import execution
from softnic.mpi.communicator import Communicator
from tests.daemon.nics import until
from tests.mpi.groups import FakeNics
from tests.mpi.ranks import failures, run

Wait = Callable[[list[MPI.Request]], Any]


async def awaited(requests: list[MPI.Request]) -> None:
    await requests[0]


async def gathered(requests: list[MPI.Request]) -> None:
    await asyncio.gather(*requests)


def polled(requests: list[MPI.Request]) -> None:
    while not requests[1].Test():
        pass


WAYS: dict[str, Wait] = {
    "Wait": lambda requests: requests[0].Wait(),
    "Test": polled,
    "Waitall": MPI.Request.Waitall,
    "Waitany": MPI.Request.Waitany,
    "Waitsome": MPI.Request.Waitsome,
    "await": lambda requests: asyncio.run(awaited(requests)),
    "gather": lambda requests: asyncio.run(gathered(requests)),
}


def posted(comm: Communicator, count: int = 3) -> list[MPI.Request]:
    return [comm.Iallreduce(MPI.IN_PLACE, np.zeros(100, np.float32)) for _ in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_reaches_every_request_in_progress(way: str) -> None:
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(3)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        if all_posted.wait() == 0:
            nics.fail(2, "rank 2 is gone: the connection timed out")
        with pytest.raises(CommError) as failed:
            WAYS[way](requests)
        assert (failed.value.rank, failed.value.call) == (2, "Iallreduce")
        assert f"Iallreduce on rank {comm.rank}" in str(failed.value)
        assert "rank 2 is gone: the connection timed out" in str(failed.value)
        for request in requests:  # every time
            with pytest.raises(CommError, match="rank 2 is gone"):
                request.Wait()
            with pytest.raises(CommError, match="rank 2 is gone"):
                request.Test()
        assert comm.ended
        for later in (lambda: comm.Ibarrier(), lambda: comm.Barrier(), lambda: comm.bcast(1)):
            with pytest.raises(CommError, match=r"the communicator is no more: .*rank 2 is gone"):
                later()

    run(3, program, nics)


def test_what_was_complete_before_stays_so() -> None:
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(2)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        if all_posted.wait() == 0:
            while len(nics.posts.get(3, ())) < 2:  # they have read all posts
                pass
            nics.release(1)
            nics.fail(0, "rank 0 has no more")
        with pytest.raises(CommError, match="rank 0 has no more"):
            requests[2].Wait()
        assert requests[0].Wait()

    run(2, program, nics)


@pytest.mark.parametrize("victim", ["nic", "nonsense"])
def test_a_nic_that_ends_or_talks_nonsense(victim: str) -> None:
    """The rank loses its own NIC, and the others hear of it."""
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(3)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        if all_posted.wait() == 0:
            nics.die(1) if victim == "nic" else nics.say_bytes(1, b"\xc1")
        MPI.Request.Waitall(requests)

    errors = failures(3, program, nics)
    for rank, error in enumerate(errors):
        assert isinstance(error, CommError)
        assert (error.rank, error.call) == (1, "Iallreduce")
        assert "rank 1" in str(error)
        assert f"Iallreduce on rank {rank}" in str(error)
    assert "rank 1 lost its NIC" in str(errors[1])


class FakeNicsThatEnd(FakeNics):
    """Once `ended` is set, they answer no request."""

    ended = False

    def _number(self, region: Region) -> int:
        if self.ended:
            raise OSError(errno.ENETDOWN, "no NIC answers at /n: is softnicd running?")
        return super()._number(region)


def test_a_call_that_finds_its_nic_gone_says_so() -> None:
    nics, joined = FakeNicsThatEnd(), threading.Barrier(2)

    def program(comm: Communicator) -> None:
        comm.Barrier()
        joined.wait()
        nics.ended = True
        comm.Allreduce(MPI.IN_PLACE, softnic.zeros(1000))

    for error in failures(2, program, nics):
        assert isinstance(error, CommError)
        assert error.call == "Allreduce"
        assert f"rank {error.rank} lost its NIC: no NIC answers at /n" in str(error)


def test_a_failure_is_noticed_by_the_next_blocking_call() -> None:
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(2)

    def program(comm: Communicator) -> None:
        posted(comm)
        if all_posted.wait() == 0:
            nics.fail(0, "rank 0 has no more")
        for _ in range(1000):
            comm.Barrier()

    for error in failures(2, program, nics):
        assert "rank 0 has no more" in str(error)


def test_a_nic_that_has_failed_is_told_the_call_that_follows() -> None:
    """With nothing in progress: which rank made another call than the others is known by what each one calls."""
    nics = FakeNics()
    told = threading.Event()

    def program(comm: Communicator) -> None:
        comm.Barrier()
        if comm.rank == 1:
            told.wait()
            return
        nics.say(0, WorkFailed(1, "rank 1 called something else"))
        with pytest.raises(CommError, match="something else"):
            comm.Allreduce(MPI.IN_PLACE, np.zeros(4, np.float32))
        until(lambda: 2 in nics.posts)
        told.set()

    run(2, program, transport=nics)
    assert nics.posts[2][0].call == "Allreduce"


def test_a_refused_call_leaves_requests_in_progress() -> None:
    nics = FakeNics(held=True)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        for refused in (lambda: comm.Bcast(np.zeros(3), root=9), lambda: comm.Ibcast(np.zeros(3), root=9)):
            with pytest.raises(ArgumentError, match="root is 9"):
                refused()
        comm.send(None, 1 - comm.rank)
        comm.recv()
        nics.release()
        MPI.Request.Waitall(requests)

    run(2, program, nics)


def test_cancelling_ends_the_communicator_on_every_rank() -> None:
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(3)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        all_posted.wait()
        if comm.rank == 1:
            requests[1].Cancel()
        MPI.Request.Waitall(requests)

    for error in failures(3, program, nics):
        assert isinstance(error, CommError)
        assert (error.rank, error.call) == (1, "Iallreduce")
        assert "rank 1 cancelled Iallreduce" in str(error)


def test_cancelling_what_is_complete_does_nothing() -> None:
    def program(comm: Communicator) -> None:
        request = comm.Iallreduce(MPI.IN_PLACE, np.zeros(10))
        while not request.Get_status():
            pass
        request.cancel()
        request.Wait()
        another = comm.Ibarrier()
        another.Free()
        assert another == MPI.REQUEST_NULL
        for give_up in (another.Cancel, another.Free, MPI.REQUEST_NULL.Cancel):
            with pytest.raises(MPI.Exception, match=r"this Request is MPI\.REQUEST_NULL") as wrong:
                give_up()
            assert wrong.value.Get_error_class() == MPI.ERR_REQUEST
        comm.Barrier()

    run(2, program, FakeNics())


def test_who_leaves_with_requests_in_progress_is_named_to_all_others() -> None:
    nics = FakeNics(held=True)
    all_posted = threading.Barrier(3)

    def program(comm: Communicator) -> None:
        requests = posted(comm)
        all_posted.wait()
        if comm.rank == 1:
            comm.Free()
        requests[0].Wait()

    errors = failures(3, program, nics)
    for error in errors:
        assert isinstance(error, CommError)
        assert error.rank == 1
    assert "it was freed" in str(errors[1])
    for rank in (0, 2):
        assert "rank 1 has left before its Iallreduce was complete" in str(errors[rank])


def test_who_leaves_after_its_requests_disturbs_nobody() -> None:
    def program(comm: Communicator) -> None:
        data = np.zeros(100_000, np.float32)
        comm.Ireduce(data, data.copy(), root=1).Wait()
        comm.Free()

    run(3, program, FakeNics())


def test_a_failure_seen_in_another_thread_ends_a_call_that_is_under_way() -> None:
    """The thread in the call finds the communicator ended when it posts."""
    nics = FakeNics(held=True)

    class Meanwhile:
        """Pickled within the call, when nobody looks at requests any more but this."""

        def __init__(self, request: MPI.Request) -> None:
            self.request = request

        def __reduce__(self) -> tuple[type, tuple[()]]:
            nics.say(0, WorkFailed(1, "rank 1 has no more"))
            thread = threading.Thread(target=self.wait)
            thread.start()
            thread.join()
            return int, ()

        def wait(self) -> None:
            with pytest.raises(CommError, match="rank 1 has no more"):
                self.request.Wait()
            found.append(True)

    found: list[bool] = []
    both_posted = threading.Barrier(2)

    def program(comm: Communicator) -> None:
        [request] = posted(comm, 1)
        both_posted.wait(10)
        if comm.rank == 0:
            with pytest.raises(CommError, match="rank 1 has no more"):
                comm.bcast(Meanwhile(request))
        else:
            with suppress(CommError):  # what rank 0 says next may overtake the object
                comm.bcast(None)
        with pytest.raises(CommError, match="rank 1 has no more"):
            comm.Barrier()

    run(2, program, nics)
    assert found


def test_freeing_a_communicator_does_not_wait_for_ever_for_a_nic_that_does_not_answer() -> None:
    nics = FakeNics(held=True)
    all_posted, all_freed = threading.Barrier(2), threading.Barrier(2)

    def program(comm: Communicator) -> None:
        (request,) = posted(comm, 1)
        with nics.deaf(comm.rank):
            all_posted.wait()
            comm.Free()
            all_freed.wait(30)
        with pytest.raises(CommError):
            request.Wait()

    run(2, program, nics)


def test_an_interrupted_copy_of_a_contribution_is_an_error_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The NIC has the request, and would wait for the rest of the contribution."""
    monkeypatch.setattr(execution, "CHUNK_BYTES", 1024)
    stage = OffloadQueue.stage

    def interrupted(queue: OffloadQueue, request: PostedRequest, block: int, size: int) -> None:
        if queue.rank == 1 and size == 4096:
            raise KeyboardInterrupt
        stage(queue, request, block, size)

    monkeypatch.setattr(OffloadQueue, "stage", interrupted)

    def program(comm: Communicator) -> None:
        data = np.zeros(100_000, np.float32)
        if comm.rank == 1:
            with pytest.raises(KeyboardInterrupt):
                comm.Iallreduce(MPI.IN_PLACE, data)
            return
        with pytest.raises(CommError, match=r"rank 1\b.*KeyboardInterrupt"):  # from rank 1, or from one that it told
            comm.Iallreduce(MPI.IN_PLACE, data).Wait()

    run(3, program)
