"""Strangers, replays and guesses at a server: nobody gets in, memory stays bounded, and no answer is longer than its
request until an address is proven."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from msgspec import to_builtins

from softnic.link.reach import jobs
from softnic.link.reach.messages import (
    ANSWERS,
    AddressChallenge,
    BindAddress,
    RegisterNode,
    Request,
    pack_request,
    unpack,
)
from softnic.link.reach.relay_table import RelayTable
from softnic.link.reach.server import MeetingServer
from softnic.link.reach.token import Grant, Token, admission, admits_all
from softnic.underlay import Address
from tests.link.reach.world import PORT, SECRET, UNIX_TIME, Node, Server, World, job_token, public_key

NOW = UNIX_TIME + 10.0
MANY = 10**5


class Bench:
    """A server with a proven node of a job, and what it answers."""

    def __init__(self) -> None:
        table = RelayTable(range(9500, 9510), 1e9, lambda _port: True, lambda _port: None)
        self.server = MeetingServer(admits_all(SECRET), random.Random(1).randbytes, table, port=PORT)
        self.token = job_token(8)
        self.recorded: list[tuple[Address, bytes]] = []
        world = World()
        world.servers[self.token.servers[0][0]] = server = Server(world)
        server.server = self.server
        self.nodes = [Node(world, self.token, index) for index in range(3)]
        world.watch = self._record
        world.run(5.0)
        self.now = world.unix_time

    def _record(self, source: Address, to: Address, data: bytes) -> None:
        if to[0] == self.token.servers[0][0]:
            self.recorded.append((source, data))

    def flood(self, datagrams: Iterator[tuple[Address, bytes]], count: int) -> tuple[int, int]:
        """Send many datagrams. Returns the bytes in and out, and checks each answer's length."""
        came = went = 0
        for _ in range(count):
            source, data = next(datagrams)
            out = self.server.on_datagram(PORT, source, data, self.now)
            answered = sum(len(each) for _, _, each in out)
            assert answered <= len(data)
            assert all(to == source for _, to, _ in out)
            came, went = came + len(data), went + answered
        return came, went


def strangers(chance: random.Random) -> Iterator[Address]:
    while True:
        yield f"192.0.2.{chance.randrange(1, 255)}", chance.randrange(1, 65536)


def forged(bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    """Requests with a MAC by a guessed admission, and real ones with some changed bytes."""
    real = [data for _, data in bench.recorded]
    known = set(real)
    for source in strangers(chance):
        if chance.random() < 0.5:
            yield source, request(bench.token.grant, chance.randbytes(32), chance)
        else:
            data = bytearray(chance.choice(real))
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
            if bytes(data) not in known:  # changes may undo each other
                yield source, bytes(data)


def truncated(bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    real = [data for _, data in bench.recorded]
    for source in strangers(chance):
        data = chance.choice(real)
        yield source, data[: chance.randrange(len(data))]


def noise(_bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    for source in strangers(chance):
        yield source, b"\x13\x01"[: chance.randrange(3)] + chance.randbytes(chance.randrange(400))


def guessed_jobs(_bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    """Requests of jobs that were invented, under the admission of a wrong secret."""
    for source in strangers(chance):
        grant = Grant(chance.randbytes(16), 8, int(UNIX_TIME) + 3600)
        yield source, request(grant, admission(chance.randbytes(32), grant.pack()), chance)


def replayed(bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    """Recorded requests, from the address that sent them, and from others."""
    for source in strangers(chance):
        sent_from, data = chance.choice(bench.recorded)
        yield (sent_from if chance.random() < 0.5 else source), data


def unproven(bench: Bench, chance: random.Random) -> Iterator[tuple[Address, bytes]]:
    """Genuine requests of a member of the job, from addresses that it does not receive at."""
    for source in strangers(chance):
        yield source, request(bench.token.grant, bench.token.admission, chance)


def request(grant: Grant, key: bytes, chance: random.Random) -> bytes:
    message: Request = RegisterNode(
        key=chance.randbytes(32),
        sequence=chance.getrandbits(60),
        cookie=chance.randbytes(16),
        epoch=b"",
        known=0,
        card=b"c",
    )
    if chance.random() < 0.2:
        message = BindAddress(key=message.key, sequence=message.sequence, cookie=b"")
    return pack_request(message, grant.pack(), key)


FLOODS: list[Callable[[Bench, random.Random], Iterator[tuple[Address, bytes]]]] = [
    forged,
    truncated,
    noise,
    guessed_jobs,
    replayed,
    unproven,
]


def check(flood: Callable[[Bench, random.Random], Iterator[tuple[Address, bytes]]], count: int) -> None:
    bench = Bench()
    before = to_builtins(bench.server.counted)
    members = {node.key for node in bench.nodes}
    _, went = bench.flood(flood(bench, random.Random(2)), count)
    after = to_builtins(bench.server.counted)
    added = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert (bench.server.jobs, bench.server.nodes, len(bench.server.relay)) == (1, 3, 3)
    assert sum(value for name, value in added.items() if name != "requests") == added["requests"] == count
    assert set(added) <= {"requests", "challenges", *(name for name in after if name.startswith("dropped_"))}
    if flood in (forged, truncated, noise, guessed_jobs):
        assert went == 0
    assert set(bench.nodes[0].client.nodes) | {bench.nodes[0].key} == members


@pytest.mark.parametrize("flood", FLOODS, ids=lambda each: each.__name__)
def test_a_flood_gets_nobody_in(flood: Callable[[Bench, random.Random], Iterator[tuple[Address, bytes]]]) -> None:
    check(flood, MANY // 5)


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS, ids=lambda each: each.__name__)
def test_floods_of_a_million_together_get_nobody_in(
    flood: Callable[[Bench, random.Random], Iterator[tuple[Address, bytes]]],
) -> None:
    check(flood, 10**6 // len(FLOODS))


@pytest.mark.parametrize("flood", FLOODS, ids=lambda each: each.__name__)
def test_a_flood_takes_no_memory(flood: Callable[[Bench, random.Random], Iterator[tuple[Address, bytes]]]) -> None:
    bench = Bench()
    datagrams = flood(bench, random.Random(2))
    tracemalloc.start()
    try:
        bench.flood(datagrams, 3000)  # caches are full
        before, _ = tracemalloc.get_traced_memory()
        bench.flood(datagrams, 3000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000


def proven(bench: Bench, token: Token, index: int, address: Address, card: bytes = b"card") -> bytes:
    """Register a node that receives at an address. Returns its cookie."""
    first = RegisterNode(key=public_key(index), sequence=1, cookie=b"", epoch=b"", known=0, card=card)
    grant = token.grant.pack()
    [(_, _, challenge)] = bench.server.on_datagram(
        PORT, address, pack_request(first, grant, token.admission), bench.now
    )
    got = unpack(challenge, ANSWERS)
    assert isinstance(got, AddressChallenge)
    second = RegisterNode(key=public_key(index), sequence=2, cookie=got.cookie, epoch=b"", known=0, card=card)
    bench.server.on_datagram(PORT, address, pack_request(second, grant, token.admission), bench.now)
    return got.cookie


def test_a_member_cannot_fill_a_server_beyond_its_job() -> None:
    bench = Bench()
    before = bench.server.counted.refused
    for index in range(100):
        proven(bench, bench.token, 1000 + index, (f"192.0.2.{index + 1}", 1))
    assert bench.server.nodes == bench.token.nodes
    assert bench.server.counted.refused - before == 100 - (bench.token.nodes - 3)


def test_one_node_has_few_addresses() -> None:
    bench = Bench()
    token = job_token(2, job=7)
    for index in range(50):
        proven(bench, token, 1000, (f"192.0.2.{index + 1}", 1))
    assert bench.server.nodes == 4
    job = next(each for each in bench.server._jobs.values() if each.grant == token.grant)
    assert len(job.nodes[public_key(1000)].contacts) == jobs.MOST_CONTACTS


def test_what_a_proven_address_gets_is_bounded() -> None:
    bench = Bench()
    token = job_token(64, job=8)
    address = ("192.0.2.1", 1)
    for index in range(63):
        proven(bench, token, 1000 + index, (f"198.18.0.{index + 1}", 1), bytes(700))
    cookie = proven(bench, token, 2000, address)
    went = 0
    for number in range(2000):
        bench.now += 0.001
        message = RegisterNode(
            key=public_key(2000), sequence=10 + number, cookie=cookie, epoch=b"", known=0, card=b"card"
        )
        data = pack_request(message, token.grant.pack(), token.admission)
        went += sum(len(each) for _, _, each in bench.server.on_datagram(PORT, address, data, bench.now))
    assert went <= jobs.ANSWER_BURST + 2.0 * jobs.ANSWER_RATE
    assert bench.server.counted.dropped_budget > 1000


def test_a_cookie_of_one_address_is_none_of_another() -> None:
    bench = Bench()
    token = job_token(2, job=9)
    cookie = proven(bench, token, 1000, ("192.0.2.1", 1))
    message = RegisterNode(key=public_key(1000), sequence=9, cookie=cookie, epoch=b"", known=0, card=b"other")
    data = pack_request(message, token.grant.pack(), token.admission)
    out = bench.server.on_datagram(PORT, ("192.0.2.1", 2), data, bench.now)
    assert len(out) == 1
    assert len(out[0][2]) <= len(data)
    job = next(each for each in bench.server._jobs.values() if each.grant == token.grant)
    assert job.nodes[public_key(1000)].card == b"card"


def test_an_old_cookie_is_none() -> None:
    bench = Bench()
    token = job_token(2, job=9)
    cookie = proven(bench, token, 1000, ("192.0.2.1", 1))
    bench.now += 55.0
    before = bench.server.counted.challenges
    message = RegisterNode(key=public_key(1000), sequence=9, cookie=cookie, epoch=b"", known=0, card=b"other")
    bench.server.on_datagram(
        PORT, ("192.0.2.1", 1), pack_request(message, token.grant.pack(), token.admission), bench.now
    )
    assert bench.server.counted.challenges == before + 1


def test_the_secret_of_another_server_opens_nothing() -> None:
    bench = Bench()
    stranger = job_token(8, secret=bytes(32))
    world = World()
    server = Server(world)
    server.server = bench.server
    node = Node(world, stranger, 0)
    world.run(5.0)
    assert not node.client.nodes
    assert node.client.counted.received == 0
    assert bench.server.counted.dropped_forged > 5
