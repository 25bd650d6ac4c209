"""The store of our own, and what ranks write for each other into any."""

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
def test_what_is_set_is_got_by_all(address: Address | None) -> None:
    with served(address) as server:
        first, second = client(server), client(server)
        first.set("a", "text")
        assert second.get("a") == b"text" == first.get("a")
        first.set("a", "another")
        assert second.get("a") == b"another"
        first.close()
        second.close()


def test_who_is_early_waits() -> None:
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


def test_a_wait_ends() -> None:
    with served() as server:
        one = client(server, timeout_s=0.2)
        with pytest.raises(StoreError, match=r"nobody has set never within 0\.2 s"):
            one.get("never")
        one.close()


def test_no_store_there() -> None:
    with pytest.raises(StoreError, match="rank 0 serves no store at softnic-test") as caught:
        StoreClient([abstract()], JOB, 0.1)
    assert caught.value.errno == errno.ECONNREFUSED


def test_it_is_found_at_the_second_address_where_a_stranger_has_the_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()
        with socket.create_server(("127.0.0.1", 0)) as free:
            other = free.getsockname()
        server = StoreServer([taken, other], JOB, 1)
        answered = threading.Thread(target=lambda: stranger.accept()[0].close())
        answered.start()
        found = StoreClient([taken, other], JOB, 10)
        found.set("a", "b")
        assert server.address == other
        answered.join(60)
        found.close()
        server.close()


def test_another_job_is_sent_away() -> None:
    with served() as server, pytest.raises(StoreError):
        StoreClient([server.address], "another job", 0.1)


@pytest.mark.parametrize(
    "says",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        framing.pack(SetKey("a", b"unasked")),
        framing.pack(JoinStore(JOB)) + framing.pack(JoinStore(JOB)),
        framing.pack(JoinStore(JOB)) + framing.pack(SetKey("a", bytes(MAX_VALUE))),
    ],
)
def test_whoever_says_something_else_is_sent_away(says: bytes) -> None:
    with served() as server, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(60)
        stranger.connect(server.address)
        stranger.sendall(says)
        while stranger.recv(100):
            pass
        good = client(server)
        good.set("a", "b")
        assert good.get("a") == b"b"
        good.close()


def test_there_is_a_most_of_strangers() -> None:
    with served(clients=1) as server:
        crowd = []
        for _ in range(80):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.settimeout(60)
            one.connect(server.address)
            crowd.append(one)
        assert crowd[-1].recv(1) == b""
        for one in crowd:
            one.close()


def test_who_waits_learns_that_the_store_is_gone() -> None:
    server = StoreServer([abstract()], JOB, 2)
    one = client(server)
    server.close()
    server.close()
    with pytest.raises(StoreError, match="rank 0, who serves the store, is gone"):
        one.get("a")
    one.close()


def test_an_address_that_is_taken() -> None:
    with served() as server, pytest.raises(StoreError, match="rank 0 cannot serve a store at softnic-test"):
        StoreServer([server.address], JOB, 1)


# -- boards


class Kept:
    """A store that outlives attempts, as torchrun's does: a dictionary that says whether a key is set."""

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


def attempt(store: Kept, number: int) -> list[dict[str, object]]:
    """What each of three ranks reads of rank 2 in an attempt."""
    read: list[dict[str, object]] = [{}] * 3

    def body(rank: int) -> None:
        board = StoreExchange(store, "world")
        board.begin(rank, 3, 10)
        board.write(f"rank/{rank}", {"attempt": number})
        read[rank] = board.read("rank/2", 2)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return read


def test_what_an_earlier_attempt_wrote_is_not_read() -> None:
    store = Kept()
    for number in range(3):
        assert attempt(store, number) == [{"attempt": number}] * 3


def test_a_rank_that_does_not_come_is_named_though_one_came_before() -> None:
    store = Kept()
    attempt(store, 0)
    with pytest.raises(CommError, match="rank 1 has not come in time") as caught:
        StoreExchange(store, "world").begin(0, 3, 0.1)
    assert caught.value.rank == 1


def test_errors_are_told() -> None:
    store = Kept()
    StoreExchange(store, "world").fail("rank/1", OSError("no NIC"))
    with pytest.raises(CommError, match="rank 1 says: no NIC") as caught:
        StoreExchange(store, "world").read("rank/1", 1)
    assert caught.value.rank == 1


def test_nonsense_is_told_apart() -> None:
    store = Kept()
    store.set("softnic/world/rank/1", "[1]")
    with pytest.raises(CommError, match="the store does not tell where rank 1 is"):
        StoreExchange(store, "world").read("rank/1", 1)
