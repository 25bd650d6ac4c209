"""Words that change while they are encoded, as memory lent to a NIC may by a bug of its program. What comes out may
hold any of them, but no byte is written out of bounds, and every length is what was encoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs import Codec
from softnic.codecs.combine import ReduceOp
from tests.changing import LOUD, QUIET, WORDS, changing
from tests.codecs.cases import NAMES, Fence, cut_words, typical

OUT = Fence()
ROUNDS = 4000


@pytest.fixture(scope="module")
def source() -> Iterator[Any]:
    """A `uint8_t *` to words that change."""
    with changing() as memory:
        yield ffi.from_buffer("uint8_t[]", memory)


def codec_names() -> list[str]:
    return [typical(name) for name in NAMES]


def prefix_sizes(codec: Codec) -> list[int]:
    """Bytes that coding blocks of either kind take, where rooms are worth trying to end."""
    return [len(codec.encode(words[:count])) for words in (QUIET, LOUD) for count in range(0, WORDS, cut_words(codec))]


def check_prefix(codec: Codec, used: int, room: int, consumed: int, first: int, count: int, out: object) -> None:
    """The words that were taken end where they may, and are what the bytes hold."""
    assert used <= room
    assert consumed == count or consumed == 0 or (consumed - first) % cut_words(codec) == 0
    words = np.empty(consumed, np.float32)
    body = ffi.buffer(out, used)[:]
    assert lib.sn_decode(codec.number, codec.parameter, body, used, ffi.from_buffer(words), consumed) == 0


@pytest.mark.parametrize("name", codec_names())
def test_encode(source: Any, name: str) -> None:
    """Into rooms that end anywhere: coding blocks are tried, and encoded again up to a cut."""
    codec, rng = codecs.get(name), np.random.default_rng(81)
    consumed, sizes = ffi.new("size_t *"), prefix_sizes(codec)
    seen = set()
    for _ in range(ROUNDS):
        first, count = int(rng.integers(1, cut_words(codec) + 1)), WORDS - int(rng.choice([0, 0, 0, 7, 32]))
        room = int(rng.choice(sizes)) + int(rng.integers(0, 12))
        out = OUT.place(bytes(room))
        used = lib.sn_encode(codec.number, codec.parameter, source, count, first, out, room, consumed)
        check_prefix(codec, used, room, consumed[0], first, count, out)
        seen.add((count, used))
    assert len(seen) > 20


@pytest.mark.parametrize("name", codec_names())
def test_encode_what_is_combined(source: Any, name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(82)
    consumed, sizes = ffi.new("size_t *"), prefix_sizes(codec)
    for _ in range(ROUNDS):
        first, count = int(rng.integers(1, cut_words(codec) + 1)), int(rng.integers(0, WORDS + 1))
        room = int(rng.choice(sizes)) + int(rng.integers(0, 12))
        out = OUT.place(bytes(room))
        used = lib.sn_combine_encode(
            codec.number, codec.parameter, ReduceOp.MAX, source, source, count, first, out, room, consumed
        )
        check_prefix(codec, used, room, consumed[0], first, count, out)


@pytest.mark.parametrize("name", codec_names())
def test_encode_by_several_threads(source: Any, name: str) -> None:
    codec, rng = codecs.get(name), np.random.default_rng(83)
    for _ in range(ROUNDS // 40):
        count = int(rng.integers(0, WORDS + 1))
        room = codec.bound(count)
        out = OUT.place(bytes(room))
        used = lib.sn_parallel_encode(2, codec.number, codec.parameter, source, count, out)
        check_prefix(codec, used, room, count, cut_words(codec), count, out)
