"""A node that relays is a meeting server of its own job, which the other nodes find in its card."""

from __future__ import annotations

import random

from softnic.link.reach.candidates import Candidate
from softnic.link.reach.met_node import BY_NODE, RELAYED
from softnic.link.reach.own_card import MeetingOptions
from softnic.link.reach.token import Token, admits_one
from softnic.underlay import Address
from tests.link.reach.world import PORT, SERVERS, Nat, Node, Server, World, job_token

SERVICE: Address = ("203.0.113.200", PORT)


class RelayingNode(Node):
    """A node that anyone reaches, with the server that it is."""

    def __init__(self, world: World, token: Token, index: int, service: Address = SERVICE) -> None:
        options = MeetingOptions(started=world.unix_time, serves=[service])
        super().__init__(world, token, index, options=options)
        self.service = Server(world, service, admit=admits_one(token))

    def stop(self) -> None:
        super().stop()
        self.service.stop()


def relays_of(node: Node, other: Node) -> list[Candidate]:
    found = node.client.nodes.get(other.key)
    return [] if found is None else [each for each in found.candidates if each.relayed]


def behind_symmetric_nats(world: World, token: Token) -> tuple[Node, Node]:
    a, b = (Node(world, token, index, Nat(f"192.0.2.{index}", mapping="port")) for index in (1, 2))
    return a, b


def forwards(world: World, a: Node, b: Node, to: Address) -> bool:
    """Whether frames that each node sends to the other's port arrive."""
    [(back, _)] = [(each.address, 0) for each in relays_of(b, a) if each.address[0] == to[0]]
    before = len(a.frames), len(b.frames)
    for _ in range(5):
        a.send(to, b"\x11a")
        b.send(back, b"\x11b")
        world.run(0.1)
    return len(a.frames) > before[0] and len(b.frames) > before[1]


def test_two_nodes_use_the_relay_of_a_third_and_prefer_it_to_a_servers() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    a, b = behind_symmetric_nats(world, token)
    RelayingNode(world, token, 3)
    assert world.run(5.0, lambda: len(relays_of(a, b)) == len(relays_of(b, a)) == 2)
    assert [(each.address[0], each.preference) for each in relays_of(a, b)] == [
        (SERVICE[0], BY_NODE),
        (SERVERS[0][0], RELAYED),
    ]
    world.run(2.0)
    for each in relays_of(a, b):
        assert forwards(world, a, b, each.address)
    [at_node, at_server] = [each.address for each in relays_of(a, b)]
    relaying = [each.number for key, each in a.client.nodes.items() if key not in (a.key, b.key)]
    assert [a.client.relaying(at_node)] == relaying
    assert a.client.relaying(at_server) is None
    assert server.server.nodes == 3


def test_a_relay_at_a_node_needs_no_relay_at_a_server() -> None:
    world = World()
    Server(world).relay._free.clear()
    token = job_token(3)
    a, b = behind_symmetric_nats(world, token)
    RelayingNode(world, token, 3)
    assert world.run(5.0, lambda: len(relays_of(a, b)) == 1)
    world.run(2.0)
    assert forwards(world, a, b, relays_of(a, b)[0].address)


def test_when_the_relaying_node_has_gone_that_of_a_server_is_left() -> None:
    world = World()
    Server(world)
    token = job_token(3)
    a, b = behind_symmetric_nats(world, token)
    relaying = RelayingNode(world, token, 3)
    assert world.run(5.0, lambda: len(relays_of(a, b)) == 2)
    world.run(2.0)
    relaying.stop()
    assert world.run(30.0, lambda: [each.preference for each in relays_of(a, b)] == [RELAYED])
    assert forwards(world, a, b, relays_of(a, b)[0].address)


def test_nodes_of_a_job_meet_at_a_node_that_relays_when_the_server_has_gone() -> None:
    world = World()
    server = Server(world)
    token = job_token(4)
    a, b = behind_symmetric_nats(world, token)
    RelayingNode(world, token, 3)
    late = Node(world, token, 4)
    assert world.run(5.0, lambda: a.client.complete)
    world.run(2.0)
    server.stop()
    late.client.update([("203.0.113.77", 5000)])
    assert world.run(5.0, lambda: any(each.address[1] == 5000 for each in b.client.nodes[late.key].candidates))


def test_a_node_serves_its_own_job_alone() -> None:
    world = World()
    Server(world)
    token = job_token(3)
    relaying = RelayingNode(world, token, 3)
    other = Token.make(random.Random(9).randbytes(32), [SERVICE], job_token(2, job=2).grant, bytes(32))
    stranger = Node(world, other, 7)
    world.run(5.0)
    assert not stranger.client.registered
    assert relaying.service.server.counted.dropped_forged == relaying.service.server.counted.requests > 0


def test_a_job_uses_four_relaying_nodes_the_same_ones_for_all() -> None:
    world = World()
    Server(world)
    token = job_token(8)
    a, b = behind_symmetric_nats(world, token)
    for index in range(3, 9):
        RelayingNode(world, token, index, (f"203.0.113.{200 + index}", PORT))
    assert world.run(20.0, lambda: len(relays_of(a, b)) == len(relays_of(b, a)) == 5)
    hosts = {each.address[0] for each in relays_of(a, b)}
    assert hosts == {each.address[0] for each in relays_of(b, a)}
    world.run(20.0)
    assert len(relays_of(a, b)) == 5
    assert sum(each.server.nodes > 0 for each in world.servers.values()) == 5


def test_the_place_of_a_node_that_says_goodbye_is_free_at_once() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    world.run(5.0)
    number = nodes[1].client.number
    for address, data in nodes[1].client.goodbye():
        nodes[1].send(address, data)
    nodes[1].stop()
    world.run(0.2)
    assert (server.server.nodes, server.server.counted.nodes_left) == (2, 1)
    late = Node(world, token, 7)
    assert world.run(2.0, lambda: late.client.number is not None)
    assert late.client.number == number


def test_a_goodbye_that_is_sent_again_or_from_elsewhere_ends_nobody() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    world.run(5.0)
    [(address, data)] = nodes[1].client.goodbye()
    nodes[2].send(address, data)  # another address: it is asked for a cookie of its own
    world.run(1.0)
    assert server.server.nodes == 3
    nodes[1].send(address, data)
    world.run(0.1)
    assert server.server.nodes == 2
    nodes[1].stop()
    again = Node(world, token, 1)
    assert world.run(2.0, lambda: again.client.complete)
    again.send(address, data)
    world.run(1.0)
    assert server.server.nodes == 3
