"""The store that rank 0 serves, and the exchange of objects through any store."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import ClassVar

import pytest

from softnic import underlay
from softnic.collectives import framing
from softnic.comm.bootstrap import store, store_server
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.bootstrap.store import (
    MAX_VALUE,
    Address,
    Challenge,
    GetKey,
    JoinStore,
    KeyStored,
    KeyValue,
    Prove,
    SetKey,
    StoreClient,
    StoreError,
    StoreRefused,
    proof,
)
from softnic.comm.bootstrap.store import VERSION as STORE_VERSION
from softnic.comm.bootstrap.store_exchange import StoreExchange
from softnic.comm.bootstrap.store_server import KEY_BYTES, MAX_BYTES_A_CLIENT, SPARE_CLIENTS, StoreServer
from softnic.comm.errors import CommError
from tests import needs

JOB = "the job"


def abstract() -> str:
    return f"\0softnic-test-{os.urandom(6).hex()}"


@contextmanager
def served(address: Address | None = None, clients: int = 4, secret: bytes = b"") -> Iterator[StoreServer]:
    server = StoreServer([address or abstract()], JOB, clients, secret)
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
        first.set("a", "another")  # its own key
        assert second.get("a") == b"another"
        first.close()
        second.close()


@needs.ipv6
@pytest.mark.parametrize(("bind", "hosts"), [("::1", ["::1"]), ("::", ["::1", "127.0.0.1"])])
def test_clients_reach_a_store_over_either_family(bind: str, hosts: list[str]) -> None:
    with served((bind, 0)) as server:
        assert isinstance(server.address, tuple)
        for host in hosts:
            with closing(StoreClient([(host, server.address[1])], JOB, 10.0)) as one:
                one.set(f"a/{host}", "value")
                assert one.get(f"a/{host}") == b"value"


@needs.ipv6
def test_of_a_name_with_two_addresses_the_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(("127.0.0.1", 0)) as server:
        port = server.address[1]
        found = [("::1", port), ("127.0.0.1", port)]
        monkeypatch.setattr(underlay, "addresses", lambda address: found if address[0] == "node0" else [address])
        with closing(StoreClient([("node0", int(port))], JOB, 10.0)) as one:
            one.set("a", "value")


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


class Raw:
    """A client made by hand; `nonce` is the one that it sends."""

    nonce = b"n" * 16
    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, server: StoreServer) -> None:
        family = socket.AF_UNIX if isinstance(server.address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.opened.append(self.socket)
        self.socket.settimeout(60)
        self.socket.connect(server.address)
        self._frames = store.frame_reader()

    def send(self, *frames: store.Frame | bytes) -> None:
        self.socket.sendall(b"".join(each if isinstance(each, bytes) else framing.pack(each) for each in frames))

    def receive(self) -> store.Frame | None:
        """Return the next frame; None: disconnected."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            for frame in self._frames.feed(data):
                return frame
            if not data:
                return None

    def join(self, secret: bytes = b"") -> None:
        self.send(JoinStore(JOB, STORE_VERSION, self.nonce))
        challenge = self.receive()
        assert isinstance(challenge, Challenge)
        self.send(Prove(proof(secret, "client", JOB, self.nonce + challenge.nonce)))


@pytest.fixture(autouse=True)
def closed_sockets() -> Iterator[None]:
    yield
    while Raw.opened:
        Raw.opened.pop().close()


def check_works(server: StoreServer, secret: bytes = b"") -> None:
    good = StoreClient([server.address], JOB, 10.0, secret=secret)
    good.set("checked", "b")
    assert good.get("checked") == b"b"
    good.close()


JOIN = JoinStore(JOB, STORE_VERSION, Raw.nonce)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ((b"GET / HTTP/1.1\r\n\r\n",), "the bytes are not a frame of a store"),
        ((b"\xff\xff\xff\x7f",), "the bytes are not a frame of a store"),
        ((SetKey("a", b"too early"),), "this is the store of a softnic job"),
        ((GetKey("a"),), "this is the store of a softnic job"),
        ((JoinStore(JOB),), "rank 0 speaks version 2 of the store's protocol, this rank 1"),
        ((JoinStore(JOB, 3, Raw.nonce),), "rank 0 speaks version 2 of the store's protocol, this rank 3"),
        ((JoinStore("another", STORE_VERSION, Raw.nonce),), "another job is served there"),
        ((JOIN, JOIN), "SOFTNIC_JOB_SECRET differs there, or only one side has it"),
        ((JOIN, Prove(b"")), "SOFTNIC_JOB_SECRET differs there, or only one side has it"),
        ((JOIN, SetKey("a", b"unproven")), "SOFTNIC_JOB_SECRET differs there, or only one side has it"),
        ((JOIN, GetKey("a")), "SOFTNIC_JOB_SECRET differs there, or only one side has it"),
    ],
)
def test_clients_that_do_not_join_are_refused_and_counted(sent: tuple[store.Frame | bytes, ...], said: str) -> None:
    with served() as server:
        stranger = Raw(server)
        stranger.send(*sent)
        frame = stranger.receive()
        if isinstance(frame, Challenge):
            frame = stranger.receive()
        assert frame == StoreRefused(said)
        assert stranger.receive() is None
        check_works(server)
    assert server.refused == 1


def test_a_proof_serves_once_and_for_one_side() -> None:
    secret = b"of the job"
    with served(secret=secret) as server:
        first = Raw(server)
        first.send(JOIN)
        challenge = first.receive()
        assert isinstance(challenge, Challenge)
        valid = proof(secret, "client", JOB, Raw.nonce + challenge.nonce)
        assert challenge.proof == proof(secret, "server", JOB, Raw.nonce + challenge.nonce) != valid
        for replayed in (valid, challenge.proof):
            second = Raw(server)
            second.send(JOIN, Prove(replayed), GetKey("a"))
            assert isinstance(second.receive(), Challenge)
            assert isinstance(second.receive(), StoreRefused)
        first.send(Prove(valid), SetKey("a", b"b"))
        assert first.receive() == KeyStored()


@pytest.mark.parametrize(("ours", "theirs"), [(b"a", b"b"), (b"", b"b"), (b"a", b"")])
def test_another_secret_is_said(ours: bytes, theirs: bytes) -> None:
    with served(secret=ours) as server, pytest.raises(StoreError, match="SOFTNIC_JOB_SECRET differs there") as caught:
        StoreClient([server.address, abstract()], JOB, 0.1, secret=theirs)
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize(("secret", "version"), [(b"ours", STORE_VERSION), (b"", STORE_VERSION + 1)])
def test_a_refusal_by_rank_0_is_final_although_its_process_lives(
    secret: bytes, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "VERSION", version)
    with served() as server, pytest.raises(StoreError, match="rank 0 serves no store at"):
        StoreClient([server.address], JOB, 0.1, Presence(0.1, lambda: {0}), secret)


def test_a_server_without_the_secret_learns_nothing_and_is_not_believed() -> None:
    """A stranger that serves in rank 0's place."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(60)
        got: list[bytes] = []

        def serve() -> None:
            connection, _ = service.accept()
            with connection:
                got.append(connection.recv(1 << 16))
                connection.sendall(framing.pack(Challenge(b"m" * 16, b"p" * 32)))
                got.append(connection.recv(1 << 16))

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StoreError, match="SOFTNIC_JOB_SECRET differs there"):
            StoreClient([service.getsockname()], JOB, 0.01, secret=b"of the job")
        thread.join(60)
    assert len(got) == 2
    assert got[1] == b"", "no proof was sent"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (JoinStore(JOB), "an earlier version of softnic serves there"),
        (StoreRefused("not \x1b[2J you"), r"not \?\[2J you"),
        (KeyStored(), "another service listens there"),
    ],
)
def test_what_other_servers_answer(reply: store.Frame, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(60)

        def serve() -> None:
            connection, _ = service.accept()
            with connection:
                connection.sendall(framing.pack(reply))
                connection.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StoreError, match=said):
            StoreClient([service.getsockname()], JOB, 0.01)
        thread.join(60)


@pytest.mark.parametrize("request_frame", [JOIN, Prove(b""), KeyStored(), KeyValue(b""), SetKey("a", bytes(MAX_VALUE))])
def test_requests_of_a_member_that_are_refused(request_frame: store.Frame) -> None:
    with served() as server:
        member = Raw(server)
        member.join()
        member.send(request_frame)
        assert isinstance(member.receive(), StoreRefused)
        assert member.receive() is None
        check_works(server)
    assert server.refused == 0


@pytest.mark.parametrize("size", [10, 2000, 16_000])
def test_all_values_together_are_bounded(size: int) -> None:
    with served(clients=2) as server:
        member = Raw(server)
        member.join()
        stored = 0
        while True:
            member.send(SetKey(f"{stored:06}", bytes(size)))
            if member.receive() != KeyStored():
                break
            stored += 1
        each = size + 6 + KEY_BYTES
        assert stored == 4 * MAX_BYTES_A_CLIENT // each


def test_a_value_that_is_replaced_counts_once() -> None:
    with served(clients=1) as server:
        one = client(server)
        for number in range(100):
            one.set("a", str(number) * 5000)
        assert one.get("a") == b"99" * 5000
        one.close()


def test_a_key_that_two_clients_set_is_an_error_for_all() -> None:
    with served() as server:
        stranger, rank, waiting = client(server), client(server), client(server)
        stranger.set("world/host/1", "evil")
        said: list[str] = []

        def wait() -> None:
            with pytest.raises(StoreError) as caught:
                waiting.get("never")
            said.append(str(caught.value.strerror))

        thread = threading.Thread(target=wait)
        thread.start()
        text = "two processes have set world/host/1: a stranger, or two with the same rank"
        with pytest.raises(StoreError, match=f"world/host/1 was not stored: {text}"):
            rank.set("world/host/1", "mine")
        thread.join(60)
        assert said == [f"no rank has set never: {text}"]
        late = client(server)
        with pytest.raises(StoreError, match=text):
            late.get("world/host/1")
        for each in (stranger, rank, waiting, late):
            each.close()


def test_silent_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "JOIN_S", 1000.0)
    with served(("127.0.0.1", 0)) as server:
        silent = [Raw(server) for _ in range(4 + SPARE_CLIENTS + 16)]
        for each in silent[::2]:
            each.send(JOIN)  # and no proof
        check_works(server)
        assert [each.receive() for each in silent[1:16:2]] == [None] * 8
        for each in silent:
            each.socket.close()


def test_a_client_has_a_time_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "JOIN_S", 0.05)
    with served() as server:
        silent, member = Raw(server), Raw(server)
        member.join()
        member.send(GetKey("late"))
        assert silent.receive() is None
        check_works(server)
        other = client(server)
        other.set("late", "value")
        assert member.receive() == KeyValue(b"value")  # a member may wait
        other.close()


def test_the_number_of_members_is_limited() -> None:
    with served(clients=1) as server:
        members = []
        for _ in range(1 + SPARE_CLIENTS):
            members.append(each := Raw(server))
            each.join()
            each.send(SetKey(str(id(each)), b""))
            assert each.receive() == KeyStored()
        one_more = Raw(server)
        one_more.send(JOIN)
        assert one_more.receive() == StoreRefused("the store has too many clients")
        members[0].socket.close()
        reply: store.Frame | None = None
        while not isinstance(reply, Challenge):  # once the server has noticed
            one_more = Raw(server)
            one_more.send(JOIN)
            reply = one_more.receive()


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


@pytest.mark.parametrize(("writer", "reader"), [(b"a", b"b"), (b"", b"b"), (b"a", b"")])
def test_a_value_without_the_secret_of_the_job_is_an_error(writer: bytes, reader: bytes) -> None:
    store = PersistentStore()
    StoreExchange(store, "world", writer).write("rank/1", {"address": []})
    with pytest.raises(CommError, match=r"it was not written with this rank's SOFTNIC_JOB_SECRET") as caught:
        StoreExchange(store, "world", reader).read("rank/1", 1)
    assert caught.value.rank == 1


def test_a_signed_value_holds_for_its_key_alone() -> None:
    store = PersistentStore()
    exchange = StoreExchange(store, "world", b"secret")
    exchange.write("rank/1", {"address": ["10.77.0.1", 5]})
    assert exchange.read("rank/1", 1) == {"address": ["10.77.0.1", 5]}
    store.set("softnic/world/rank/2", store.get("softnic/world/rank/1").decode())
    with pytest.raises(CommError, match="SOFTNIC_JOB_SECRET"):
        exchange.read("rank/2", 2)
    data = store.get("softnic/world/rank/1").decode()
    store.set("softnic/world/rank/1", data.replace("10.77", "10.78"))
    with pytest.raises(CommError, match="SOFTNIC_JOB_SECRET"):
        exchange.read("rank/1", 1)


@pytest.mark.parametrize("value", ['{"a": 1}', '{"host": 1, "mtu": 5}', '{"host": "a", "mtu": true}', "{", "[" * 9999])
def test_fields_of_another_type_are_an_error(value: str) -> None:
    store = PersistentStore()
    store.set("softnic/world/host/1", value)
    with pytest.raises(CommError, match="the store has no valid entry of rank 1"):
        StoreExchange(store, "world").read("host/1", 1, {"host": str, "mtu": int})


@pytest.mark.parametrize("value", ["{}", '{"as": 1}', '{"meeting": null}'])
def test_a_meeting_with_fields_of_another_type_is_an_error(value: str) -> None:
    class Answered(PersistentStore):
        """Answers each question for a meeting."""

        def get(self, key: str, /) -> bytes:
            return value.encode() if key.startswith("softnic/world/go/") else super().get(key)

    store = Answered()
    store.set("softnic/world/hello/1", value)
    for rank in range(2):
        with pytest.raises(CommError, match=f"the store has no valid entry of rank {1 - rank}"):
            StoreExchange(store, "world").begin(rank, 2, 10)
