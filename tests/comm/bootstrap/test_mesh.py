"""Ranks connect in any order, and detect other services and ranks of other jobs."""

from __future__ import annotations

import socket as stdlib
import threading
from contextlib import ExitStack, closing
from typing import Any

import pytest

from softnic.comm import messages
from softnic.comm.bootstrap.greeting import Greeting
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.mesh import SPARE_CONNECTIONS as MESH_SPARE_CONNECTIONS
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.errors import CommError
from softnic.comm.transport import Transport
from softnic.mpi.communicator import Communicator
from softnic.mpi.state import CommunicatorState
from tests.comm.engine_nics import EngineNics
from tests.mpi.ranks import listeners, run


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
        (messages.Hello(messages.VERSION, 2, 1, 0, messages.SURVIVE + 1), "two processes claim to be rank 1"),
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


@pytest.mark.parametrize("hello", [(2, 1, 0, 0), (3, 1, 0, 0), (2, 1, 5, 0), (2, 1, 0, 99)])
@pytest.mark.parametrize("proof", [b"", b"p" * 32])
def test_who_has_no_secret_of_the_job_does_not_end_it(hello: tuple[int, int, int, int], proof: bytes) -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    with stdlib.create_connection(addresses[0]) as stranger:  # first in the queue
        stranger.sendall(messages.pack(messages.Hello(messages.VERSION, *hello, proof)))
        errors: dict[int, BaseException] = {}
        launches = [Launch(rank, addresses, "test", 20, secret=b"of the job") for rank in range(2)]
        finish([start_rank(each, opened[each.rank], errors) for each in launches])
        assert not errors
        stranger.settimeout(60)
        answer = stranger.recv(100)
        assert answer == messages.pack(messages.Hello(messages.VERSION, 2, 0, hello[1], hello[3], b"-"))


@pytest.mark.parametrize("secret", [b"", b"of the job"])
def test_a_process_of_an_earlier_start_is_refused(secret: bytes) -> None:
    """It knows addresses, ranks and the secret, and is first in the queue."""
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    stale = Launch(1, addresses, "test", 20, secret=secret, epoch="former")
    with stdlib.create_connection(addresses[0]) as former:
        former.sendall(Greeting(stale).hello(0, messages.CONTROL))
        errors: dict[int, BaseException] = {}
        launches = [Launch(rank, addresses, "test", 20, secret=secret, epoch="present") for rank in range(2)]
        finish([start_rank(each, opened[each.rank], errors) for each in launches])
        assert not errors
        former.settimeout(60)
        (answer,) = messages.Reader().feed(former.recv(1000))
        assert isinstance(answer, messages.Hello)
        assert answer.epoch == "present"


def test_a_rank_that_reaches_a_process_of_another_start_reports_it() -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    launches = [Launch(rank, addresses, "test", 2, epoch=f"start {rank}") for rank in range(2)]
    finish([start_rank(each, opened[each.rank], errors) for each in launches])
    assert "is a rank of another start than rank 0" in str(errors[1])
    assert "rank 1 was refused: it belongs to another start of the job" in str(errors[0])


def test_the_oldest_silent_stranger_makes_room() -> None:
    most = MESH_SPARE_CONNECTIONS + 2 * messages.MOST_CHANNELS
    opened = listeners(2, most + 2)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    first = start_rank(Launch(0, addresses, "test", 60), opened[0], errors)
    strangers = []
    for _ in range(most + 1):
        strangers.append(stdlib.create_connection(addresses[0]))
    strangers[0].settimeout(60)
    assert strangers[0].recv(1) == b"", "while the other rank is still missing"
    finish([first, start_rank(Launch(1, addresses, "test", 60), opened[1], errors)])
    assert not errors
    for each in strangers:
        each.close()


@pytest.mark.parametrize("secrets", [(b"a", b"b"), (b"", b"b"), (b"a", b"")])
def test_ranks_with_different_secrets_say_so(secrets: tuple[bytes, bytes]) -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    launches = [Launch(rank, addresses, "test", 0.5, secret=secrets[rank]) for rank in range(2)]
    finish([start_rank(each, opened[each.rank], errors) for each in launches])
    assert "SOFTNIC_JOB_SECRET of rank 0 at 127.0.0.1" in str(errors[1])
    assert "a connection of rank 1 was refused: it has not this rank's SOFTNIC_JOB_SECRET" in str(errors[0])


def test_another_version_is_told_ours() -> None:
    opened = listeners(2)
    addresses = tuple(listener.getsockname() for listener in opened)
    opened[1].close()
    with stdlib.create_connection(addresses[0]) as other:
        other.sendall(messages.pack(messages.Hello(messages.VERSION + 1, 2, 1, 0, 0)))
        errors: dict[int, BaseException] = {}
        finish([start_rank(Launch(0, addresses, "test", 0.4), opened[0], errors)])
        other.settimeout(60)
        assert other.recv(100) == messages.pack(messages.Hello(messages.VERSION, 2, 0, 1, 0, b"-"))
    speaks = f"it speaks version {messages.VERSION + 1} of the protocol, this rank {messages.VERSION}"
    assert f"a connection of rank 1 was refused: {speaks}" in str(errors[0])


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


def test_what_the_nic_drops_while_a_rank_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what grows while the rank waits, each reason once."""

    class Counted(Transport):
        asked = 0

        def nic_counters(self) -> dict[str, int]:
            Counted.asked += 1
            return {"link_dropped_wrong_key": 7 * Counted.asked, "link_dropped_plaintext": 5, "frames": Counted.asked}

    monkeypatch.setattr("softnic.comm.bootstrap.mesh._ASK_NIC_S", 0.02)
    (listener,) = listeners(1)
    launch = Launch(0, (listener.getsockname(), ("127.0.0.1", 1)), "test", 0.4)
    with closing(listener), pytest.raises(CommError) as caught:
        MeshBuilder(launch, Counted(stdlib), listener).run()
    reason = "its NIC: it drops the datagrams of a NIC that has another key, see softnic stat"
    assert str(caught.value).endswith(f"did not meet rank 1 within 0.4 s ({reason})")
    assert caplog.messages == [f"rank 0 waits for rank 1; {reason}"]
    assert Counted.asked > 2


def test_strangers_do_not_take_the_places_of_ranks() -> None:
    """Of connections that say nothing, 64 are kept beyond those of the ranks: the oldest make room."""
    most = 64 + messages.MOST_CHANNELS * 2
    opened = listeners(2, most + 2)
    addresses = tuple(listener.getsockname() for listener in opened)
    errors: dict[int, BaseException] = {}
    first = start_rank(Launch(0, addresses, "test", 20), opened[0], errors)
    with ExitStack() as stack:
        strangers = [stack.enter_context(stdlib.create_connection(addresses[0], 20)) for _ in range(most + 2)]
        for dropped in strangers[:2]:
            dropped.settimeout(20)
            assert dropped.recv(1) == b""
        for kept in strangers[2:]:
            kept.setblocking(False)
            with pytest.raises(BlockingIOError):
                kept.recv(1)
        finish([first, start_rank(Launch(1, addresses, "test", 20), opened[1], errors)])
    assert not errors
