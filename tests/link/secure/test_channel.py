"""native/nic/aead.c: what it makes, what it opens, and what it does not open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.link.secure import hello, libcrypto

KEY = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
NONCE = bytes.fromhex("cafebabefacedbaddecaf888")
HEADER = b"\x11\x12\x34\x56sess"
HELLO = b"\x10"
WINDOW = lib.SN_REPLAY_WINDOW


class Sender:
    def __init__(self, key: bytes = KEY, nonce: bytes = NONCE, header: bytes = HEADER, limit: int = 2**64 - 1) -> None:
        self.context = libcrypto.encrypting(key)
        state = {"context": self.context, "nonce": nonce, "header": header, "limit": limit}
        self.state = ffi.new("sn_encryptor *", state)

    def encrypt(self, *frames: bytes, tx_space: int | None = None) -> list[bytes]:
        """Checks that nothing is written behind `tx_space`."""
        data = b"".join(frames) or b"\0"
        lengths = [len(frame) for frame in frames]
        offsets = [sum(lengths[:index]) for index in range(len(frames))]
        tx_space = sum(lengths) + lib.SN_SECURE_OVERHEAD * len(frames) if tx_space is None else tx_space
        out = ffi.new("uint8_t[]", b"\xa5" * (tx_space + 64))
        where, sizes = ffi.new("uint32_t[]", len(frames) + 1), ffi.new("uint32_t[]", len(frames) + 1)
        count = lib.sn_encrypt(
            libcrypto.cipher(), self.state, data, offsets, lengths, len(frames), out, tx_space, where, sizes
        )
        assert ffi.buffer(out)[tx_space : tx_space + 64] == b"\xa5" * 64
        return [bytes(ffi.buffer(out + where[index], sizes[index])) for index in range(count)]

    def at(self, counter: int, frame: bytes = bytes(60)) -> bytes:
        self.state.counter = counter
        (encrypted,) = self.encrypt(frame)
        return encrypted


class Receiver:
    def __init__(self, *decryptors: tuple[bytes, bytes, bytes]) -> None:
        self.contexts = [libcrypto.decrypting(key) for key, _, _ in decryptors]
        self.states = [
            ffi.new("sn_decryptor *", {"context": context, "nonce": nonce, "header": header})
            for context, (_, nonce, header) in zip(self.contexts, decryptors, strict=True)
        ]

    def decrypt(self, *datagrams: bytes) -> tuple[list[bytes], dict[str, Any]]:
        """The frames, and what was counted that is not 0. Checks that each datagram was."""
        data = ffi.new("uint8_t[]", b"".join(datagrams) + b"\0")
        sizes = [len(each) for each in datagrams]
        lengths = ffi.new("uint32_t[]", sizes)
        offsets = ffi.new("uint32_t[]", [sum(sizes[:index]) for index in range(len(sizes))])
        found = ffi.new("sn_decrypted *")
        cipher, count = libcrypto.cipher(), len(datagrams)
        keys = ffi.new("sn_hello_key[]", [{"kind": hello.KIND, "key": KEY}])
        states = self.states
        self.done = lib.sn_decrypt(
            cipher, keys, 1, states, len(states), data, offsets, lengths, count, offsets, lengths, found
        )
        names = ("frames", "empty", "wrong_key", "plaintext", "malformed", "unknown", "replayed", "forged")
        counts = {name: getattr(found, name) for name in names if getattr(found, name)}
        assert sum(counts.values()) == self.done
        assert sum(found.by) == found.frames + found.empty
        return [bytes(ffi.buffer(data + offsets[i], lengths[i])) for i in range(found.frames)], counts


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver((KEY, NONCE, HEADER))


def ghash(secret: int, *parts: bytes) -> int:
    """NIST SP 800-38D, 6.4, over additional data and ciphertext."""
    blocks = [part[at : at + 16].ljust(16, b"\0") for part in parts for at in range(0, len(part), 16)]
    sizes = b"".join((8 * len(part)).to_bytes(8, "big") for part in parts)
    total = 0
    for block in [*blocks, sizes]:
        left, right, total = total ^ int.from_bytes(block, "big"), secret, 0
        for bit in range(127, -1, -1):
            total ^= right * (left >> bit & 1)
            right = right >> 1 ^ (0xE1 << 120) * (right & 1)
    return total


class TestBytes:
    TEXT = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    CIPHERTEXT = bytes.fromhex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    )
    SECRET, MASK = 0xACBEF20579B4B8EBCE889BAC8732DAD7, 0xFD2CAA16A5832E76AA132C1453EEDA7E
    """H and E(K, Y0)."""

    def test_this_file_knows_gcm(self) -> None:
        """Test case 16 of McGrew and Viega's specification."""
        more = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
        assert ghash(self.SECRET, more, self.CIPHERTEXT) ^ self.MASK == 0x76FC6ECE0F4E1768CDDF8853BB2D551B

    def test_a_datagram_is_header_counter_ciphertext_and_tag(self, sender: Sender) -> None:
        header = HEADER + bytes(8)
        tag = ghash(self.SECRET, header, self.CIPHERTEXT) ^ self.MASK
        assert sender.encrypt(self.TEXT) == [header + self.CIPHERTEXT + tag.to_bytes(16, "big")]

    def test_the_counter_goes_into_the_last_eight_bytes_of_the_nonce(self) -> None:
        counter = 0x0102030405060708
        moved = NONCE[:4] + bytes(one ^ other for one, other in zip(NONCE[4:], counter.to_bytes(8, "big"), strict=True))
        encrypted = Sender(nonce=moved).at(counter, self.TEXT)
        assert encrypted[8:16] == counter.to_bytes(8, "big")
        assert encrypted[16:-16] == self.CIPHERTEXT

    def test_no_counter_is_used_twice(self, sender: Sender) -> None:
        encrypted = sender.encrypt(*[bytes(60)] * 5) + sender.encrypt(*[bytes(60)] * 5)
        assert [int.from_bytes(each[8:16], "big") for each in encrypted] == list(range(10))
        assert len({each[16:] for each in encrypted}) == 10


class TestSealing:
    def test_it_stops_at_the_limit_and_stays_there(self) -> None:
        sender = Sender(limit=3)
        assert len(sender.encrypt(*[bytes(60)] * 5)) == 3
        assert sender.encrypt(bytes(60)) == []
        assert sender.state.counter == 3

    @pytest.mark.parametrize(("tx_space", "expected"), [(0, 0), (91, 0), (92, 1), (183, 1), (184, 2), (10_000, 2)])
    def test_it_writes_no_more_than_there_is_room_for(self, sender: Sender, tx_space: int, expected: int) -> None:
        assert len(sender.encrypt(bytes(60), bytes(60), tx_space=tx_space)) == expected


class TestOpening:
    def test_what_is_sealed_comes_out(self, sender: Sender, receiver: Receiver) -> None:
        frames = [bytes([index]) * size for index, size in enumerate((14, 15, 60, 1514, 9014, 65475))]
        assert receiver.decrypt(*sender.encrypt(*frames)) == (frames, {"frames": 6})

    def test_less_than_a_frame_only_shows_that_the_sender_has_the_session(
        self, sender: Sender, receiver: Receiver
    ) -> None:
        assert receiver.decrypt(*sender.encrypt(b"", bytes(13), bytes(14))) == ([bytes(14)], {"frames": 1, "empty": 2})

    def test_each_bit_counts(self, sender: Sender, receiver: Receiver) -> None:
        """Kind, VNI and session; the counter; the ciphertext; the tag."""
        encrypted = sender.at(5, bytes(range(20)))
        for bit in range(8 * len(encrypted)):
            altered = bytearray(encrypted)
            altered[bit // 8] ^= 1 << bit % 8
            frames, counts = receiver.decrypt(bytes(altered))
            assert frames == []
            assert set(counts) <= {"wrong_key", "plaintext", "malformed", "unknown", "forged"}, bit
        assert receiver.decrypt(encrypted)[0] == [bytes(range(20))]

    def test_nothing_cut_or_lengthened_is_opened(self, sender: Sender, receiver: Receiver) -> None:
        encrypted = sender.at(0)
        for length in range(len(encrypted)):
            assert receiver.decrypt(encrypted[:length])[0] == []
        assert receiver.decrypt(encrypted + b"\0") == ([], {"forged": 1})

    def test_another_key_or_nonce_opens_nothing(self, sender: Sender) -> None:
        for key, nonce in ((KEY[::-1], NONCE), (KEY, NONCE[::-1])):
            assert Receiver((key, nonce, HEADER)).decrypt(sender.at(0)) == ([], {"forged": 1})

    def test_each_datagram_goes_to_the_opener_of_its_session(self) -> None:
        one, other = HEADER, HEADER[:4] + b"2nd."
        receiver = Receiver((KEY, NONCE, one), (KEY[::-1], NONCE, other))
        first, second = Sender(), Sender(KEY[::-1], header=other)
        third = Sender(header=HEADER[:4] + b"3rd.")
        mixed = [part for index in range(4) for part in (first.at(index), second.at(index), third.at(index))]
        assert receiver.decrypt(*mixed)[1] == {"frames": 8, "unknown": 4}
        assert receiver.decrypt(*mixed)[1] == {"replayed": 8, "unknown": 4}

    def test_without_a_session_nothing_is_opened(self, sender: Sender) -> None:
        assert Receiver().decrypt(sender.at(0)) == ([], {"unknown": 1})

    def test_what_else_comes_is_told_apart(self, receiver: Receiver) -> None:
        vxlan = b"\x08\0\0\0\x12\x34\x56\0" + bytes(60)
        counts = receiver.decrypt(vxlan, b"", b"\0", b"\x11", HEADER + bytes(23), HELLO, HELLO + bytes(87))[1]
        assert counts == {"plaintext": 1, "malformed": 5, "wrong_key": 1}

    def test_it_stops_at_a_hello_of_the_key_alone(self, sender: Sender, receiver: Receiver) -> None:
        good = hello.SecureHello(b"s" * 32).pack(1, KEY)
        wrong = [
            good[:-1] + bytes([good[-1] ^ 1]),
            good[:72],
            good + b"\0",
            hello.SecureHello(b"s" * 32).pack(1, KEY[::-1]),
        ]
        one, other = sender.encrypt(bytes(60), bytes(60))
        assert receiver.decrypt(*wrong, one, good, other)[1] == {"wrong_key": 2, "malformed": 2, "frames": 1}
        assert receiver.done == 5
        assert receiver.decrypt(good, other)[1] == {}
        assert receiver.done == 0

    @settings(deadline=None)
    @given(st.lists(st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: HEADER + rest), max_size=12))
    def test_garbage_breaks_nothing(self, datagrams: list[bytes]) -> None:
        receiver = Receiver((KEY, NONCE, HEADER))
        assert receiver.decrypt(*datagrams)[0] == []
        assert receiver.decrypt(Sender().at(0))[1] == {"frames": 1}


class TestReplays:
    def test_none_is_opened_twice(self, sender: Sender, receiver: Receiver) -> None:
        encrypted = sender.encrypt(*[bytes(60)] * 100)
        assert receiver.decrypt(*encrypted, *encrypted)[1] == {"frames": 100, "replayed": 100}
        assert receiver.decrypt(*encrypted)[1] == {"replayed": 100}

    def test_a_forgery_does_not_take_the_place_of_what_it_imitates(self, sender: Sender, receiver: Receiver) -> None:
        encrypted = sender.at(1 << 40)
        assert receiver.decrypt(encrypted[:-1] + bytes([encrypted[-1] ^ 1]))[1] == {"forged": 1}
        assert receiver.decrypt(sender.at(3), encrypted)[1] == {"frames": 2}

    @pytest.mark.parametrize("highest", [WINDOW - 1, WINDOW, 100_000, (1 << 32) + 5, (1 << 64) - 2])
    def test_what_comes_late_is_opened_as_far_as_the_window_reaches(
        self, sender: Sender, receiver: Receiver, highest: int
    ) -> None:
        assert receiver.decrypt(sender.at(highest))[1] == {"frames": 1}
        last = max(0, highest + 1 - WINDOW)
        for counter in (last, last + 1, last + 64, highest - 1):
            late = sender.at(counter)
            assert receiver.decrypt(late, late)[1] == {"frames": 1, "replayed": 1}
        if last:
            assert receiver.decrypt(sender.at(last - 1))[1] == {"replayed": 1}

    def test_the_last_counter_is_never_opened(self, sender: Sender, receiver: Receiver) -> None:
        sender.state.limit = 2**64 - 1
        whole = sender.at(2**64 - 2)
        assert receiver.decrypt(whole[:8] + b"\xff" * 8 + whole[16:])[1] == {"replayed": 1}

    @settings(deadline=None, max_examples=30)
    @given(st.integers(0, 2**32), st.integers(1, 4 * WINDOW))
    def test_it_is_as_a_set_of_all_counters_would_tell(self, seed: int, spread: int) -> None:
        random = np.random.default_rng(seed)
        sender, receiver = Sender(), Receiver((KEY, NONCE, HEADER))
        seen: set[int] = set()
        base = 0
        for _ in range(150):
            base += int(random.integers(0, spread))
            counter = max(0, base - int(random.integers(0, 2 * WINDOW)))
            expected = counter not in seen and counter + WINDOW > max(seen, default=0)
            assert receiver.decrypt(sender.at(counter))[1] == ({"frames": 1} if expected else {"replayed": 1})
            if expected:
                seen.add(counter)
