"""Bodies in parts: multiples of SN_PART_WORDS encoded, decoded and rounded one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import codecs
from softnic._native import ffi, lib
from tests.codecs.cases import EVERY, NAMES, Fence, Words, cut_words, encode_prefix, mixed_words, typical

ALL = ["raw", *dict.fromkeys((*EVERY[::4], *map(typical, NAMES)))]
BODY, WORDS = Fence(), Fence()


def decode_part(codec: codecs.Codec, body: bytes, count: int) -> tuple[int, Words]:
    """sn_decode_part of these bytes, between fences: the bytes taken, or -1, and the words."""
    words = WORDS.place(bytes(4 * count))
    used = lib.sn_decode_part(codec.number, codec.parameter, BODY.place(body), len(body), words, count)
    return int(used), np.frombuffer(ffi.buffer(words, 4 * count)[:], np.uint32)


@pytest.mark.parametrize("name", ALL)
def test_parts_in_any_lengths_are_the_whole(name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(31)
    for _ in range(40):
        words = mixed_words(rng, int(rng.integers(1, 2500)))
        words[int(rng.integers(0, words.size)) :][: int(rng.integers(0, 500))] = 0
        body, done, encoded = codec.encode(words.view(np.float32)), 0, b""
        while done < words.size:
            count = min(lib.SN_PART_WORDS * int(rng.integers(1, 8)), words.size - done)
            part = words[done : done + count]
            used, got = decode_part(codec, body[len(encoded) :], count)
            start = len(encoded)
            assert got.tobytes() == codec.roundtrip(part.view(np.float32)).tobytes()
            encoded += encode_prefix(codec, part, cut_words(codec), codec.bound(count))[0]
            done += count
            assert start + used == len(encoded)
        assert encoded == body


@pytest.mark.parametrize("name", ALL)
def test_a_part_is_refused_where_the_body_ends_in_it(name: str) -> None:
    codec = codecs.get(name)
    counts = [parts * lib.SN_PART_WORDS for parts in (1, 2, 3)]
    words = mixed_words(np.random.default_rng(32), counts[-1])
    body = codec.encode(words.view(np.float32))
    ends = [len(codec.encode(words[:end].view(np.float32))) for end in counts]
    for end in range(len(body) + 1):
        for count, needed in zip(counts, ends, strict=True):
            used, got = decode_part(codec, body[:end], count)
            assert used == (needed if end >= needed else -1)
            assert used < 0 or got.tobytes() == codec.roundtrip(words.view(np.float32))[:count].tobytes()
