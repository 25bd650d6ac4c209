"""NICs with several queues: what one queue learns of a peer's address, all know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from softnic.link.reach.candidates import SILENT_S, Candidate
from softnic.underlay import Address
from tests.link.doubles import A, B
from tests.link.reach.wires import Translator
from tests.link.secure.test_queues import FLOWS, QueuedNode
from tests.link.sockets import BOTH_FAMILIES, plain_socket

HOSTS = BOTH_FAMILIES
Make = Callable[[int, int], tuple[QueuedNode, Translator, QueuedNode]]


def settle(*parts: QueuedNode | Translator, now: float) -> None:
    for _ in range(30):
        for part in parts:
            part.step(now)


@pytest.fixture
def make(stack: ExitStack) -> Make:
    def pair(queues: int, others: int) -> tuple[QueuedNode, Translator, QueuedNode]:
        a, b = QueuedNode(stack, A, queues, 1), QueuedNode(stack, B, others, 2)
        nat = Translator(stack, a.links[0].address, b.links[0].address)
        for link in a.links:
            link.add_peer(B, nat.inside.getsockname())
        for link in b.links:
            link.add_peer(A, nat.address)
        for port in FLOWS:
            a.send(b, port, 0.0)
            b.send(a, port, 0.0)
        settle(a, nat, b, now=0.0)
        return a, nat, b

    return pair


def places(node: QueuedNode, mac: bytes) -> set[Address]:
    return {link.reached[mac].address for link in node.links}


@pytest.mark.parametrize(("queues", "others"), [(1, 4), (2, 2), (4, 3)])
def test_all_queues_follow_what_one_of_them_hears(make: Make, queues: int, others: int) -> None:
    a, nat, b = make(queues, others)
    for number, port in enumerate((FLOWS[0], FLOWS[7], FLOWS[20]), 1):
        for each in b.heard:
            each.clear()
        nat.rebind()
        sent = a.send(b, port, 5.0 * number)
        settle(a, nat, b, now=5.0 * number)
        assert places(b, A) == {nat.address}
        assert [sent in each for each in b.heard] == [queue == b.queue_of(a, port) for queue in range(others)]
        for back in FLOWS:
            frame = b.send(a, back, 5.0 * number)
            settle(a, nat, b, now=5.0 * number)
            assert a.heard[a.queue_of(b, back)][-1] == frame


def test_a_replay_to_another_queue_moves_nobody(make: Make, stack: ExitStack) -> None:
    a, nat, b = make(1, 4)
    thief, seen = plain_socket(stack), []
    nat.passes = False
    for port in FLOWS:
        a.send(b, port, 1.0)
    for _ in FLOWS:
        seen.append(nat.inside.recv(65536))
        nat.outside.sendto(seen[-1], b.links[0].address)
    settle(b, now=1.0)
    for datagram in seen * 3:
        thief.sendto(datagram, b.links[0].address)
    settle(b, now=5.0)
    assert places(b, A) == {nat.address}


def test_a_further_queue_that_hears_nothing_has_the_peer_sought(make: Make, stack: ExitStack) -> None:
    a, nat, b = make(2, 2)
    other = Translator(stack, a.links[0].address, b.links[0].address)
    for link in a.links:
        link.offer(B, [Candidate(nat.inside.getsockname(), 2), Candidate(other.inside.getsockname(), 1)])
    port = next(port for port in FLOWS if a.queue_of(b, port) == 1)
    now = 10.0
    for _ in range(20):
        now += 0.1
        a.send(b, port, now)
        b.send(a, port, now)
        settle(a, nat, other, b, now=now)
    assert places(a, B) == {nat.inside.getsockname()}
    nat.passes = False
    begun = now
    while places(a, B) != {other.inside.getsockname()}:
        now += 0.1
        a.send(b, port, now)
        settle(a, nat, other, b, now=now)
        assert now < begun + SILENT_S + 2.0
