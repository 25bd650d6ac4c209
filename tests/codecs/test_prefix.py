"""sn_encode into limited room: the longest prefix that ends at an allowed cut, and nothing written behind it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from tests.codecs import reference
from tests.codecs.cases import BLOCKS, EVERY, NAMES, Words, cut_words, encode_prefix, mixed_words, typical

ALL = ["raw", *(typical(name) for name in NAMES)]


class Prefixes:
    """What the reference makes of each prefix of some words: encoded once, as it is slow, for all capacities."""

    def __init__(self, codec: codecs.Codec, words: Words) -> None:
        self.codec, self.words, self.listed = codec, words, words.tolist()
        self._encoded: dict[int, bytes] = {}

    def encode(self, prefix: Sequence[int]) -> bytes:
        """Encode a prefix of `listed`."""
        if len(prefix) not in self._encoded:
            self._encoded[len(prefix)] = self._encode(prefix)
        return self._encoded[len(prefix)]

    def _encode(self, words: Sequence[int]) -> bytes:
        if self.codec.name == "raw":
            return b"".join(word.to_bytes(4, "little") for word in words)
        return reference.ENCODE[self.codec.name](words, self.codec.parameter)


def rounded(codec: codecs.Codec, words: Words, first: int) -> Words:
    """The decoded words, of which `first` are left of a coding block: blocks are coding blocks."""
    parts = (words[:first], words[first:])
    return np.concatenate([codec.roundtrip(part.view(np.float32)) for part in parts]).view(np.uint32)


def check(prefixes: Prefixes, first: int, capacity: int) -> None:
    codec, listed = prefixes.codec, prefixes.listed
    expected = reference.shrink(prefixes.encode, listed, first, capacity, cut_words(codec), codec.name in BLOCKS)
    body, consumed = encode_prefix(codec, prefixes.words, first, capacity)
    assert consumed == expected
    assert body == prefixes.encode(listed[:consumed])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("first", range(1, 17))
def test_every_capacity(name: str, first: int) -> None:
    codec = codecs.get(name)
    first = first if first < 16 else cut_words(codec)
    words = mixed_words(np.random.default_rng(first), 75 if cut_words(codec) == 16 else 300)
    prefixes = Prefixes(codec, words)
    for capacity in range(codec.bound(words.size) + 2):
        check(prefixes, first, capacity)


@pytest.mark.parametrize("name", ALL)
def test_counts_shorter_than_the_first_stretch(name: str) -> None:
    codec = codecs.get(name)
    for count in range(20):
        prefixes = Prefixes(codec, mixed_words(np.random.default_rng(count), count))
        for first in (1, 5, 8, 15, cut_words(codec)):
            for capacity in range(codec.bound(count) + 1):
                check(prefixes, first, capacity)


@pytest.mark.parametrize("scale", [1e-7, 0.003, 0.01, 1.0, 1e9])
@pytest.mark.parametrize("name", ALL)
def test_frames_of_gradients(name: str, scale: float) -> None:
    """As the NIC uses it: one super-segment into one frame's room after the other, joined again by decoding each."""
    codec = codecs.get(name)
    words = (np.random.default_rng(3).standard_normal(40_001) * scale).astype(np.float32).view(np.uint32)
    for first in (cut_words(codec), 8, 3):
        done, left, parts = 0, first, []
        while done < words.size:
            body, consumed = encode_prefix(codec, words[done:], left, 1436)
            assert consumed, "1436 bytes hold a coding block of any codec"
            assert done + consumed == words.size or (done + consumed - first) % cut_words(codec) == 0
            parts.append(codec.decode(body, consumed))
            done, left = done + consumed, cut_words(codec)
        np.testing.assert_array_equal(np.concatenate(parts).view(np.uint32), rounded(codec, words, first))


@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(EVERY),
    first=st.integers(1, 128),
    capacities=st.lists(st.integers(514, 900), min_size=1, max_size=8),
)
def test_any_cut_decodes_to_the_same_bits(seed: int, name: str, first: int, capacities: list[int]) -> None:
    codec = codecs.get(name)
    first = 1 + first % cut_words(codec)
    words = mixed_words(np.random.default_rng(seed), 600)
    done, left, parts = 0, first, []
    for capacity in cycle(capacities):
        body, consumed = encode_prefix(codec, words[done:], left, capacity)
        assert consumed, "514 bytes hold a coding block of any codec"
        parts.append(codec.decode(body, consumed))
        done, left = done + consumed, cut_words(codec)
        if done == words.size:
            break
    np.testing.assert_array_equal(np.concatenate(parts).view(np.uint32), rounded(codec, words, first))


def test_words_need_no_alignment() -> None:
    words = mixed_words(np.random.default_rng(5), 100)
    shifted = np.empty(words.nbytes + 1, np.uint8)
    shifted[1:] = words.view(np.uint8)
    for name in ALL:
        codec = codecs.get(name)
        first = cut_words(codec)
        assert encode_prefix(codec, shifted[1:].view(np.uint32), first, 500) == encode_prefix(codec, words, first, 500)


@pytest.mark.parametrize(
    ("number", "parameter"),
    [(-1, 1), (15, 1), (16, 1), (1, 0), (1, 24), (2, -1), (0, 1), (2, 999), (3, 2), (4, 33)],
)
def test_what_does_not_exist_does_nothing(number: int, parameter: int) -> None:
    words = ffi.new("uint8_t[64]")
    out = ffi.new("uint8_t[512]")
    consumed = ffi.new("size_t *", 7)
    assert not lib.sn_codec_valid(number, parameter)
    assert lib.sn_encoded_bound(number, parameter, 16) == lib.sn_encoded_least(number, parameter, 16) == 0
    assert lib.sn_encode(number, parameter, words, 16, 16, out, 512, consumed) == consumed[0] == 0
    assert lib.sn_decode(number, parameter, out, 0, words, 0) == -1
    assert lib.sn_tag_counts(number, parameter, out, 0, 0, ffi.new("uint64_t[4]")) == -1
    lib.sn_roundtrip(number, parameter, words, 16, out)
    assert bytes(out) == bytes(512)
