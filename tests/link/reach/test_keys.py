"""Keys of nodes on a wire: who is talked to, what becomes of revoked keys, and rotations with a session in use."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from softnic.link.secure.identity import NodeIdentity
from softnic.link.secure.keys import public_share
from tests.link.doubles import A, B, C
from tests.link.reach.wires import PRIVATE, PUBLIC, Wire, settle
from tests.link.sockets import BOTH_FAMILIES

HOSTS = BOTH_FAMILIES
NEWER = b"n" * 32


@pytest.fixture
def three(stack: ExitStack) -> tuple[Wire, Wire, Wire]:
    """All have sessions with each other."""
    wires = [Wire(stack, mac, by_keys=True) for mac in (A, B, C)]
    for one in wires:
        for other in wires:
            if one is not other:
                one.link.add_peer(other.mac, other.link.address)
    a, b, c = wires
    for one, to in ((a, B), (b, C), (c, A)):
        one.send(to, b"hello", 0.0)
    settle(*wires, now=0.0)
    for wire in wires:
        assert len(wire.heard) == 1
        wire.heard.clear()
    return a, b, c


def test_a_revoked_peer_is_out_at_once_and_others_are_not(three: tuple[Wire, Wire, Wire]) -> None:
    a, b, c = three
    assert a.channel.revoke(PUBLIC[B], 1.0) == [B]
    for number in range(5):
        b.send(A, b"x", 1.0)
        a.send(B, b"y", 1.0)
        sent = c.send(A, bytes([number]), 1.0)
        settle(*three, now=1.0)
        assert a.heard.pop() == sent
    assert a.heard == b.heard == []
    assert a.counted.dropped_revoked >= 5
    assert a.counted.dropped_no_key == 5
    assert (a.counted.dropped_wrong_key, a.counted.dropped_no_session) == (0, 0)
    b.link.advance(20.0)
    settle(*three, now=20.0)
    assert a.counted.sessions == 2


def test_ones_own_revoked_key_is_used_no_more(three: tuple[Wire, Wire, Wire]) -> None:
    a, b, _ = three
    a.channel.revoke(PUBLIC[A], 1.0)
    assert a.channel._by_session == {}
    a.send(B, b"x", 1.0)
    settle(*three, now=1.0)
    assert b.heard == []


def test_a_peer_whose_key_becomes_known_is_talked_to_by_it_alone(stack: ExitStack) -> None:
    """From version 1 to version 2 while a session is in use; frames wait for the new one."""
    a, b = (Wire(stack, mac, by_keys=False) for mac in (A, B))
    a.link.add_peer(B, b.link.address)
    b.link.add_peer(A, a.link.address)
    a.send(B, b"by the network's key", 0.0)
    settle(a, b, now=0.0)
    for wire, other in ((a, B), (b, A)):
        wire.channel.replace_identity(NodeIdentity((PRIVATE[wire.mac],)), 1.0)
        wire.channel.set_keys(other, (PUBLIC[other],), 1.0)
    sent = a.send(B, b"by nodes' keys", 1.0)
    settle(a, b, now=1.0)
    assert b.heard[-1] == sent
    assert {session.terms.pair for each in set(a.channel._by_session.values()) for session in each.sessions} == {
        PUBLIC[A] + PUBLIC[B]
    }


def test_a_rotation_keeps_the_session_and_the_next_is_by_the_new_key(three: tuple[Wire, Wire, Wire]) -> None:
    a, b, _ = three
    newer = public_share(NEWER)
    a.channel.replace_identity(NodeIdentity((NEWER, PRIVATE[A])), 1.0)
    b.channel.set_keys(A, (newer, PUBLIC[A]), 1.0)
    before = b.counted.sessions
    now = 1.0
    while now < 300.0:  # beyond the life of a session
        now += 1.0
        there, back = a.send(B, repr(now).encode(), now), b.send(A, repr(now).encode(), now)
        settle(a, b, now=now)
        assert (b.heard.pop(), a.heard.pop()) == (there, back)
    assert b.counted.sessions > before
    pairs = {session.terms.pair for each in set(b.channel._by_session.values()) for session in each.sessions}
    assert PUBLIC[B] + newer in pairs
    b.channel.revoke(PUBLIC[A], now)
    sent = a.send(B, b"after", now)
    settle(a, b, now=now)
    assert b.heard == [sent]
