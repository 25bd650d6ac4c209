"""Two nodes coming to a session over a network that does what it likes, in virtual time."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import random
from collections.abc import Callable, Sequence

import pytest

from softnic.link.secure import handshake, hello
from softnic.link.secure import session as session_limits
from softnic.link.secure.handshake import Handshake
from softnic.link.secure.hello import HelloError, SecureHello, parse
from softnic.link.secure.keys import PairKeys
from tests.link.doubles import A, B

KEY = bytes(range(32))
VNI = 0x123456
RTT_S = 0.01


class Side:
    """A node, and hellos on their way from it."""

    def __init__(self, own: bytes, other: bytes, seed: int, key: bytes = KEY) -> None:
        self.keys = PairKeys(key, VNI, own, other)
        self.shake = Handshake([self.keys], VNI, random.Random(seed).randbytes)
        self.sent: list[bytes] = []

    def say(self, said: SecureHello | None) -> None:
        if said is not None:
            self.sent.append(said.pack(VNI, self.keys.hello_out))

    def on_hello(self, datagram: bytes, now: float) -> None:
        with contextlib.suppress(HelloError):
            self.say(self.shake.on_hello(parse(datagram, VNI, self.keys.hello_in), now))

    def start(self, now: float) -> None:
        self.say(self.shake.start(now))


@pytest.fixture
def a() -> Side:
    return Side(A, B, 1)


@pytest.fixture
def b() -> Side:
    return Side(B, A, 2)


def deliver(a: Side, b: Side, now: float = 0.0) -> None:
    """Everything in order until nobody has anything to say."""
    for _ in range(20):
        for one, other in ((a, b), (b, a)):
            sent, one.sent = one.sent, []
            for each in sent:
                other.on_hello(each, now)
    assert not a.sent
    assert not b.sent


def agreed(a: Side, b: Side, now: float = 0.0) -> bool:
    """Each encrypts with a session that the other decrypts with the same keys."""
    for one, other in ((a, b), (b, a)):
        session = one.shake.sending(now)
        if session is None:
            return False
        there = [
            each for each in other.shake.opening(now) if (each.ours, each.theirs) == (session.theirs, session.ours)
        ]
        if len(there) != 1 or bytes(there[0].decryptor.nonce) != bytes(session.encryptor.nonce):
            return False
        if bytes(there[0].decryptor.header) != bytes(session.encryptor.header):
            return False
    return True


class TestAgreeing:
    def test_whoever_begins(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        assert agreed(a, b)
        assert a.shake.due is b.shake.due is None

    def test_both_at_once_make_one_session(self, a: Side, b: Side) -> None:
        a.start(0.0)
        b.start(0.0)
        deliver(a, b)
        assert agreed(a, b)
        assert len(a.shake.sessions) == len(b.shake.sessions) == 1

    def test_the_one_that_begins_can_send_after_one_round_trip_and_the_other_half_later(self, a: Side, b: Side) -> None:
        a.start(0.0)
        b.on_hello(a.sent.pop(), 0.0)
        assert b.shake.sending(0.0) is None
        a.on_hello(b.sent.pop(), 0.0)
        assert a.shake.sending(0.0) is not None
        b.on_hello(a.sent.pop(), 0.0)
        assert b.shake.sending(0.0) is not None

    def test_directions_have_different_keys(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        session = a.shake.sessions[0]
        assert bytes(session.encryptor.nonce) != bytes(session.decryptor.nonce)
        assert bytes(session.encryptor.header) != bytes(session.decryptor.header)

    def test_another_key_comes_to_nothing(self, a: Side) -> None:
        b = Side(B, A, 2, KEY[::-1])
        a.start(0.0)
        b.start(0.0)
        deliver(a, b)
        assert not a.shake.sessions
        assert not b.shake.sessions

    @pytest.mark.parametrize("seed", range(60))
    def test_over_any_network_within_ten_seconds(self, seed: int) -> None:
        """Loses, doubles and reorders up to a third each, both ways; whatever was said may come again at any time."""
        random_ = random.Random(seed)
        a, b = Side(A, B, 2 * seed), Side(B, A, 2 * seed + 1)
        way: list[tuple[float, Side, bytes]] = []
        said: list[tuple[Side, bytes]] = []
        now = 0.0
        while now < 10.0:
            for one, other in ((a, b), (b, a)):
                if random_.random() < 0.1 and one.shake.sending(now) is None:
                    one.start(now)
                one.say(one.shake.advance(now))
                for each in one.sent:
                    said.append((other, each))
                    copies = random_.choice((0, 1, 1, 2))
                    way += [(now + RTT_S * random_.random(), other, each) for _ in range(copies)]
                one.sent = []
            if said and random_.random() < 0.05:
                way.append((now, *random_.choice(said)))
            for due, to, each in [entry for entry in way if entry[0] <= now]:
                to.on_hello(each, now)
                way.remove((due, to, each))
            now += RTT_S / 2
        assert agreed(a, b, now)


class TestLosses:
    def test_a_hello_is_said_again_and_given_up_some_time(self, a: Side) -> None:
        a.start(0.0)
        assert a.shake.start(0.1) is None
        times = [0.0]
        while (due := a.shake.due) is not None:
            assert a.shake.advance(due - 0.001) is None
            a.say(a.shake.advance(due))
            times.append(due)
        assert len(set(a.sent)) == 1  # one offer
        assert len(a.sent) == handshake.TRIES
        assert times[-1] == pytest.approx(11.0, abs=1.5)
        a.start(20.0)
        assert len(a.sent) == handshake.TRIES + 1

    def test_a_lost_confirmation_is_said_again(self, a: Side, b: Side) -> None:
        a.start(0.0)
        b.on_hello(a.sent.pop(), 0.0)
        a.on_hello(b.sent.pop(), 0.0)
        a.sent.clear()
        assert a.shake.due == handshake.RETRY_S
        a.say(a.shake.advance(handshake.RETRY_S))
        deliver(a, b, handshake.RETRY_S)
        assert agreed(a, b, handshake.RETRY_S)
        assert a.shake.due is None

    def test_a_frame_confirms_too(self, a: Side, b: Side) -> None:
        a.start(0.0)
        b.on_hello(a.sent.pop(), 0.0)
        a.on_hello(b.sent.pop(), 0.0)
        a.shake.settle(a.shake.sessions[0], 0.0)
        assert a.shake.due is None

    def test_a_peer_that_restarted_amid_it_is_met_anew(self, a: Side, b: Side) -> None:
        """What it said before is answered to a NIC that is gone."""
        a.start(0.0)
        b.on_hello(a.sent.pop(), 0.0)
        a.on_hello(b.sent.pop(), 0.0)
        reborn = Side(B, A, 3)
        now = 0.0
        while not agreed(a, reborn, now):
            assert a.shake.due is not None
            now = a.shake.due
            a.say(a.shake.advance(now))
            deliver(a, reborn, now)
        assert now < 3.0


class TestReplays:
    def test_what_was_recorded_makes_no_session_with_a_new_node(self, a: Side, b: Side) -> None:
        recorded: list[bytes] = []
        a.start(0.0)
        for _ in range(4):
            recorded += a.sent
            for each, side in ((a, b), (b, a)):
                sent, each.sent = each.sent, []
                for datagram in sent:
                    side.on_hello(datagram, 0.0)
        assert len(recorded) == 2
        reborn = Side(B, A, 3)
        for datagram in recorded * 3:
            reborn.on_hello(datagram, 0.0)
        assert not reborn.shake.sessions

    def test_nor_does_it_disturb_the_one_there_is(self, a: Side, b: Side) -> None:
        a.start(0.0)
        first = list(a.sent)
        deliver(a, b)
        session = b.shake.sessions[0]
        session.encryptor.counter = 7
        for datagram in first:
            b.on_hello(datagram, 0.0)
        deliver(a, b)
        assert b.shake.sessions == [session]
        assert session.encryptor.counter == 7
        assert agreed(a, b)

    def test_what_a_node_says_means_nothing_to_itself(self, a: Side) -> None:
        a.start(0.0)
        with pytest.raises(HelloError, match="another key"):
            parse(a.sent[0], VNI, a.keys.hello_in)

    def test_keys_are_new_after_any_restart(self) -> None:
        """Nonces begin at 0 again: they must do so under other keys."""
        seen = set()
        for seeds in ((1, 2), (1, 3), (4, 2)):  # one side restarts, then the other
            a, b = Side(A, B, seeds[0]), Side(B, A, seeds[1])
            a.start(0.0)
            deliver(a, b)
            for side in (a, b):
                seen.add(bytes(side.shake.sessions[0].encryptor.nonce))
        assert len(seen) == 6


class TestReplacing:
    def test_the_old_session_is_used_until_the_peer_has_the_new_one(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        old = a.shake.sending(0.0)
        assert old is not None
        assert not old.needs_rekey(session_limits.REKEY_S - 1)
        now = session_limits.REKEY_S
        assert old.needs_rekey(now)
        a.start(now)
        b.on_hello(a.sent.pop(), now)
        a.on_hello(b.sent.pop(), now)
        assert a.shake.sending(now) is old
        deliver(a, b, now)
        new = a.shake.sending(now)
        assert new is not old
        assert agreed(a, b, now)
        assert [old] == a.shake.opening(now)[1:]  # frames that were on their way

    def test_no_more_than_two_are_kept(self, a: Side, b: Side) -> None:
        for now in range(5):
            a.start(float(now))
            deliver(a, b, float(now))
            assert agreed(a, b, float(now))
            assert len(a.shake.sessions) == min(2, now + 1)

    def test_one_that_is_too_old_is_not_used(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        assert a.shake.sending(session_limits.EXPIRE_S - 1) is not None
        assert a.shake.opening(session_limits.EXPIRE_S - 1) != []
        assert a.shake.sending(session_limits.EXPIRE_S) is None
        assert a.shake.sessions == []

    def test_an_expired_session_is_dropped_although_a_newer_one_is_valid(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        a.start(session_limits.REKEY_S)
        deliver(a, b, session_limits.REKEY_S)
        old, new = a.shake.opening(session_limits.EXPIRE_S - 1)[::-1]
        assert (old.terms.made_at, new.terms.made_at) == (0.0, session_limits.REKEY_S)
        assert a.shake.opening(session_limits.EXPIRE_S) == [new]
        assert a.shake.sending(session_limits.EXPIRE_S) is new
        assert agreed(a, b, session_limits.EXPIRE_S)

    def test_nor_one_that_has_sealed_too_much(self, a: Side, b: Side) -> None:
        a.start(0.0)
        deliver(a, b)
        session = a.shake.sessions[0]
        session.encryptor.counter = session_limits.REKEY_FRAMES
        assert session.needs_rekey(0.0)
        assert session.encryptor.limit == session_limits.LIMIT_FRAMES
        assert a.shake.sending(0.0) is session
        a.shake.forget(session)
        assert a.shake.sending(0.0) is None


class TestHello:
    PACKED = SecureHello(b"s" * 32, b"t" * 32, settled=True).pack(VNI, KEY)

    def test_is_88_bytes_as_the_table_says(self) -> None:
        assert self.PACKED[:72] == b"\x10\x12\x34\x56\x01\0\0\0" + b"s" * 32 + b"t" * 32
        assert len(self.PACKED) == hello.LENGTH == 88
        assert parse(self.PACKED, VNI, KEY) == SecureHello(b"s" * 32, b"t" * 32, settled=True)

    @staticmethod
    def signed(fields: bytes) -> bytes:
        return fields + hmac.digest(KEY, fields, hashlib.sha256)[:16]

    def test_each_bit_is_authenticated(self) -> None:
        for bit in range(8 * len(self.PACKED)):
            altered = bytearray(self.PACKED)
            altered[bit // 8] ^= 1 << bit % 8
            with pytest.raises(HelloError, match="another key"):
                parse(bytes(altered), VNI, KEY)

    @pytest.mark.parametrize("datagram", [b"", PACKED[:-1], PACKED + b"\0"])
    def test_other_bytes_are_none(self, datagram: bytes) -> None:
        with pytest.raises(HelloError):
            parse(datagram, VNI, KEY)

    def test_one_of_another_network_or_kind_is_none_of_ours(self) -> None:
        with pytest.raises(HelloError, match="network 1193046"):
            parse(self.PACKED, VNI + 1, KEY)
        with pytest.raises(HelloError, match="or none"):
            parse(self.signed(b"\x11" + self.PACKED[1:72]), VNI, KEY)

    def test_fields_without_meaning_are_refused_even_of_a_peer(self) -> None:
        def odd(change: Callable[[bytearray], object]) -> bytes:
            fields = bytearray(self.PACKED[:72])
            change(fields)
            return self.signed(bytes(fields))

        changes: Sequence[Callable[[bytearray], object]] = (
            lambda fields: fields.__setitem__(4, 8),
            lambda fields: fields.__setitem__(7, 1),
            lambda fields: fields.__setitem__(slice(8, 40), bytes(32)),
        )
        for change in changes:
            with pytest.raises(HelloError, match="no meaning"):
                parse(odd(change), VNI, KEY)

    def test_a_share_that_is_no_public_key_makes_no_session(self, a: Side, b: Side) -> None:
        """Only a holder of the key can say it."""
        a.start(0.0)
        offered = parse(a.sent.pop(), VNI, b.keys.hello_in)
        with pytest.raises(HelloError, match="small order"):
            a.shake.on_hello(SecureHello(b"\x01".ljust(32, b"\0"), offered.share), 0.0)
        assert not a.shake.sessions
