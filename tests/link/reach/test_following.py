"""Peers that move to another address are followed by what is authentic and new, and by nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from softnic import underlay
from softnic.link.reach.finder import EXAMINED_PER_S, FOLLOW_S, OTHERS_PER_S
from softnic.link.udp import VxlanLink
from softnic.link.unknown_sources import FLOOD, MAX_SHARE
from softnic.underlay import Address
from tests.link.doubles import A, B, C
from tests.link.reach.wires import Translator, Wire, drained, run, settle
from tests.link.sockets import BOTH_FAMILIES, VNI, plain_socket

HOSTS = BOTH_FAMILIES


class Pair:
    """A behind an address translator, B at its own address."""

    def __init__(self, stack: ExitStack, *, by_keys: bool) -> None:
        self.a, self.b = Wire(stack, A, by_keys=by_keys), Wire(stack, B, by_keys=by_keys)
        self.nat = Translator(stack, self.a.link.address, self.b.link.address)
        self.a.link.add_peer(B, self.nat.inside.getsockname())
        self.b.link.add_peer(A, self.nat.address)
        self.parts = (self.a, self.nat, self.b)

    def settle(self, now: float) -> None:
        settle(*self.parts, now=now)

    def exchange(self, text: bytes, now: float) -> None:
        """A frame each way arrives."""
        for one, other in ((self.a, self.b), (self.b, self.a)):
            sent = one.send(other.mac, text, now)
            self.settle(now)
            assert other.heard[-1] == sent


@pytest.fixture(params=[True, False], ids=["nodes' keys", "network's key"])
def pair(request: pytest.FixtureRequest, stack: ExitStack) -> Pair:
    made = Pair(stack, by_keys=request.param)
    made.exchange(b"hello", 0.0)
    return made


def where(wire: Wire, mac: bytes) -> Address:
    return wire.link.reached[mac].address


class TestFrames:
    def test_one_frame_from_another_address_moves_the_peer(self, pair: Pair) -> None:
        pair.nat.rebind()
        pair.a.send(B, b"moves", 5.0)
        pair.settle(5.0)
        assert where(pair.b, A) == pair.nat.address
        pair.exchange(b"after", 5.0)
        found = pair.b.link.reached[A]
        assert (found.moves, found.since, found.relayed) == (1, 5.0, False)
        assert pair.b.link.counters()["link_peers_moved"] == 1
        assert pair.b.link.counters()["link_dropped_unknown_source"] == 0
        assert pair.b.lines == [f"a peer is reached at {underlay.text(pair.nat.address)} from now on"]
        assert pair.b.counted.sessions == 1

    def test_it_leaves_the_address_that_it_was_followed_to_before(self, pair: Pair) -> None:
        for move in range(1, 6):
            pair.nat.rebind()
            pair.a.send(B, b"moves", 5.0 * move)
            pair.settle(5.0 * move)
            pair.exchange(b"after", 5.0 * move)
        assert len(pair.b.link.sorted_peers()[0]) == 2  # that of the configuration, and the last

    def test_two_addresses_by_turns_do_not_make_it_move_with_each_frame(self, pair: Pair, stack: ExitStack) -> None:
        first, second = pair.nat, Translator(stack, pair.a.link.address, pair.b.link.address)
        for number in range(100):
            pair.a.send(B, b"x", 1.0 + number / 1000)
            data = drained(first.inside)
            (first if number % 2 else second).outside.sendto(data[0], pair.b.link.address)
            pair.b.step(1.0 + number / 1000)
        assert pair.b.link.reached[A].moves <= 0.1 / FOLLOW_S + 1

    def test_a_replay_from_elsewhere_moves_nobody(self, pair: Pair, stack: ExitStack) -> None:
        """Frames and hellos of the past, those that have arrived and those that were held back."""
        thief = plain_socket(stack)
        recorded: list[bytes] = []
        for number in range(50):
            pair.a.send(B, number.to_bytes(2, "big"), 1.0)
            data = drained(pair.nat.inside)
            recorded += data
            if number % 5:  # the others are held back
                for each in data:
                    pair.nat.outside.sendto(each, pair.b.link.address)
        pair.b.step(1.0)
        heard = len(pair.b.heard)
        for now in (1.0, 2.0, 3.0):
            for datagram in recorded:
                thief.sendto(datagram, pair.b.link.address)
            pair.settle(now)
        assert where(pair.b, A) == pair.nat.address
        assert len(pair.b.heard) == heard
        assert drained(thief) == []

    def test_forgeries_move_nobody_and_are_not_answered(self, pair: Pair, stack: ExitStack) -> None:
        chance, thief = random.Random(1), plain_socket(stack)
        session = pair.b.channel._by_session.copy().popitem()[0]
        for number in range(10_000):
            begin = session + bytes(4) if number % 2 else b"\x11" + chance.randbytes(11)
            thief.sendto(begin + chance.randbytes(60), pair.b.link.address)
            if number % 50 == 0:
                pair.b.step(number / 100)
        assert where(pair.b, A) == pair.nat.address
        assert drained(thief) == []
        pair.exchange(b"after", 200.0)


class TestHellos:
    def test_a_peer_that_has_moved_before_its_session_is_found(self, pair: Pair, stack: ExitStack) -> None:
        """A restarts at another address: its hello is answered there, and its next one moves it."""
        fresh = Wire(stack, A, by_keys=pair.a.channel.has_identity, seed=1)
        fresh.link.add_peer(B, pair.b.link.address)
        sent = fresh.send(B, b"restarted", 300.0)
        settle(fresh, pair.b, now=300.0)
        assert pair.b.heard[-1] == sent
        assert where(pair.b, A) == fresh.link.address

    def test_replayed_hellos_move_nobody_and_get_no_more_than_they_bring(self, pair: Pair, stack: ExitStack) -> None:
        thief, recorder = plain_socket(stack), plain_socket(stack)
        restarted = Wire(stack, A, by_keys=pair.a.channel.has_identity, seed=2)
        restarted.link.add_peer(B, recorder.getsockname())
        restarted.send(B, b"asks", 0.0)
        (hello,) = drained(recorder)
        sent = got = 0
        for number in range(10_000):
            sent += thief.sendto(hello, pair.b.link.address)
            if number % 20 == 0:
                pair.b.step(10 + number / 100)
                got += sum(map(len, drained(thief)))
        assert 0 < got <= sent
        assert where(pair.b, A) == pair.nat.address
        assert pair.b.counted.sessions == 1
        assert len(pair.b.channel._states) == 1

    def test_garbage_that_looks_like_hellos_is_not_answered(self, pair: Pair, stack: ExitStack) -> None:
        chance, thief = random.Random(2), plain_socket(stack)
        for number in range(10_000):
            kind, length = ((0x12, 96), (0x10, 88))[number % 2]
            head = bytes([kind]) + VNI.to_bytes(3, "big") + b"\x02\x02" + A
            thief.sendto(head + chance.randbytes(length - len(head)), pair.b.link.address)
            if number % 20 == 0:
                pair.b.step(number / 100)
        assert drained(thief) == []
        assert where(pair.b, A) == pair.nat.address
        pair.exchange(b"after", 200.0)


class TestOtherAddresses:
    def test_a_peer_at_another_ones_address_is_told_by_its_hello(self, stack: ExitStack) -> None:
        """C is where B is said to have one of its addresses; each gets what is its own."""
        a, b, c = (Wire(stack, mac, by_keys=True) for mac in (A, B, C))
        nobody = plain_socket(stack)
        a.link.add_peer(C, nobody.getsockname())
        a.link.add_peer(B, b.link.address)
        table = a.link._forwarding
        there = table.configured(B)
        assert there is not None
        table._peers[c.link.address] = there  # as one of several of its name
        table._sorted = None
        c.link.add_peer(A, a.link.address)
        c.send(A, b"asks", 1.0)
        now = run(a, b, c, start=1.0, end=3.0)
        sent = c.send(A, b"from c", now)
        settle(a, b, c, now=now)
        assert a.heard == [sent]
        assert where(a, C) == c.link.address
        assert where(a, B) == b.link.address

    def test_datagrams_that_are_not_the_links_own_are_passed_on(self, pair: Pair, stack: ExitStack) -> None:
        got: list[tuple[Address, bytes, float]] = []
        server = plain_socket(stack)
        pair.b.link.deliver_datagrams(lambda address, data, now: got.append((address, data, now)))
        server.sendto(b"\x13meet", pair.b.link.address)
        pair.b.step(7.0)
        assert got == [(server.getsockname(), b"\x13meet", 7.0)]
        pair.b.link.send_datagram(server.getsockname(), b"\x13answer")
        assert drained(server) == [b"\x13answer"]
        with pytest.raises(ValueError, match="begins with 0x13"):
            pair.b.link.send_datagram(server.getsockname(), b"\x11")
        for _ in range(OTHERS_PER_S + 500):
            server.sendto(b"\x13x", pair.b.link.address)
            if len(got) % 20 == 0:
                pair.b.step(7.0)
        pair.b.step(7.0)
        assert len(got) <= OTHERS_PER_S

    def test_a_link_without_a_key_follows_nobody(self, stack: ExitStack, pair: Pair) -> None:
        del pair
        link = VxlanLink((plain_socket(stack).getsockname()[0], 0), vni=VNI)
        stack.callback(link.close)
        with pytest.raises(OSError, match="for NICs that encrypt"):
            link.offer(A, [])


class TestFloods:
    def test_a_moved_peer_comes_through_the_kernels_filter(self, pair: Pair, stack: ExitStack) -> None:
        """The filter passes a random share of what may be a peer's."""
        flood = plain_socket(stack)
        for _ in range(3 * FLOOD):
            flood.sendto(b"\x11" + bytes(50), pair.b.link.address)
            pair.b.step(1.0)
            if pair.b.link.counted.unknown_source_floods:
                break
        assert pair.b.link.counted.unknown_source_floods == 1
        before = pair.b.link.counted.dropped_unknown_source
        for _ in range(200):
            flood.sendto(b"\x99", pair.b.link.address)
            pair.b.step(1.0)
        assert pair.b.link.counted.dropped_unknown_source == before
        pair.nat.rebind()
        for _ in range(1000):
            pair.a.send(B, b"moves", 2.5)
            pair.settle(2.5)
            if where(pair.b, A) == pair.nat.address:
                break
        pair.exchange(b"after", 2.5)

    def test_the_share_is_narrowed_while_more_come(self, pair: Pair, stack: ExitStack) -> None:
        flood = plain_socket(stack)
        kept = pair.b.link._source_filter
        for number in range(200_000):
            flood.sendto(b"\x11" + bytes(50), pair.b.link.address)
            pair.b.step(1.0 + 0.09 * (number / 20_000))  # 20,000 in a window
            if kept._share > 8:
                break
        assert 8 < kept._share <= MAX_SHARE
        pair.b.step(20.0)
        pair.b.link.advance(20.0)
        assert not kept.active
        assert kept._share == 8

    def test_examinations_are_bounded(self, pair: Pair, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        asked = 0
        claim: Callable[..., object] = pair.b.channel.claim

        def count(datagram: bytes, now: float, *, notes: bool) -> object:
            nonlocal asked
            asked += 1
            return claim(datagram, now, notes=notes)

        monkeypatch.setattr(pair.b.channel, "claim", count)
        monkeypatch.setattr("softnic.link.unknown_sources.FLOOD", 10**9)
        thief = plain_socket(stack)
        [session] = pair.b.channel._by_session
        for number in range(3 * EXAMINED_PER_S):
            thief.sendto(session + b"\xff" * 50, pair.b.link.address)
            if number % 20 == 0:
                pair.b.step(1.0)
        assert 0 < asked <= EXAMINED_PER_S
