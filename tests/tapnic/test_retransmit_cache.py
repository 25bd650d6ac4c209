"""The retransmit cache: a byte is encoded once, in the same way whenever it is retransmitted and wherever it is cut."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi
from tests.tapnic.native_cache import NativeCache
from tests.tapnic.reference_retransmit_cache import RetransmitCache, TaggedRange, TxPart

ISS = 0xFFFFFF00
"""Close to 2^32, so that sequence numbers wrap."""
TOS = 0x28


def data(length: int, seed: int = 1) -> memoryview:
    return memoryview(random.Random(seed).randbytes(length))


class Kernel:
    """Sends any ranges of one stream, and records how the cache encodes them."""

    def __init__(self, length: int, iss: int = ISS) -> None:
        self.stream = data(length)
        self.sent = NativeCache(iss)
        self.iss = iss

    def send(self, start: int, end: int, tos: int = 0) -> list[TxPart]:
        """Send bytes [start, end) of the stream."""
        number = (self.iss + 1 + start) & 0xFFFFFFFF
        return self.sent.parts(number, self.stream[start:end], tos, tos == TOS)

    def acknowledge(self, end: int) -> None:
        self.sent.on_ack((self.iss + 1 + end) & 0xFFFFFFFF)


def shape(parts: list[TxPart]) -> list[tuple[int, int, str]]:
    """Return start, end (offsets in the stream) and encoding of each part."""
    kinds = {True: "coded", False: "exact"}
    return [
        (part.position - 1, part.end - 1, "plain" if part.tagged_range is None else kinds[part.coded]) for part in parts
    ]


class TestFirstSeen:
    def test_untagged_bytes_are_plain(self) -> None:
        kernel = Kernel(5000)
        assert shape(kernel.send(0, 3000)) == [(0, 3000, "plain")]
        assert shape(kernel.send(3000, 5000)) == [(3000, 5000, "plain")]
        assert kernel.sent.cached_bytes == 0

    def test_words_are_coded_from_the_first_tagged_byte_on(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 7)
        kernel.acknowledge(7)
        [part] = kernel.send(7, 1007, TOS)
        assert (part.position - 1, part.end - 1, part.coded, part.block_offset) == (7, 1007, True, 0)
        [following] = kernel.send(1007, 2007, TOS)
        assert following.block_offset == 1000 % 512
        assert following.tagged_range == TaggedRange(TOS, 8)

    def test_words_split_by_a_cut_are_exact_on_both_sides(self) -> None:
        kernel = Kernel(5000)
        assert shape(kernel.send(0, 1002, TOS)) == [(0, 1000, "coded"), (1000, 1002, "exact")]
        assert shape(kernel.send(1002, 2000, TOS)) == [(1002, 1004, "exact"), (1004, 2000, "coded")]

    def test_less_than_a_word_is_exact(self) -> None:
        kernel = Kernel(10)
        assert shape(kernel.send(0, 3, TOS)) == [(0, 3, "exact")]
        assert shape(kernel.send(3, 10, TOS)) == [(3, 4, "exact"), (4, 8, "coded"), (8, 10, "exact")]

    def test_removing_the_tag_ends_the_range(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 100, TOS)
        assert shape(kernel.send(100, 111)) == [(100, 111, "plain")]
        kernel.acknowledge(111)
        [part] = kernel.send(111, 211, TOS)
        assert part.tagged_range == TaggedRange(TOS, 112)


class TestAgain:
    def test_untagged_bytes_stay_plain_when_retransmitted_with_a_tag(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000)
        assert shape(kernel.send(1000, 2000, TOS)) == [(1000, 2000, "coded")]
        assert shape(kernel.send(500, 1500, TOS))[0] == (500, 1000, "plain")

    def test_tagged_bytes_stay_encoded_when_retransmitted_without_a_tag(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 640, TOS)
        [part] = kernel.send(64, 128)
        assert (part.coded, part.tagged_range) == (True, TaggedRange(TOS, 1))
        assert part.payload == kernel.stream[64:128]

    def test_a_retransmission_with_other_cuts_is_widened_to_whole_blocks(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 4000, TOS)
        assert shape(kernel.send(1002, 2001, TOS)) == [(960, 2048, "coded")]
        assert shape(kernel.send(3999, 4000, TOS)) == [(3968, 4000, "coded")]

    def test_the_cuts_of_the_first_transmission_are_kept(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000, TOS)
        kernel.send(1000, 2000, TOS)
        assert shape(kernel.send(990, 1010, TOS)) == [(960, 1000, "coded"), (1000, 1024, "coded")]

    def test_acknowledged_bytes_are_skipped_and_released(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000, TOS)
        kernel.send(1000, 2000, TOS)
        kernel.acknowledge(1000)
        assert kernel.sent.cached_bytes == 1000
        assert shape(kernel.send(500, 1100, TOS)) == [(1000, 1152, "coded")]
        assert kernel.send(0, 1000, TOS) == []
        kernel.acknowledge(2000)
        assert kernel.sent.cached_bytes == 0

    def test_an_acknowledgement_of_unsent_data_is_ignored(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000, TOS)
        kernel.acknowledge(3000)
        kernel.sent.on_ack(ISS - 5000)
        assert kernel.sent.cached_bytes == 1000


class TestHoles:
    """Bytes that were lost between the kernel and its NIC."""

    def test_a_hole_within_a_tagged_range_belongs_to_it(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000, TOS)
        assert shape(kernel.send(2002, 3000, TOS)) == [(2002, 2004, "exact"), (2004, 3000, "coded")]
        assert shape(kernel.send(1000, 2002, TOS)) == [(1000, 2000, "coded"), (2000, 2002, "exact")]

    def test_a_hole_before_a_tagged_range_belongs_to_it_if_all_earlier_data_is_acknowledged(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 100)
        kernel.acknowledge(100)
        assert shape(kernel.send(1101, 2101, TOS)) == [
            (1101, 1104, "exact"),
            (1104, 2100, "coded"),
            (2100, 2101, "exact"),
        ]

    def test_a_range_with_an_uncertain_start_is_sent_exactly(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 100)
        assert shape(kernel.send(200, 1200, TOS)) == [(200, 1200, "exact")]
        assert shape(kernel.send(1200, 2200, TOS)) == [(1200, 2200, "exact")]
        assert shape(kernel.send(100, 200, TOS)) == [(100, 200, "plain")]
        kernel.acknowledge(2200)
        kernel.send(2200, 2300)
        kernel.acknowledge(2300)
        assert shape(kernel.send(2300, 2400, TOS)) == [(2300, 2400, "coded")]

    def test_a_hole_before_untagged_bytes_is_plain(self) -> None:
        kernel = Kernel(5000)
        kernel.send(0, 1000, TOS)
        assert shape(kernel.send(1100, 1200)) == [(1100, 1200, "plain")]
        assert shape(kernel.send(1000, 1100, TOS)) == [(1000, 1100, "plain")]


def received(length: int, transmissions: list[list[TxPart]], codec: codecs.Codec) -> bytes:
    """Return the stream that a peer assembles of parts in any order: of each byte the first copy."""
    stream = bytearray(length)
    have = bytearray(length)
    for parts in transmissions:
        for part in parts:
            payload = bytes(part.payload)
            if part.coded:
                words = np.frombuffer(payload, np.float32)
                payload = rounded(codec, words, part.block_offset // 4)
            for offset, byte in enumerate(payload):
                at = part.position - 1 + offset
                if not have[at]:
                    stream[at], have[at] = byte, 1
    assert all(have)
    return bytes(stream)


def rounded(codec: codecs.Codec, values: npt.NDArray[np.float32], phase: int) -> bytes:
    """Return decode(encode(x)) of words that begin within a block; the rest of that block is one block."""
    first = (16 - phase) % 16
    blocks = [values[:first], values[first:]]
    return b"".join(codec.decode(codec.encode(each), len(each)).tobytes() for each in blocks if len(each))


cuts = st.lists(st.integers(1, 400), min_size=1, max_size=12)


@pytest.mark.parametrize("name", ["bounded:10", "bfp:7"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cuts=cuts, seed=st.integers(0, 2**32))
def test_retransmissions_with_any_cuts_give_the_same_bytes(name: str, cuts: list[int], seed: int) -> None:
    """Each segment reaches the peer or not; then the kernel sends random ranges again, with the tag set or not, until
    the peer has everything. A byte encoded differently from its first transmission would change some word."""
    rng = random.Random(seed)
    length, header = sum(cuts), rng.randrange(0, 9)
    kernel = Kernel(header + length, iss=rng.getrandbits(32))
    if header:
        kernel.send(0, header)
        kernel.acknowledge(header)
    first: list[list[TxPart]] = []
    at = header
    for cut in cuts:
        first.append(kernel.send(at, at + cut, TOS))
        at += cut
    again: list[list[TxPart]] = []
    for _ in range(6):
        start = rng.randrange(at)
        again.append(kernel.send(start, rng.randrange(start, at) + 1, rng.choice((0, TOS))))
    codec = codecs.get(name)
    plain = [TxPart(1, kernel.stream[:header], None, False)]
    once = received(at, [plain, *first], codec)
    mixed = [each for each in first if rng.random() < 0.5] + again
    rng.shuffle(mixed)
    assert received(at, [plain, *mixed, *first], codec) == once


@pytest.mark.parametrize("seed", range(40))
def test_c_classifies_and_keeps_what_the_reference_does(seed: int) -> None:
    """Segments of any tag at any place, new, again, or with holes before them, and acknowledgements of any of them."""
    rng = random.Random(seed)
    stream, iss, most = data(40_000, seed), rng.getrandbits(32), rng.choice((40, 400, 3000))
    native, reference = NativeCache(iss), RetransmitCache(iss)
    seen, tos = 0, 0
    for _ in range(400):
        tos = rng.choice((0, TOS, 0x48)) if rng.random() < 0.1 else tos
        start = rng.choice((seen, seen, rng.randrange(max(0, seen - 2 * most), seen + most)))
        end = min(start + rng.randrange(1, most), len(stream))
        if start < end:
            given = (iss + 1 + start) & 0xFFFFFFFF, stream[start:end], tos, tos != 0, 512 if tos == 0x48 else 64
            assert native.parts(*given) == reference.parts(*given)
            seen = max(seen, end)
        if rng.random() < 0.3:
            number = (iss + 1 + rng.randrange(max(0, seen - 3 * most), seen + 5)) & 0xFFFFFFFF
            native.on_ack(number)
            reference.on_ack(number)
        assert native.cached_bytes == reference.cached_bytes


def test_bytes_stay_while_a_segment_that_has_them_is_sent() -> None:
    """A link without space keeps parts of a retransmission waiting; an acknowledgement may come before they leave."""
    stream, cache = data(5000), NativeCache(ISS)
    cache.parts(ISS + 1, stream[:4000], TOS, True)
    [part] = cache.begin((ISS + 1 + 1000) & 0xFFFFFFFF, stream[1000:2000], TOS, True)
    cache.on_ack((ISS + 1 + 4000) & 0xFFFFFFFF)
    assert cache.cached_bytes == 0
    assert ffi.buffer(part.payload, part.length)[:] == stream[960:2048]
    cache.give_back()


def test_a_long_connection_keeps_no_memory_of_what_is_acknowledged() -> None:
    stream, cache = data(1000), NativeCache(ISS)
    for number in range(3000):
        cache.parts((ISS + 1 + 1000 * number) & 0xFFFFFFFF, stream, TOS, True)
        cache.on_ack((ISS + 1 + 1000 * (number - 2)) & 0xFFFFFFFF)
    assert cache.cached_bytes == 3000
    assert cache.capacity <= 32
