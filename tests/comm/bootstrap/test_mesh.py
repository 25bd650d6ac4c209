"""Ranks connect in any order, and detect other services and ranks of other jobs."""

from __future__ import annotations

import socket as stdlib
import threading
from typing import Any

import pytest

from tests.comm.engine_nics import EngineNics
from tests.comm.ranks import listeners, run
from tests.facades.bootstrap import Launch
from tests.facades.comm import CommError, Communicator, CommunicatorState, messages


def start_rank(launch: Launch, listener: stdlib.socket | None, errors: dict[int, BaseException]) -> threading.Thread:
    """Start a thread that connects as a rank, makes one call and leaves."""

    def body() -> None:
        comm = Communicator(CommunicatorState(launch, EngineNics(), listener))
        try:
            comm.Barrier()
        except CommError as error:
            errors[launch.rank] = error
        finally:
            comm.Free()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def finish(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_ranks_start_in_any_order(order: list[int]) -> None:
    """The later ones listen only when the earlier ones have been refused at least once."""
    bound = []
    for _ in range(3):
        listener = stdlib.socket(stdlib.AF_INET, stdlib.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))  # the port is taken, and refuses
        bound.append(listener)
    addresses = tuple(listener.getsockname() for listener in bound)
    errors: dict[int, BaseException] = {}
    threads = []
    for rank in order:
        bound[rank].listen(9)
        threads.append(start_rank(Launch(rank, addresses, "test", 20), bound[rank], errors))
        threads[-1].join(0.02)  # no rank can finish before all have started
        assert threads[-1].is_alive() or len(threads) == 3
    finish(threads)
    assert not errors


def test_a_missing_rank_is_named() -> None:
    opened = listeners(3)
    addresses = tuple(listener.getsockname() for listener in opened)
    opened[1].close()
    errors: dict[int, BaseException] = {}
    finish([start_rank(Launch(rank, addresses, "test", 0.4), opened[rank], errors) for rank in (0, 2)])
    assert sorted(errors) == [0, 2]
    for rank, error in errors.items():
        assert isinstance(error, CommError)
        assert error.rank == 1
        assert f"Barrier on rank {rank}: rank " in str(error)
        assert "did not meet rank 1 within 0.4 s" in str(error)
    failed = [rank for rank, error in errors.items() if f"rank {rank} at 127.0.0.1" in str(error)]
    assert failed  # the first to fail; it sends the reason to the other
    assert 2 not in failed or "refused" in str(errors[2])


def test_an_address_that_cannot_be_bound_is_an_error() -> None:
    launch = Launch(0, (("192.0.2.1", 4000), ("192.0.2.2", 4000)), "test", 5)
    comm = Communicator(CommunicatorState(launch, EngineNics()))
    with pytest.raises(CommError, match="rank 0 cannot meet the others"):
        comm.Barrier()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x03\0\0\0abc",
        messages.pack(messages.Hello(messages.VERSION + 1, 2, 1, 0, 0)),
        messages.pack(messages.Leave(3)),
        b"\x05\0",
    ],
)
def test_other_clients_are_rejected(data: bytes) -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    with stdlib.create_connection(addresses[0]) as other:  # first in the queue
        other.sendall(data)
        errors: dict[int, BaseException] = {}
        finish([start_rank(Launch(rank, addresses, "test", 20), opened[rank], errors) for rank in (0, 1)])
        assert not errors
        other.settimeout(60)
        try:
            while other.recv(100):
                pass
        except ConnectionResetError:
            pass


@pytest.mark.parametrize(
    ("hello", "text"),
    [
        (messages.Hello(messages.VERSION, 3, 1, 0, 0), "rank 0 of 2 is connected to rank 1 of 3"),
        (messages.Hello(messages.VERSION, 2, 1, 5, 0), "expects rank 5"),
        (messages.Hello(messages.VERSION, 2, 0, 0, 0), "is connected to rank 0 of 2"),
        (messages.Hello(messages.VERSION, 2, 1, 0, 9), "two processes claim to be rank 1"),
    ],
)
def test_ranks_of_another_job_are_an_error(hello: messages.Hello, text: str) -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    opened[1].close()
    with stdlib.create_connection(addresses[0]) as other:
        other.sendall(messages.pack(hello))
        errors: dict[int, BaseException] = {}
        finish([start_rank(Launch(0, addresses, "test", 20), opened[0], errors)])
        assert text in str(errors[0])


def test_two_processes_with_one_rank_are_an_error() -> None:
    """Rank 0 fails with the reason."""
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    opened[1].close()
    hello = messages.pack(messages.Hello(messages.VERSION, 2, 1, 0, 0))
    with stdlib.create_connection(addresses[0]) as first, stdlib.create_connection(addresses[0]) as second:
        first.sendall(hello)
        second.sendall(hello)
        errors: dict[int, BaseException] = {}
        finish([start_rank(Launch(0, addresses, "test", 20), opened[0], errors)])
        error = errors[0]
        assert isinstance(error, CommError)
        assert error.rank == 1
        assert "two processes claim to be rank 1" in str(error)


def test_another_service_at_the_address_of_a_rank_is_an_error() -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    thread = start_rank(Launch(1, addresses, "test", 20), opened[1], errors)
    connection, _ = opened[0].accept()
    connection.sendall(b"220 mail.example.org ESMTP\r\n")
    finish([thread])
    assert "but rank 0 should be there" in str(errors[1])
    connection.close()
    opened[0].close()


def test_a_communicator_reports_its_rank_and_launcher() -> None:
    def program(comm: Communicator) -> tuple[Any, ...]:
        before = comm.connected
        comm.Init()
        return comm.Get_rank(), comm.rank, comm.Get_size(), comm.size, comm.launch.source, before, comm.connected

    assert run(2, program)[1] == (1, 1, 2, 2, "test", False, True)


@pytest.mark.parametrize("reason", ["", "no NIC"])
def test_a_rank_that_exits_before_all_have_joined_is_an_error_at_once(reason: str) -> None:
    """The error has the reason that the rank sent, if any. The third rank never starts, and has a minute."""
    opened = listeners(3)
    addresses = tuple(listener.getsockname() for listener in opened)
    for listener in opened[1:]:
        listener.close()
    errors: dict[int, BaseException] = {}
    thread = start_rank(Launch(0, addresses, "test", 60), opened[0], errors)
    with stdlib.create_connection(addresses[0]) as control:
        hello = messages.pack(messages.Hello(messages.VERSION, 3, 1, 0, messages.CONTROL))
        control.sendall(hello)
        control.settimeout(60)
        assert control.recv(len(hello), stdlib.MSG_WAITALL)
        if reason:
            control.sendall(messages.pack(messages.Joined()) + messages.pack(messages.Abort(1, reason)))
    finish([thread])
    error = errors[0]
    assert isinstance(error, CommError)
    assert error.rank == 1
    assert ("rank 1 says: no NIC" if reason else "rank 1 exited before all ranks had joined") in str(error)


def test_a_rank_that_fails_sends_the_reason_to_connected_ranks() -> None:
    opened = listeners(3)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    opened[1].close()
    threads = [
        start_rank(Launch(rank, addresses, "test", 0.4 if rank else 60), opened[rank], errors) for rank in (0, 2)
    ]
    finish(threads)
    assert "Barrier on rank 0: rank 2 says: rank 2 at 127.0.0.1" in str(errors[0])
    assert "did not meet rank 1 within 0.4 s" in str(errors[0])
