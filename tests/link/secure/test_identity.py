"""Identities of nodes: their files, and handshake version 2 between nodes that know each other's public keys."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from softnic.link.secure import identity, identity_hello
from softnic.link.secure.handshake import RETRY_S, Handshake
from softnic.link.secure.hello import HelloError, SecureHello
from softnic.link.secure.identity import (
    NodeIdentity,
    key_text,
    new_identity,
    parse_public,
    read_identity,
    rotate_identity,
)
from softnic.link.secure.identity_keys import NO_KEY, IdentityKeys, NodePair
from softnic.link.secure.key_ring import MAX_REVOKED, KeyRing
from softnic.link.secure.keys import PairKeys, agree, public_share
from tests.link.doubles import A, B, C

VNI = 0x123456
KEY = bytes(range(32))
PRIVATE = {A: b"a" * 32, B: b"b" * 32, C: b"c" * 32}
NEWER = {A: b"A" * 32, B: b"B" * 32}
PUBLIC = {mac: public_share(private) for mac, private in PRIVATE.items()}
NEWER_PUBLIC = {mac: public_share(private) for mac, private in NEWER.items()}


def keys(own: bytes, other: bytes, network_key: bytes = NO_KEY) -> IdentityKeys:
    return IdentityKeys(network_key, NodePair(VNI, own, other), PRIVATE[own], PUBLIC[other])


class TestFiles:
    def test_a_new_one_is_its_owners_alone_and_never_replaces_another(self, tmp_path: Path) -> None:
        path = tmp_path / "node.key"
        made = new_identity(str(path))
        assert path.stat().st_mode & 0o777 == 0o600
        assert read_identity(str(path)).private == made.private
        with pytest.raises(FileExistsError):
            new_identity(str(path))
        assert read_identity(str(path)).private == made.private

    def test_a_rotation_keeps_one_generation_behind_the_new_one(self, tmp_path: Path) -> None:
        path = str(tmp_path / "node.key")
        first = new_identity(path).private[0]
        second = rotate_identity(path).private[0]
        third = rotate_identity(path).private[0]
        assert len({first, second, third}) == 3
        assert read_identity(path).private == (third, second)
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert [each.name for each in tmp_path.iterdir()] == ["node.key"]

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
    def test_one_that_others_may_touch_is_refused(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "node.key"
        new_identity(str(path))
        path.chmod(mode)
        for use in (read_identity, rotate_identity):
            with pytest.raises(ValueError, match="is accessible to others"):
                use(str(path))

    @pytest.mark.parametrize("text", ["", "x", key_text(KEY)[:-1], f"{key_text(KEY)}\n" * 3, KEY.hex()])
    def test_other_content_is_refused_and_not_shown(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "node.key"
        path.touch(0o600)
        path.write_text(text)
        with pytest.raises(ValueError, match="does not contain one or two private keys") as caught:
            read_identity(str(path))
        assert key_text(KEY)[:-1] not in str(caught.value)

    def test_a_public_key_is_written_as_base64(self) -> None:
        assert len(key_text(PUBLIC[A])) == 44
        assert parse_public(key_text(PUBLIC[A])) == PUBLIC[A]

    @pytest.mark.parametrize("text", ["", "a" * 44, key_text(KEY)[:-1], key_text(KEY) + "=", "é" * 44])
    def test_other_text_is_no_public_key(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a public key"):
            parse_public(text)

    def test_a_public_key_of_small_order_is_refused(self) -> None:
        with pytest.raises(ValueError, match="of small order"):
            parse_public(key_text(b"\x01".ljust(32, b"\0")))


def extracted(salt: bytes, *secrets: bytes) -> bytes:
    for secret in secrets:
        salt = hmac.digest(salt, secret, hashlib.sha256)
    return salt


def expanded(key: bytes, info: bytes, length: int) -> bytes:
    made, block = b"", b""
    for number in range(1, 3):
        block = hmac.digest(key, block + info + bytes([number]), hashlib.sha256)
        made += block
    return made[:length]


class TestBytes:
    """docs/FORMAT.md, "Sealed datagrams": fixed keys and shares give fixed bytes."""

    SHARE: ClassVar = {A: b"x" * 32, B: b"y" * 32}

    def test_each_step_is_that_of_the_page(self) -> None:
        shares = {mac: public_share(private) for mac, private in self.SHARE.items()}
        for network_key in (NO_KEY, KEY):
            static = agree(PRIVATE[A], PUBLIC[B])
            secret = extracted(b"softnic sealed datagrams 2", network_key, static)
            names = VNI.to_bytes(4, "big") + A + B + PUBLIC[A] + PUBLIC[B]
            pair = keys(A, B, network_key)
            assert pair.hello_out == expanded(secret, b"hello\x02" + names, 32)
            ee = agree(self.SHARE[A], shares[B])
            es, se = agree(self.SHARE[A], PUBLIC[B]), agree(PRIVATE[A], shares[B])
            session = extracted(secret, ee, es, se)
            made = expanded(session, b"frame\x02" + names + shares[A] + shares[B], 44)
            out, _ = pair.agree(self.SHARE[A], shares[A], shares[B])
            assert out.key + out.nonce == made
            _, back = keys(B, A, network_key).agree(self.SHARE[B], shares[B], shares[A])
            assert back.key + back.nonce == made

    def test_a_hello(self) -> None:
        said = SecureHello(b"s" * 32, b"t" * 32, settled=True, asks=True, lanes=True)
        packed = keys(A, B, KEY).pack(said)
        hint = hashlib.sha256(PUBLIC[A] + PUBLIC[B]).digest()[:1]
        assert packed[:16] == b"\x12\x12\x34\x56\x02\x07" + A + hint + bytes(3)
        assert packed[16:80] == b"s" * 32 + b"t" * 32
        assert packed[80:] == hmac.digest(keys(A, B, KEY).hello_out, packed[:80], hashlib.sha256)[:16]
        assert len(packed) == identity_hello.LENGTH == 96

    def test_golden_vectors(self) -> None:
        pair, shares = keys(A, B, KEY), {mac: public_share(private) for mac, private in self.SHARE.items()}
        hello = pair.pack(SecureHello(shares[A], asks=True))
        out, back = pair.agree(self.SHARE[A], shares[A], shares[B])
        made = [hello[80:], out.key + out.nonce, back.key + back.nonce]
        assert [each.hex() for each in made] == [
            "85a0c032482a27d63f6e3c65f1e050bd",
            "06862ae14c0238673be813febd3286ab5e9ad1ac38511ef1d54264adc1f85aec200f261fc076ded3f2e343ba",
            "f05a4944491e2cd52d3d5571251249218d600e065f42192f5cf067f8eb94faa02a682584c9df76e82a035109",
        ]

    def test_each_bit_of_a_hello_counts(self) -> None:
        packed = keys(A, B).pack(SecureHello(b"s" * 32))
        receiver = keys(B, A)
        assert receiver.parse(packed) == SecureHello(b"s" * 32, pair=receiver.name)
        for bit in range(8 * len(packed)):
            altered = bytearray(packed)
            altered[bit // 8] ^= 1 << bit % 8
            with pytest.raises(HelloError, match="another key"):
                receiver.parse(bytes(altered))
        for other in (packed[:-1], packed + b"\0", b""):
            with pytest.raises(HelloError):
                receiver.parse(other)

    def test_any_other_circumstance_gives_other_keys(self) -> None:
        """Network key, VNI, either node, either private key, direction, either share."""
        pairs = [
            keys(A, B),
            keys(A, B, KEY),
            keys(B, A),
            keys(A, C),
            IdentityKeys(NO_KEY, NodePair(VNI + 1, A, B), PRIVATE[A], PUBLIC[B]),
            IdentityKeys(NO_KEY, NodePair(VNI, A, C), PRIVATE[A], PUBLIC[B]),
            IdentityKeys(NO_KEY, NodePair(VNI, A, B), NEWER[A], PUBLIC[B]),
            IdentityKeys(NO_KEY, NodePair(VNI, A, B), PRIVATE[A], NEWER_PUBLIC[B]),
        ]
        made = [pair.hello_out for pair in pairs]
        for pair in pairs:
            for private in (b"x" * 32, b"z" * 32):
                for theirs in (public_share(b"y" * 32), public_share(b"w" * 32)):
                    made += [each.key for each in pair.agree(private, public_share(private), theirs)]
        assert len(set(made)) == len(made)


class Side:
    """A node with a key ring, and datagrams on their way from it."""

    def __init__(self, own: bytes, other: bytes, ring: KeyRing, seed: int = 0) -> None:
        self.own, self.other, self.ring = own, other, ring
        self.shake = Handshake(ring.with_peer(VNI, own, other), VNI, random.Random(own[-1] + seed).randbytes)
        self.sent: list[bytes] = []

    def say(self, said: SecureHello | None) -> None:
        if said is not None and (packed := self.shake.pack(said)):
            self.sent.append(packed)

    def hear(self, datagram: bytes, now: float) -> None:
        for pair in self.shake.pairs:
            with contextlib.suppress(HelloError):
                hello = pair.parse(datagram)
                self.say(self.shake.on_hello(hello, now))
                return

    def renew(self) -> None:
        self.shake.set_pairs(self.ring.with_peer(VNI, self.own, self.other))


def ring(own: bytes, other: bytes, network_key: bytes = b"", *, newer: bool = False) -> KeyRing:
    private = (NEWER[own], PRIVATE[own]) if newer else (PRIVATE[own],)
    return KeyRing(network_key, NodeIdentity(private), peer_keys={other: (PUBLIC[other],)})


def deliver(a: Side, b: Side, now: float = 0.0) -> None:
    for _ in range(40):
        for one, other in ((a, b), (b, a)):
            sent, one.sent = one.sent, []
            for each in sent:
                other.hear(each, now)
        if not a.sent and not b.sent:
            return
    raise AssertionError("they do not come to an end")


def can_talk(a: Side, b: Side, now: float = 0.0) -> bool:
    """Each encrypts with a session that the other has with the same keys."""
    for one, other in ((a, b), (b, a)):
        session = one.shake.sending(now)
        if session is None:
            return False
        nonce = bytes(session.encryptor.nonce)
        if nonce not in [bytes(each.decryptor.nonce) for each in other.shake.opening(now)]:
            return False
    return True


class TestAgreeing:
    @pytest.mark.parametrize("network_key", [b"", KEY])
    def test_two_that_know_each_other_get_a_session(self, network_key: bytes) -> None:
        a, b = Side(A, B, ring(A, B, network_key)), Side(B, A, ring(B, A, network_key))
        a.say(a.shake.start(0.0))
        deliver(a, b)
        assert can_talk(a, b)
        assert a.shake.sessions[0].terms.pair == PUBLIC[A] + PUBLIC[B]

    def test_both_at_once_make_one(self) -> None:
        a, b = Side(A, B, ring(A, B)), Side(B, A, ring(B, A))
        a.say(a.shake.start(0.0))
        b.say(b.shake.start(0.0))
        deliver(a, b)
        assert can_talk(a, b)
        assert len(a.shake.sessions) == len(b.shake.sessions) == 1

    @pytest.mark.parametrize("theirs", [b"", KEY[::-1]])
    def test_another_network_key_opens_nothing(self, theirs: bytes) -> None:
        """It is a second factor: the right private keys alone do not do."""
        a, b = Side(A, B, ring(A, B, KEY)), Side(B, A, ring(B, A, theirs))
        a.say(a.shake.start(0.0))
        b.say(b.shake.start(0.0))
        deliver(a, b)
        assert not a.shake.sessions
        assert not b.shake.sessions

    def test_the_network_key_alone_opens_nothing(self) -> None:
        """Who has stolen it says hello by version 1, and by version 2 with a key of its own."""
        a = Side(A, B, ring(A, B, KEY))
        thieves = [
            Side(B, A, KeyRing(KEY)),
            Side(B, A, KeyRing(KEY, NodeIdentity((PRIVATE[C],)), peer_keys={A: (PUBLIC[A],)})),
        ]
        for thief in thieves:
            thief.say(thief.shake.start(0.0))
            a.say(a.shake.start(0.0))
            deliver(a, thief)
            assert not a.shake.sessions
            assert not thief.shake.sessions

    def test_who_has_a_private_key_is_that_node_alone(self) -> None:
        """B's key does not make its holder A in the eyes of C (key-compromise impersonation)."""
        c = Side(C, A, KeyRing(b"", NodeIdentity((PRIVATE[C],)), peer_keys={A: (PUBLIC[A],)}))
        thief = Side(A, C, KeyRing(b"", NodeIdentity((PRIVATE[B],)), peer_keys={C: (PUBLIC[C],)}))
        thief.say(thief.shake.start(0.0))
        c.say(c.shake.start(0.0))
        deliver(c, thief)
        assert not c.shake.sessions

    def test_a_share_of_small_order_makes_no_session(self) -> None:
        a = Side(A, B, ring(A, B))
        asked = a.shake.start(0.0)
        assert asked is not None
        bad = SecureHello(b"\x01".ljust(32, b"\0"), asked.share, pair=asked.pair)
        with pytest.raises(HelloError, match="small order"):
            a.shake.on_hello(bad, 0.0)
        assert not a.shake.sessions


class TestRules:
    """Who is talked to, and by what."""

    def kinds(self, made: KeyRing) -> list[type]:
        return [type(each) for each in made.with_peer(VNI, A, B)]

    def test_a_peer_with_a_key_is_never_talked_to_by_version_1(self) -> None:
        assert self.kinds(ring(A, B, KEY)) == [IdentityKeys]
        assert self.kinds(KeyRing(KEY, peer_keys={B: (PUBLIC[B],)})) == []
        revoked = KeyRing(KEY, NodeIdentity((PRIVATE[A],)), peer_keys={B: (PUBLIC[B],)}, revoked=[PUBLIC[B]])
        assert self.kinds(revoked) == []

    def test_a_peer_without_one_is_talked_to_by_the_networks_key_unless_identities_are_required(self) -> None:
        mine = NodeIdentity((PRIVATE[A],))
        assert self.kinds(KeyRing(KEY)) == [PairKeys]
        assert self.kinds(KeyRing(KEY, mine)) == [PairKeys]
        assert self.kinds(KeyRing(KEY, mine, require_identity=True)) == []
        assert self.kinds(KeyRing(b"", mine)) == []

    def test_two_generations_of_both_are_four_pairs_the_newest_first(self) -> None:
        made = KeyRing(b"", NodeIdentity((NEWER[A], PRIVATE[A])), peer_keys={B: (NEWER_PUBLIC[B], PUBLIC[B])})
        names = [pair.name for pair in made.with_peer(VNI, A, B)]
        assert names[0] == NEWER_PUBLIC[A] + NEWER_PUBLIC[B]
        assert names[-1] == PUBLIC[A] + PUBLIC[B]
        assert len(set(names)) == 4

    def test_revoked_keys_are_bounded(self) -> None:
        made = KeyRing(KEY)
        for number in range(MAX_REVOKED):
            made.revoke(number.to_bytes(32, "big"))
        made.revoke(bytes(32))
        with pytest.raises(OSError, match="revoked keys already"):
            made.revoke(b"x" * 32)


class TestRotation:
    def test_a_key_that_the_peer_does_not_know_yet_costs_one_repetition(self) -> None:
        a, b = Side(A, B, ring(A, B, newer=True)), Side(B, A, ring(B, A))
        a.say(a.shake.start(0.0))
        deliver(a, b)
        assert not a.shake.sessions
        a.say(a.shake.advance(RETRY_S))
        deliver(a, b, RETRY_S)
        assert can_talk(a, b, RETRY_S)

    def test_sessions_go_on_and_the_next_one_is_by_the_new_key(self) -> None:
        a, b = Side(A, B, ring(A, B)), Side(B, A, ring(B, A))
        a.say(a.shake.start(0.0))
        deliver(a, b)
        before = a.shake.sessions[0]
        a.ring.replace_identity(NodeIdentity((NEWER[A], PRIVATE[A])))
        a.renew()
        assert can_talk(a, b)
        b.ring.set_keys(A, (NEWER_PUBLIC[A], PUBLIC[A]))
        b.renew()
        assert can_talk(a, b)
        b.say(b.shake.start(1.0))
        deliver(a, b, 1.0)
        assert can_talk(a, b, 1.0)
        assert a.shake.sessions[0].terms.pair == NEWER_PUBLIC[A] + PUBLIC[B]
        assert a.shake.sessions[1] is before

    @pytest.mark.parametrize("seed", range(60))
    def test_any_order_of_both_rotations_and_of_lost_hellos_ends_with_a_session(self, seed: int) -> None:
        chance = random.Random(seed)
        a, b = Side(A, B, ring(A, B), seed), Side(B, A, ring(B, A), seed)
        changes: list[tuple[Side, Callable[[], None]]] = [
            (a, partial(a.ring.replace_identity, NodeIdentity((NEWER[A], PRIVATE[A])))),
            (b, partial(b.ring.replace_identity, NodeIdentity((NEWER[B], PRIVATE[B])))),
            (a, partial(a.ring.set_keys, B, (NEWER_PUBLIC[B], PUBLIC[B]))),
            (b, partial(b.ring.set_keys, A, (NEWER_PUBLIC[A], PUBLIC[A]))),
        ]
        chance.shuffle(changes)
        now = 0.0
        for _ in range(400):
            now += 0.05
            if changes and chance.random() < 0.1:
                side, change = changes.pop()
                change()
                side.renew()
            for one, other in ((a, b), (b, a)):
                one.say(one.shake.start(now) if chance.random() < 0.05 else one.shake.advance(now))
                sent, one.sent = one.sent, []
                for each in sent:
                    if chance.random() < 0.6:
                        other.hear(each, now)
        for _ in range(200):
            now += 0.05
            for one in (a, b):
                one.say(one.shake.advance(now))
            deliver(a, b, now)
        if not can_talk(a, b, now):
            a.say(a.shake.start(now))
            deliver(a, b, now)
        assert can_talk(a, b, now)


class TestHostile:
    """Nobody gets in, nothing grows, and no answer is longer than what it answers."""

    def attack(self, count: int) -> None:
        a, b = Side(A, B, ring(A, B, KEY)), Side(B, A, ring(B, A, KEY))
        a.say(a.shake.start(0.0))
        recorded = [a.sent[0]]
        deliver(a, b)
        b.shake.end()
        chance = random.Random(count)
        answered = asked = 0
        for number in range(count):
            datagram = chance.choice(recorded) if number % 2 else chance.randbytes(96)
            if not number % 2:
                datagram = b"\x12" + VNI.to_bytes(3, "big") + b"\x02\x02" + A + datagram[12:]
            b.hear(datagram, 1.0)
            asked += len(datagram)
            answered += sum(map(len, b.sent))
            b.sent.clear()
        assert not b.shake.sessions
        assert len(b.shake._offers) == 1
        assert 0 < answered <= asked

    def test_ten_thousand_forged_and_replayed_hellos(self) -> None:
        self.attack(10_000)

    @pytest.mark.slow
    def test_a_million(self) -> None:
        self.attack(1_000_000)


def test_an_identity_is_one_or_two_keys() -> None:
    for private in ((), (b"x",), (b"x" * 32,) * 3):
        with pytest.raises(ValueError, match="private keys"):
            NodeIdentity(private)
    assert identity.fingerprint(PUBLIC[A]) == key_text(PUBLIC[A])[:8]
