"""The store that rank 0 serves, and the exchange of objects through any store."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.facades.bootstrap import (
    MAX_VALUE,
    Address,
    JoinStore,
    SetKey,
    StoreClient,
    StoreError,
    StoreExchange,
    StoreServer,
)
from tests.facades.comm import CommError, framing

JOB = "the job"


def abstract() -> str:
    return f"\0softnic-test-{os.urandom(6).hex()}"


@contextmanager
def served(address: Address | None = None, clients: int = 4) -> Iterator[StoreServer]:
    server = StoreServer([address or abstract()], JOB, clients)
    try:
        yield server
    finally:
        server.close()


def client(server: StoreServer, timeout_s: float = 10.0) -> StoreClient:
    return StoreClient([server.address], JOB, timeout_s)


@pytest.mark.parametrize("address", [None, ("127.0.0.1", 0)])
def test_all_clients_get_a_key_that_is_set(address: Address | None) -> None:
    with served(address) as server:
        first, second = client(server), client(server)
        first.set("a", "text")
        assert second.get("a") == b"text" == first.get("a")
        first.set("a", "another")
        assert second.get("a") == b"another"
        first.close()
        second.close()


def test_get_waits_until_the_key_is_set() -> None:
    with served() as server:
        early, late = client(server), client(server)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(early.get("key")))
        thread.start()
        late.set("other", "no")
        late.set("key", "yes")
        thread.join(60)
        assert got == [b"yes"]
        early.close()
        late.close()


def test_get_times_out() -> None:
    with served() as server:
        one = client(server, timeout_s=0.2)
        with pytest.raises(StoreError, match=r"no rank has set never within 0\.2 s"):
            one.get("never")
        with pytest.raises(StoreError):  # at once: the reply to the first request might still arrive
            one.set("never", "now")
        one.close()


def test_a_missing_server_is_an_error() -> None:
    with pytest.raises(StoreError, match="rank 0 serves no store at softnic-test") as caught:
        StoreClient([abstract()], JOB, 0.1)
    assert caught.value.errno == errno.ECONNREFUSED


def test_the_second_address_is_tried_if_another_service_has_the_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        taken = service.getsockname()
        with socket.create_server(("127.0.0.1", 0)) as free:
            other = free.getsockname()
        server = StoreServer([taken, other], JOB, 1)
        answered = threading.Thread(target=lambda: service.accept()[0].close())
        answered.start()
        found = StoreClient([taken, other], JOB, 10)
        found.set("a", "b")
        assert server.address == other
        answered.join(60)
        found.close()
        server.close()


def test_another_job_is_rejected() -> None:
    with served() as server, pytest.raises(StoreError):
        StoreClient([server.address], "another job", 0.1)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        framing.pack(SetKey("a", b"too early")),
        framing.pack(JoinStore(JOB)) + framing.pack(JoinStore(JOB)),
        framing.pack(JoinStore(JOB)) + framing.pack(SetKey("a", bytes(MAX_VALUE))),
    ],
)
def test_protocol_violations_are_rejected(data: bytes) -> None:
    with served() as server, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client_socket:
        client_socket.settimeout(60)
        client_socket.connect(server.address)
        client_socket.sendall(data)
        while client_socket.recv(100):
            pass
        good = client(server)
        good.set("a", "b")
        assert good.get("a") == b"b"
        good.close()


def test_the_number_of_connections_is_limited() -> None:
    with served(clients=1) as server:
        connections = []
        for _ in range(80):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.settimeout(60)
            one.connect(server.address)
            connections.append(one)
        assert connections[-1].recv(1) == b""
        for one in connections:
            one.close()


def test_a_waiting_client_gets_an_error_when_the_server_closes() -> None:
    server = StoreServer([abstract()], JOB, 2)
    one = client(server)
    server.close()
    server.close()
    with pytest.raises(StoreError, match="rank 0, who serves the store, is gone"):
        one.get("a")
    one.close()


def test_an_address_in_use_is_an_error() -> None:
    with served() as server, pytest.raises(StoreError, match="rank 0 cannot serve a store at softnic-test"):
        StoreServer([server.address], JOB, 1)


# -- exchange of objects


class PersistentStore:
    """A store that outlives attempts, as torchrun's: a dictionary with `check`."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str, /) -> None:
        with self._changed:
            self._values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, 60)
            return self._values[key]

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return all(key in self._values for key in keys)


def attempt(store: PersistentStore, number: int) -> list[dict[str, object]]:
    """Return what each of three ranks reads from rank 2 in an attempt."""
    read: list[dict[str, object]] = [{}] * 3

    def body(rank: int) -> None:
        exchange = StoreExchange(store, "world")
        exchange.begin(rank, 3, 10)
        exchange.write(f"rank/{rank}", {"attempt": number})
        read[rank] = exchange.read("rank/2", 2)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return read


def test_keys_of_an_earlier_attempt_are_not_read() -> None:
    store = PersistentStore()
    for number in range(3):
        assert attempt(store, number) == [{"attempt": number}] * 3


def test_a_missing_rank_is_named_although_an_earlier_attempt_had_it() -> None:
    store = PersistentStore()
    attempt(store, 0)
    with pytest.raises(CommError, match="rank 1 has not joined in time") as caught:
        StoreExchange(store, "world").begin(0, 3, 0.1)
    assert caught.value.rank == 1


def test_errors_are_passed_on() -> None:
    store = PersistentStore()
    StoreExchange(store, "world").fail("rank/1", OSError("no NIC"))
    with pytest.raises(CommError, match="rank 1 reports: no NIC") as caught:
        StoreExchange(store, "world").read("rank/1", 1)
    assert caught.value.rank == 1


def test_a_value_that_is_not_an_object_is_an_error() -> None:
    store = PersistentStore()
    store.set("softnic/world/rank/1", "[1]")
    with pytest.raises(CommError, match="the store has no valid entry of rank 1"):
        StoreExchange(store, "world").read("rank/1", 1)
