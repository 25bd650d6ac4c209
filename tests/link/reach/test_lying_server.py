"""A server that lies about addresses, keys, cards and numbers: nodes drop and count it, and one honest server
suffices."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from softnic.link.reach.card import Card, CardSeal
from softnic.link.reach.messages import ANSWERS, JobEntry, JobState, MeetingMessage, pack, pack_address, unpack
from softnic.link.reach.server import Out
from tests.link.reach.world import SERVERS, Node, Server, World, job_token, public_key

Lie = Callable[["LyingServer", JobState], JobState]


class LyingServer(Server):
    """A server that has the secret, and changes what it says."""

    lie: Lie

    def __init__(self, world: World, lie: Lie, address: tuple[str, int] = SERVERS[0]) -> None:
        super().__init__(world, address)
        self.lie = lie
        self.token = job_token(4, servers=2)
        self.said: list[JobState] = []

    def _send(self, out: list[Out]) -> None:
        changed = []
        for port, to, data in out:
            message: MeetingMessage = unpack(data, ANSWERS)
            if isinstance(message, JobState):
                self.said.append(message)
                message = self.lie(self, message)
                data = pack(message, self.token.grant.pack(), self.token.admission)
            changed.append((port, to, data))
        super()._send(changed)


def swapped_cards(_server: LyingServer, said: JobState) -> JobState:
    cards = [each.card for each in said.entries]
    return replace(
        said, entries=[replace(each, card=card) for each, card in zip(said.entries, cards[1:] + cards[:1], strict=True)]
    )


def invented_nodes(_server: LyingServer, said: JobState) -> JobState:
    chance = random.Random(said.echo)
    invented = [JobEntry(chance.randbytes(32), chance.randbytes(200), []) for _ in range(3)]
    return replace(said, entries=[*invented, *said.entries[:1]])


def other_keys(_server: LyingServer, said: JobState) -> JobState:
    return replace(said, entries=[replace(each, key=bytes(reversed(each.key))) for each in said.entries])


def cards_of_another_job(_server: LyingServer, said: JobState) -> JobState:
    seal = CardSeal(job_token(4, job=2))
    entries = [
        JobEntry(public_key(n), seal.seal(Card(2**62, n, (), ()), public_key(n), random.Random(n).randbytes), [])
        for n in range(4)
    ]
    return replace(said, entries=entries)


def other_numbers(_server: LyingServer, said: JobState) -> JobState:
    """Guesses where the number is in a sealed card."""
    chance = random.Random(said.until)
    entries = []
    for each in said.entries:
        card = bytearray(each.card)
        if card:
            card[chance.randrange(len(card))] ^= 0x01
        entries.append(replace(each, card=bytes(card)))
    return replace(said, entries=entries)


CARD_LIES: list[Lie] = [swapped_cards, invented_nodes, other_keys, cards_of_another_job, other_numbers]


def other_addresses(_server: LyingServer, said: JobState) -> JobState:
    wrong = pack_address(("198.18.0.1", 666))
    return replace(said, seen=wrong, entries=[replace(each, seen=[wrong]) for each in said.entries])


def everybody_gone(_server: LyingServer, said: JobState) -> JobState:
    return replace(said, entries=[JobEntry(each.key, b"", []) for each in said.entries])


def endless(_server: LyingServer, said: JobState) -> JobState:
    return replace(said, latest=2**63 - 1)


def skipping(_server: LyingServer, said: JobState) -> JobState:
    return replace(said, entries=[], until=said.latest)


def other_epochs(_server: LyingServer, said: JobState) -> JobState:
    return replace(said, epoch=random.Random(said.echo).randbytes(8))


LIES: list[Lie] = [*CARD_LIES, other_addresses, everybody_gone, endless, skipping, other_epochs]


def name_of(lie: Lie) -> str:
    return lie.__name__


@pytest.mark.parametrize("lie", CARD_LIES, ids=name_of)
def test_nodes_believe_no_card_that_was_not_sealed_for_its_key(lie: Lie) -> None:
    world = World()
    LyingServer(world, lie)
    nodes = [Node(world, job_token(4, servers=2), index) for index in range(4)]
    world.run(10.0)
    keys = {node.key for node in nodes}
    for node in nodes:
        assert set(node.client.nodes) <= keys - {node.key}
        assert node.client.counters()["cards_forged"] > 0
        for key, met in node.client.nodes.items():
            assert {each.address for each in met.candidates if not each.relayed} <= {
                other.address for other in nodes if other.key == key
            }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lie", LIES, ids=name_of)
def test_one_honest_server_suffices(lie: Lie, seed: int) -> None:
    world = World(seed, loss=0.05, jitter=0.02)
    LyingServer(world, lie)
    Server(world, SERVERS[1])
    nodes = [Node(world, job_token(4, servers=2), index) for index in range(4)]
    assert world.run(10.0, lambda: all(node.client.complete for node in nodes))
    world.run(5.0)
    numbers = {node.key: node.client.number for node in nodes}
    assert set(numbers.values()) == set(range(4))
    for node in nodes:
        assert {key: met.number for key, met in node.client.nodes.items()} == {
            key: number for key, number in numbers.items() if key != node.key
        }
        for other in nodes:
            if other is not node:
                met = node.client.nodes[other.key]
                assert other.address in [each.address for each in met.candidates]


@pytest.mark.parametrize("lie", LIES, ids=name_of)
def test_a_lying_server_is_not_asked_more_often_than_any_other(lie: Lie) -> None:
    """At most every 20 ms, and for a port of its relay every 0.2 s."""
    world = World(delay=0.001)
    LyingServer(world, lie)
    node = Node(world, job_token(4, servers=2), 0)
    Node(world, job_token(4, servers=2), 1)
    sent: list[int] = []
    world.watch = lambda source, _to, data: sent.append(len(data)) if source == node.address else None
    world.run(20.0)
    assert len(sent) < 20.0 / 0.02 * 1.5


def test_an_older_card_is_not_believed() -> None:
    world = World()
    old: dict[bytes, bytes] = {}

    def replaying(_server: LyingServer, said: JobState) -> JobState:
        for each in said.entries:
            if each.card:
                old.setdefault(each.key, each.card)
        return replace(said, entries=[replace(each, card=old.get(each.key, b"")) for each in said.entries])

    LyingServer(world, replaying)
    Server(world, SERVERS[1])
    a, b = (Node(world, job_token(4, servers=2), index) for index in range(2))
    world.run(3.0)
    a.client.update([("203.0.113.200", 1)])
    world.run(3.0)
    assert b.client.nodes[a.key].candidates[0].address == ("203.0.113.200", 1)
    assert b.client.counters()["cards_stale"] > 0


def test_replayed_and_forged_answers_change_nothing() -> None:
    world = World()
    Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    recorded: list[tuple[tuple[str, int], bytes]] = []
    world.watch = lambda source, to, data: recorded.append((source, data)) if to == nodes[0].address else None
    world.run(5.0)
    client = nodes[0].client
    before = client.nodes, client.number, client.seen, client.nat
    chance = random.Random(1)
    for _ in range(20_000):
        source, data = chance.choice(recorded)
        if chance.random() < 0.5:
            source = "198.18.0.1", chance.randrange(1, 65536)
        if chance.random() < 0.5:
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            data = bytes(changed[: chance.randrange(len(data) + 1)])
        client.on_datagram(source, data, world.now)
    assert (client.nodes, client.number, client.seen, client.nat) == before
    counted = client.counted
    assert counted.dropped_forged + counted.dropped_malformed > 9_000
    assert counted.dropped_unasked > 3_000
    assert len(client._asked) <= 1024
