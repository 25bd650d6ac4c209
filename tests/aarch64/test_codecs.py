"""The codecs on AArch64: NEON and the portable kernels there, against the vectors and against the reference here.

tests/codecs holds the reference itself against FORMAT.md, and where it runs on an AArch64 machine, NEON with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic._native import lib
from tests.aarch64.machine import NUMBERS, Call, Machine
from tests.codecs import cases
from tests.codecs.cases import (
    BURSTS,
    EVERY,
    NAMES,
    RANGES,
    Words,
    anything,
    block_words,
    boundary_words,
    cut_words,
    damaged_body,
    golden,
    gradients,
    threshold_words,
    typical,
)

pytestmark = pytest.mark.slow

SIMD = tuple(NUMBERS)
GOLDEN = [
    pytest.param(name, case, id=f"{name}:{case['parameter']}-{case['case']}") for name in NAMES for case in golden(name)
]


def check(machine: Machine, codec: codecs.Codec, words: Words, encoded: bytes, decoded: bytes) -> None:
    """All that is done with whole buffers, by every implementation."""
    for simd in SIMD:
        assert machine.encode(simd, codec, words, cut_words(codec), len(encoded)) == (encoded, words.size)
        found = machine.decode(simd, codec, encoded, words.size)
        assert found is not None
        assert found.tobytes() == decoded
        assert machine.roundtrip(simd, codec, words) == decoded
        assert machine.roundtrip(simd, codec, words, in_place=True) == decoded


def check_with_reference(machine: Machine, codec: codecs.Codec, words: Words) -> None:
    floats = words.view(np.float32)
    check(machine, codec, words, codec.encode(floats), codec.roundtrip(floats).tobytes())


def check_prefix(machine: Machine, codec: codecs.Codec, words: Words, first: int, capacity: int) -> None:
    expected = cases.encode_prefix(codec, words, first, capacity)
    for simd in SIMD:
        assert machine.encode(simd, codec, words, first, capacity) == expected


def is_decoded(machine: Machine, codec: codecs.Codec, body: bytes, count: int) -> bool:
    """Whether a body is accepted, which everyone agrees on, and on its words."""
    expected = cases.decode(codec, body, count)
    for simd in SIMD:
        found = machine.decode(simd, codec, body, count)
        assert (found is None) == (expected is None)
        assert found is None or expected is None or found.tobytes() == expected.tobytes()
    return expected is not None


def test_neon_is_chosen(machine: Machine) -> None:
    assert machine.default() == "neon"


# Whole buffers.


@pytest.mark.parametrize(("name", "case"), GOLDEN)
def test_golden_vectors(machine: Machine, name: str, case: dict[str, Any]) -> None:
    words, decoded = cases.words_of(case["words"]), cases.words_of(case["decoded"])
    codec = codecs.get(f"{name}:{case['parameter']}")
    check(machine, codec, words, bytes.fromhex(case["encoded"]), decoded.tobytes())


@pytest.mark.parametrize("name", EVERY)
def test_every_exponent_and_boundary_mantissa(machine: Machine, name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(1)
    check_with_reference(machine, codec, boundary_words())
    check_with_reference(machine, codec, rng.permutation(boundary_words()))


@pytest.mark.parametrize("name", EVERY)
def test_words_around_the_thresholds_and_any_words(machine: Machine, name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(2)
    check_with_reference(machine, codec, threshold_words())
    check_with_reference(machine, codec, block_words(rng, 30_003))
    check_with_reference(machine, codec, gradients(rng, 30_003))
    check_with_reference(machine, codec, anything(rng, 30_003))


@pytest.mark.parametrize("name", BURSTS)
def test_one_word_in_silence(machine: Machine, name: str) -> None:
    """A group is silent by the same bit by which a word is: one word around the bound in it, at every place."""
    around = np.array([off | sign for sign in (0, 1 << 31) for off in (0, 1, 2)], np.uint32)
    for k in RANGES[name]:
        codec = codecs.get(f"{name}:{k}")
        words = np.zeros((64, 6, 128), np.uint32)
        for place in range(64):
            words[place, :, place] = np.uint32(((127 - codec.parameter) << 23) - 1) + around
        check_with_reference(machine, codec, words.reshape(-1))


@pytest.mark.parametrize("name", NAMES)
def test_every_count_up_to_three_groups(machine: Machine, name: str) -> None:
    rng = np.random.default_rng(2)
    for count in range(195):
        codec = codecs.get(f"{name}:{rng.choice(RANGES[name])}")
        check_with_reference(machine, codec, gradients(rng, count) if count else anything(rng, 0))


# Cuts.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", range(1, 17))
def test_every_capacity(machine: Machine, name: str, first: int) -> None:
    """Two groups and a bit, so that quick and careful ways meet at every place of a coding block."""
    codec, rng = codecs.get(typical(name)), np.random.default_rng(first)
    words = gradients(rng, 150)
    first = first if first < 16 else cut_words(codec)
    for capacity in range(len(codec.encode(words.view(np.float32))) + 2):
        check_prefix(machine, codec, words, first, capacity)


@pytest.mark.parametrize("name", NAMES)
def test_silence_cut_short(machine: Machine, name: str) -> None:
    """A group without vectors is left by a short way; its last coding block may have to be taken back."""
    codec = codecs.get(typical(name))
    words = np.concatenate([np.zeros(128, np.uint32), np.full(64, 0x7F800000, np.uint32)])
    for first in (1, 8, 9, 15, cut_words(codec)):
        for capacity in range(330):
            check_prefix(machine, codec, words, first, capacity)


@pytest.mark.parametrize("name", NAMES)
def test_cuts_at_random(machine: Machine, name: str) -> None:
    rng = np.random.default_rng(21)
    for _ in range(400):
        codec = codecs.get(f"{name}:{rng.choice(RANGES[name])}")
        words = gradients(rng, int(rng.integers(1, 700)))
        size = len(codec.encode(words.view(np.float32)))
        check_prefix(machine, codec, words, int(rng.integers(1, cut_words(codec) + 1)), int(rng.integers(0, size + 1)))


# Bodies that no encoder writes.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", ["mixed", "loud"])
def test_every_end_and_count_but_the_right_one(machine: Machine, name: str, data: str) -> None:
    """Loud words fill all that a group may touch."""
    codec, rng = codecs.get(typical(name)), np.random.default_rng(5)
    words = gradients(rng, 150) if data == "mixed" else np.full(150, 0x7F800000, np.uint32)
    body = codec.encode(words.view(np.float32))
    for end in range(len(body)):
        assert not is_decoded(machine, codec, body[:end], words.size)
    assert not is_decoded(machine, codec, body + b"\0", words.size)
    for count in range(80, 193):
        is_decoded(machine, codec, body, count)
    assert is_decoded(machine, codec, body, words.size)


@pytest.mark.parametrize("name", NAMES)
def test_bodies_with_bytes_changed(machine: Machine, name: str) -> None:
    rng, accepted = np.random.default_rng(22), 0
    for _ in range(1000):
        codec = codecs.get(typical(name))
        body, count = damaged_body(rng, codec)
        accepted += is_decoded(machine, codec, body, count)
    assert 70 < accepted < 930


@pytest.mark.parametrize("name", NAMES)
def test_noise(machine: Machine, name: str) -> None:
    rng = np.random.default_rng(23)
    for _ in range(1000):
        body = rng.integers(0, 256, int(rng.integers(0, 900)), dtype=np.uint8)
        body[rng.random(body.size) < rng.random()] = 0
        is_decoded(machine, codecs.get(typical(name)), body.tobytes(), int(rng.integers(1, 400)))


@pytest.mark.parametrize("name", NAMES)
def test_few_bytes_that_claim_many_words(machine: Machine, name: str) -> None:
    """The end of a body is decoded where it can be read past; what it claims must not lead further than that."""
    codec, rng = codecs.get(typical(name)), np.random.default_rng(24)
    for size in (1, 2, 33, 34, 35, 271, 272, 273, 274, 546):
        for share in (0.0, 0.01, 0.1, 0.9):
            body = rng.integers(0, 256, size, dtype=np.uint8)
            body[rng.random(size) > share] = 0
            most = min(size * {"bounded": 64, "bfp": 16, "rht": 64}.get(name, 4), 1 << 14)
            for count in (most, most - 1, most // 2, 63, 64, 65):
                is_decoded(machine, codec, body.tobytes(), count)


@pytest.mark.parametrize("name", EVERY)
def test_parts_in_any_lengths_are_the_whole(machine: Machine, name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(31)
    words = gradients(rng, 2000)
    body, decoded = codec.encode(words.view(np.float32)), codec.roundtrip(words.view(np.float32)).tobytes()
    for simd in SIMD:
        used, done = 0, 0
        while done < words.size:
            count = min(lib.SN_PART_WORDS * int(rng.integers(1, 8)), words.size - done)
            given = machine.run(Call.DECODE_PART, simd, codec, left=body[used:], room=4 * count)
            assert given.data == decoded[4 * done : 4 * (done + count)]
            used, done = used + given.result, done + count
        assert used == len(body)


@pytest.mark.parametrize("name", BURSTS)
def test_vectors_of_every_value(machine: Machine, name: str) -> None:
    """Every vector of 8 and 16 bits, signed zeros with them, and 32-bit ones that an encoder would have shortened."""
    head = b"\xff" if name == "bounded" else b""
    short = np.arange(1 << 8, dtype=np.uint8).reshape(-1, 8, 8)
    long = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 8, 8)
    whole = np.random.default_rng(25).permutation(boundary_words())[: 64 * 64].reshape(-1, 8, 8)
    for tag_word, groups in ((b"\x55\x55", short), (b"\xaa\xaa", long), (b"\xff\xff", whole)):
        for start in range(0, len(groups), 256):
            some = groups[start : start + 256]
            body = b"".join(head + b"".join(tag_word + burst.tobytes() for burst in group) for group in some)
            for k in (1, 10, 23):
                assert is_decoded(machine, codecs.get(f"{name}:{k}"), body, some.size)


@pytest.mark.parametrize("name", BURSTS)
def test_every_byte_of_tags(machine: Machine, name: str) -> None:
    """Each before every other, so that quads of all kinds begin at all distances from the tag word."""
    rng = np.random.default_rng(26)
    tag_words = rng.permutation(np.arange(1 << 16, dtype=np.uint16)).reshape(-1, 128, 8)
    for groups in tag_words:
        body = b""
        for group in groups:
            if name == "bounded":
                body += bytes(np.packbits(group != 0, bitorder="little"))
            for tags in group.tolist():
                if tags or name == "inceptionn":
                    sizes = [(0, 1, 2, 4)[tags >> 2 * lane & 3] for lane in range(8)]
                    body += tags.to_bytes(2, "little") + rng.bytes(sum(sizes))
        assert is_decoded(machine, codecs.get(typical(name)), body, 8 * groups.size)
