"""Kinds of NAT, as nodes behind them find out, and pairs that only the relay connects."""

from __future__ import annotations

import pytest

from softnic.link.reach.nat import nat_kind
from softnic.link.reach.own_card import MeetingOptions
from tests.link.reach.world import Nat, Node, Server, World, job_token

OTHER = "198.51.100.9"
NATS = {
    "full cone": ("endpoint", "endpoint"),
    "restricted": ("endpoint", "address"),
    "port-restricted": ("endpoint", "port"),
    "symmetric": ("port", "port"),
}


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("kind", NATS)
def test_a_node_finds_the_kind_of_its_nat(kind: str, loss: float) -> None:
    world = World(seed=3, delay=0.02, loss=loss)
    Server(world, other=OTHER)
    node = Node(world, job_token(2), 0, Nat("192.0.2.1", *NATS[kind]))
    assert node.client.nat == "unknown"
    assert world.run(8.0, lambda: node.client.nat != "unknown")
    assert node.client.nat == kind


def test_a_server_with_one_address_calls_a_full_cone_restricted() -> None:
    world = World()
    Server(world)
    node = Node(world, job_token(2), 0, Nat("192.0.2.1", *NATS["full cone"]))
    assert world.run(1.0, lambda: node.client.nat != "unknown")
    assert node.client.nat == "restricted"


def test_a_node_without_a_nat_is_open() -> None:
    world = World()
    Server(world)
    node = Node(world, job_token(2), 0)
    assert world.run(1.0, lambda: node.client.nat == "open")


def test_a_node_whose_firewall_lets_only_answers_pass_is_port_restricted() -> None:
    assert (
        nat_kind([("192.0.2.1", 1)], ("192.0.2.1", 1), ("192.0.2.1", 1), port=False, address=False) == "port-restricted"
    )


@pytest.mark.parametrize("seen", [("127.0.0.1", 7), ("::1", 7)])
def test_a_node_on_the_servers_host_is_behind_no_nat(seen: tuple[str, int]) -> None:
    assert nat_kind([("192.0.2.1", 7)], seen, seen, port=True, address=False) == "open"


def test_a_node_that_no_datagram_reaches_has_no_udp() -> None:
    world = World(loss=1.0)
    Server(world)
    node = Node(world, job_token(2), 0)
    found = []
    for seconds in (2.9, 1.0):
        world.run(seconds)
        found.append(node.client.nat)
    assert found == ["unknown", "no UDP"]


def test_another_nat_is_found_out_anew() -> None:
    world = World()
    Server(world, other=OTHER)
    node = Node(world, job_token(1), 0, Nat("192.0.2.1", *NATS["full cone"]))
    world.run(5.0)
    assert node.client.nat == "full cone"
    node.nat = Nat("192.0.2.7", *NATS["symmetric"])
    assert world.run(15.0, lambda: node.client.nat == "symmetric")


@pytest.mark.parametrize("kind", NATS)
def test_the_relay_connects_nodes_behind_any_nats(kind: str) -> None:
    world = World(loss=0.05)
    Server(world)
    token = job_token(2)
    a = Node(world, token, 0, Nat("192.0.2.1", *NATS["symmetric"]))
    b = Node(world, token, 1, Nat("192.0.2.2", *NATS[kind]))
    assert world.run(5.0, lambda: a.client.is_relay_bound(b.key) and b.client.is_relay_bound(a.key))
    world.loss = 0.0
    [to_b] = [each.address for each in a.client.nodes[b.key].candidates if each.relayed]
    [to_a] = [each.address for each in b.client.nodes[a.key].candidates if each.relayed]
    for _ in range(30):
        a.send(to_b, b"\x11 to b")
        b.send(to_a, b"\x11 to a")
        world.run(10.0)
    assert b.frames == [(to_a, b"\x11 to b")] * 30
    assert a.frames == [(to_b, b"\x11 to a")] * 30


def test_a_relay_that_is_not_wanted_is_not_bound() -> None:
    world = World()
    server = Server(world)
    token = job_token(2)
    a, b = (Node(world, token, index) for index in range(2))
    a.client.use_relay(b.key, False)
    assert world.run(5.0, lambda: b.client.is_relay_bound(a.key))
    world.run(5.0)
    assert not a.client.is_relay_bound(b.key)
    a.client.use_relay(b.key, True)
    assert world.run(1.0, lambda: a.client.is_relay_bound(b.key))
    assert server.server.counted.dropped_misplaced == 0


def test_a_relay_port_follows_a_node_whose_address_changes() -> None:
    world = World()
    Server(world)
    token = job_token(2)
    a = Node(world, token, 0, Nat("192.0.2.1", *NATS["symmetric"]))
    b = Node(world, token, 1, Nat("192.0.2.2", *NATS["symmetric"]))
    world.run(5.0)
    b.nat = Nat("192.0.2.3", *NATS["symmetric"])
    world.run(12.0)
    to_b = a.client.nodes[b.key].candidates[-1]
    assert to_b.relayed
    a.send(to_b.address, b"\x12 there")
    world.run(1.0)
    assert [data for _, data in b.frames] == [b"\x12 there"]


def test_a_node_that_asks_for_no_relay_has_no_port() -> None:
    world = World()
    server = Server(world)
    token = job_token(2)
    Node(world, token, 0, options=MeetingOptions(started=world.unix_time, relay=False))
    b = Node(world, token, 1)
    world.run(3.0)
    assert len(server.relay) == 1
    assert not any(each.relayed for met in b.client.nodes.values() for each in met.candidates)
