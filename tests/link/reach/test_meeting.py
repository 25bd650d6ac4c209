"""Nodes meet through servers, in virtual time: with loss, reordering, restarts, and servers that die."""

from __future__ import annotations

import pytest

from softnic.link.reach.own_card import MeetingOptions
from tests.link.reach.world import SERVERS, Nat, Node, Server, World, job_token


def all_complete(nodes: list[Node]) -> bool:
    return all(node.client.complete for node in nodes)


def test_nodes_meet_within_three_round_trips() -> None:
    world = World(delay=0.025)
    Server(world)
    token = job_token(8)
    nodes = [Node(world, token, index, Nat(f"192.0.2.{index + 1}")) for index in range(8)]
    began = world.now
    assert world.run(2.0, lambda: all_complete(nodes))
    assert world.now - began < 0.3
    for node in nodes:
        assert set(node.client.nodes) == {other.key for other in nodes} - {node.key}
        assert node.client.counters() == {name: 0 for name in node.client.counters()} | {
            "received": node.client.counted.received
        }


def test_all_nodes_come_to_the_same_numbers() -> None:
    world = World()
    Server(world)
    token = job_token(4)
    nodes = [Node(world, token, index, number={1: 0, 2: 0}.get(index)) for index in range(4)]
    assert world.run(2.0, lambda: all_complete(nodes))
    found = [
        {node.key: node.client.number} | {key: met.number for key, met in node.client.nodes.items()} for node in nodes
    ]
    assert all(each == found[0] for each in found)
    assert sorted(number for number in found[0].values() if number is not None) == [0, 1, 2, 3]
    assert found[0][min(nodes[1].key, nodes[2].key)] == 0


@pytest.mark.parametrize("seed", range(20))
def test_loss_and_reordering_delay_only(seed: int) -> None:
    world = World(seed, delay=0.02, loss=0.2, jitter=0.1)
    Server(world)
    token = job_token(6)
    nodes = [Node(world, token, index) for index in range(6)]
    assert world.run(10.0, lambda: all_complete(nodes))


def test_a_node_that_comes_later_is_pushed_to_the_others() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(2)]
    world.run(30.0)
    assert not all_complete(nodes)
    nodes.append(Node(world, token, 2))
    began = world.now
    assert world.run(5.0, lambda: all_complete(nodes))
    assert world.now - began < 0.5
    assert server.server.nodes == 3


def test_changed_candidates_reach_the_others_within_a_second() -> None:
    world = World(delay=0.05)
    Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    world.run(20.0)
    nodes[0].client.update([("203.0.113.77", 4000)])
    began = world.now

    def known() -> bool:
        met = [node.client.nodes[nodes[0].key] for node in nodes[1:]]
        return all(each.candidates[0].address == ("203.0.113.77", 4000) for each in met)

    assert world.run(5.0, known)
    assert world.now - began < 1.0


def test_a_seen_address_that_changes_reaches_the_others_within_a_second() -> None:
    world = World()
    Server(world)
    token = job_token(2)
    nat = Nat("192.0.2.1")
    nodes = [Node(world, token, 0, nat), Node(world, token, 1)]
    world.run(20.0)
    nat.rebind()
    changed: list[float] = []

    def known() -> bool:
        before = nodes[0].client.seen
        if before != nodes[1].client.nodes[nodes[0].key].seen[:1]:
            changed.append(world.now)
        return bool(changed) and before == nodes[1].client.nodes[nodes[0].key].seen[:1]

    assert world.run(15.0, known)
    assert changed[-1] - changed[0] < 1.0


def test_a_job_goes_on_when_one_of_two_servers_dies() -> None:
    world = World()
    first, second = (Server(world, address) for address in SERVERS)
    token = job_token(3, servers=2)
    nodes = [Node(world, token, index) for index in range(2)]
    world.run(2.0)
    first.stop()
    nodes.append(Node(world, token, 2))
    began = world.now
    assert world.run(5.0, lambda: all_complete(nodes))
    assert world.now - began < 1.0
    assert second.server.nodes == 3
    world.run(20.0)
    relays = [each for each in nodes[0].client.nodes[nodes[2].key].candidates if each.relayed]
    assert [each.address[0] for each in relays] == [SERVERS[1][0]]


def test_nodes_register_again_after_a_restart_of_the_server() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    world.run(5.0)
    assert all_complete(nodes)
    server.start()
    assert world.run(15.0, lambda: server.server.nodes == 3)
    late = Node(world, token, 3)
    assert world.run(2.0, lambda: late.client.refusal != "")
    assert late.client.refusal == "the job has all its nodes"


def test_a_silent_node_is_forgotten_and_another_takes_its_place_and_number() -> None:
    world = World()
    server = Server(world)
    token = job_token(3)
    nodes = [Node(world, token, index) for index in range(3)]
    world.run(30.0)
    numbers = {node.key: node.client.number for node in nodes}
    nodes[1].stop()
    world.run(65.0)
    assert server.server.nodes == 2
    assert server.server.counted.nodes_forgotten == 1
    late = Node(world, token, 7)
    staying = [nodes[0], nodes[2]]
    assert world.run(5.0, lambda: late.client.complete and all(late.key in node.client.nodes for node in staying))
    world.run(1.0)
    assert {node.key: node.client.number for node in staying} == {node.key: numbers[node.key] for node in staying}
    assert late.client.number == numbers[nodes[1].key]
    assert staying[0].client.nodes[late.key].number == late.client.number


def test_a_restarted_node_is_believed() -> None:
    world = World()
    Server(world)
    token = job_token(2)
    nodes = [Node(world, token, index) for index in range(2)]
    world.run(5.0)
    nodes[0].stop()
    world.run(5.0)
    again = Node(world, token, 0, number=9)
    world.run(2.0)
    assert again.client.complete
    assert nodes[1].client.nodes[again.key].number == 9


def test_an_expired_job_ends_at_once() -> None:
    world = World()
    server = Server(world)
    nodes = [Node(world, job_token(2), index) for index in range(2)]
    world.run(5.0)
    assert server.server.jobs == 1
    world.run(3600.0 - world.now - 1.0)
    assert server.server.jobs == 1
    world.run(3.0)
    assert (server.server.jobs, server.server.nodes, len(server.relay)) == (0, 0, 0)
    assert all_complete(nodes)


def test_a_job_of_many_nodes_arrives_in_chunks() -> None:
    world = World(delay=0.02)
    server = Server(world)
    token = job_token(100)
    options = MeetingOptions(started=world.unix_time, relay=False)
    nodes = [Node(world, token, index, options=options) for index in range(100)]
    began = world.now
    assert world.run(10.0, lambda: all_complete(nodes))
    assert world.now - began < 2.0
    assert server.server.counted.dropped_budget == 0
    numbers = {tuple(sorted((met.number or 0, key) for key, met in node.client.nodes.items())) for node in nodes}
    assert len(numbers) == 100  # each lacks its own
    assert {node.client.number for node in nodes} == set(range(100))
