"""Waiting for Requests, in threads and event loops, over NICs that are played by the test (groups.py)."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.comm.errors import CommError
from softnic.comm.offload_queue import OffloadQueue
from softnic.mpi.communicator import Communicator
from tests.mpi.connections import offload_queue
from tests.mpi.groups import FakeNics, total, values
from tests.mpi.ranks import communicators, run


def with_held(program: Callable[[Communicator, FakeNics, list[MPI.Request]], Any], count: int = 3) -> None:
    """Runs it on rank 0 of 2, with that many requests in progress, none of which is done before it is released."""
    nics = FakeNics(held=True)
    posted, over = threading.Barrier(2), threading.Event()

    def each(comm: Communicator) -> None:
        requests = [comm.Iallreduce(MPI.IN_PLACE, values(comm.rank)) for _ in range(count)]
        posted.wait()
        if comm.rank == 0:
            try:
                program(comm, nics, requests)
            finally:
                over.set()
        over.wait()
        nics.release()
        MPI.Request.Waitall(requests)

    run(2, each, nics)


def test_waiting_for_any() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        any_of = MPI.Request
        assert any_of.Testany(requests) == (MPI.UNDEFINED, False)
        assert not any_of.Testall(requests)
        assert any_of.Testsome(requests) == []
        nics.release(3)
        assert any_of.Waitany(requests) == 2
        assert requests[2] == MPI.REQUEST_NULL
        assert not requests[0].Test()
        nics.release(1)
        assert any_of.Waitsome(requests) == [0]
        nics.release(2)
        assert any_of.waitany(requests) == (1, None)
        assert any_of.Waitany(requests) == MPI.UNDEFINED
        assert any_of.Testany(requests) == (MPI.UNDEFINED, True)
        assert any_of.Waitsome(requests) is None
        assert any_of.testall(requests) == (True, [None] * 3)

    with_held(program)


def test_statuses_are_tolerated() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        nics.release()
        status = MPI.Status()
        status.fill(5, 5, 5)
        requests[0].Wait(status)
        assert (status.Get_source(), status.Get_count()) == (MPI.ANY_SOURCE, 0)
        assert requests[1].wait(status) is None
        assert MPI.Request.Waitall(requests, [MPI.Status() for _ in requests])
        assert MPI.REQUEST_NULL.Wait()
        assert MPI.REQUEST_NULL.test() == (True, None)

    with_held(program)


def test_get_status_leaves_the_request() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        assert not requests[0].Get_status()
        nics.release(1)
        while not requests[0].Get_status():
            pass
        assert requests[0]
        assert "complete" in repr(requests[0])
        assert requests[0].Test()
        assert repr(requests[0]) == "MPI.REQUEST_NULL"

    with_held(program)


def test_blocking_calls_go_on_beside_requests() -> None:
    """Of any kind, and their scratch is not the requests'."""

    nics = FakeNics(held=True)

    def mixed(comm: Communicator) -> None:
        first, second = values(comm.rank), values(comm.rank)
        request = comm.Iallreduce(MPI.IN_PLACE, first)
        comm.Allreduce_comp(MPI.IN_PLACE, second, codec="raw")
        another = comm.Ireduce_scatter(values(comm.rank), np.empty(502, np.float32))
        comm.Barrier()
        assert comm.allreduce(comm.rank) == 1
        assert not request.Test()
        comm.Barrier()
        nics.release()
        MPI.Request.Waitall([another, request])
        assert first.tobytes() == second.tobytes() == total(2).tobytes()

    run(2, mixed, nics)


def test_threads_wait_for_different_requests() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        threads = [threading.Thread(target=request.Wait, daemon=True) for request in requests]
        for thread in threads:
            thread.start()
        for number in (2, 3, 1):
            nics.release(number)
            threads[number - 1].join(60)
            assert not threads[number - 1].is_alive()

    with_held(program)


def test_an_interrupted_wait_leaves_the_request_as_it_was() -> None:
    nics = FakeNics(held=True)
    ranks = communicators(2, transport=nics)

    def other(comm: Communicator) -> None:
        comm.Iallreduce(MPI.IN_PLACE, values(1)).Wait()

    def interrupt(group: OffloadQueue) -> None:
        while not group.waiter.is_waited_for:
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=other, args=(ranks[1],), daemon=True)
    thread.start()
    data = values(0)
    request = ranks[0].Iallreduce(MPI.IN_PLACE, data)
    threading.Thread(target=interrupt, args=(offload_queue(ranks[0]),), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        request.Wait()
    assert request
    assert not request.Test()
    nics.release()
    request.Wait()
    assert data.tobytes() == total(2).tobytes()
    thread.join(60)
    for comm in ranks:
        comm.Free()
    nics.close()


def test_a_forked_process_has_no_requests() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                requests[0].Wait()
            except CommError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        assert b"forked" in os.read(reader, 1000)
        os.close(reader)
        nics.release()
        requests[0].Wait()

    with_held(program)


# -- asyncio ---------------------------------------------------------------------------------------------------------


def test_awaiting_several_at_once() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        order: list[int] = []

        async def one(index: int) -> None:
            await requests[index]
            order.append(index)
            if index:
                nics.release(index)

        async def main() -> None:
            waiting = asyncio.gather(*(one(index) for index in range(3)))
            await asyncio.sleep(0)
            nics.release(3)
            await waiting
            await requests[0]  # REQUEST_NULL by now

        asyncio.run(main())
        assert order == [2, 1, 0]

    with_held(program)


def test_an_await_that_is_over_leaves_nothing_in_its_event_loop() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        selector = selectors.DefaultSelector()

        async def main() -> None:
            watched = len(selector.get_map())
            asyncio.get_running_loop().call_soon(nics.release, 1)
            await requests[0]
            assert len(selector.get_map()) == watched
            task = asyncio.ensure_future(requests[1])
            await asyncio.sleep(0)
            assert len(selector.get_map()) > watched
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(selector.get_map()) == watched

        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(main())

    with_held(program)


def test_an_await_that_is_given_up_does_nothing_to_the_request() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(requests[0])
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            nics.release()
            await asyncio.gather(*requests)

        asyncio.run(main())

    with_held(program)


def test_an_await_and_a_wait_in_another_thread() -> None:
    """Whoever reads what the NIC says, both get on."""

    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            waits = [loop.run_in_executor(None, requests[index].Wait) for index in (0, 2)]
            task = asyncio.ensure_future(requests[1])
            await asyncio.sleep(0)
            for number in (2, 1, 3):
                nics.release(number)
            await asyncio.gather(task, *waits)

        asyncio.run(main())

    with_held(program)


def test_two_event_loops() -> None:
    def program(_: Communicator, nics: FakeNics, requests: list[MPI.Request]) -> None:
        async def main(index: int) -> None:
            await requests[index]

        threads = [threading.Thread(target=asyncio.run, args=(main(index),), daemon=True) for index in range(3)]
        for thread in threads:
            thread.start()
        nics.release(2, 3, 1)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    with_held(program)
