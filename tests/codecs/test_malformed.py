"""Bodies that no encoder wrote: rejected whole, without a read or a write out of bounds.

Body and words end at pages nobody may touch, so that the first byte too far ends the run.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic.codecs.payload import tag_counts
from tests.codecs.cases import BURSTS, EVERY, NAMES, count_tags, decode, mixed_words, typical

ALL = ["raw", *(typical(name) for name in NAMES)]


def accepts(codec: codecs.Codec, body: bytes, count: int) -> bool:
    """Whether a body decodes. Counting its tags, where it has any, must say the same."""
    accepted = decode(codec, body, count) is not None
    counts = count_tags(codec, body, count)
    assert (counts is not None) == (accepted and codec.name in ("raw", *BURSTS))
    assert counts is None or sum(counts) == count
    return accepted


@pytest.mark.parametrize("name", ALL)
def test_every_end_but_the_right_one(name: str) -> None:
    codec = codecs.get(name)
    for count in (1, 8, 63, 64, 150):
        body = codec.encode(mixed_words(np.random.default_rng(count), count).view(np.float32))
        assert accepts(codec, body, count)
        for end in range(len(body)):
            assert not accepts(codec, body[:end], count), f"{end} of {len(body)} bytes"
        for surplus in (b"\0", b"\0\0", b"\xff" * 40):
            assert not accepts(codec, body + surplus, count)


@pytest.mark.parametrize(
    ("name", "most"),
    [("raw", 100), ("inceptionn:10", 104), ("bounded:10", 128), ("bfp:10", 112), ("truncate:10", 104)],
)
def test_every_count_but_the_right_one(name: str, most: int) -> None:
    """A body does not tell zero words at its end from the padding of its last burst or group; the header does."""
    body = codecs.get(name).encode(np.full(100, 0.5, np.float32))
    assert [count for count in range(300) if accepts(codecs.get(name), body, count)] == [*range(100, most + 1)]


@pytest.mark.parametrize("name", ALL)
def test_nothing_encodes_nothing(name: str) -> None:
    assert accepts(codecs.get(name), b"", 0)
    assert not accepts(codecs.get(name), b"\0", 0)
    assert not accepts(codecs.get(name), b"", 1)


def test_padding_lanes_are_silent() -> None:
    inceptionn, bounded = codecs.get("inceptionn:10"), codecs.get("bounded:10")
    assert accepts(inceptionn, bytes([0b0100, 0, 0x40]), 2)
    assert not accepts(inceptionn, bytes([0b0100, 0, 0x40]), 1)
    assert accepts(bounded, bytes([1, 0b0100, 0, 0x40]), 2)
    assert not accepts(bounded, bytes([1, 0b0100, 0, 0x40]), 1)


@pytest.mark.parametrize("name", ["bfp:3", "bfp:7", "bfp:12", "truncate:8", "truncate:13", "truncate:16"])
def test_padding_words_are_zero(name: str) -> None:
    """A bit in a lane behind the last word is refused, that of a sign too; the words' own bits are anything."""
    codec, count = codecs.get(name), 5
    body = codec.encode(np.full(count, 0.5, np.float32))
    width, start = (codec.parameter + 1, 8) if codec.name == "bfp" else (codec.parameter, 0)
    for bit in range(start, 8 * len(body)):
        changed = bytearray(body)
        changed[bit // 8] ^= 1 << bit % 8
        assert accepts(codec, bytes(changed), count) == (bit < start + width * count), bit


def test_blocks_of_anything() -> None:
    """Blocks that hold what has no size are words as they are, and padding of zeros is part of them."""
    words = np.array([np.inf, -1.5, np.nan], np.float32)
    assert accepts(codecs.get("bfp:7"), b"\xff" + words.tobytes() + bytes(52), 3)
    assert not accepts(codecs.get("bfp:7"), b"\xff" + words.tobytes() + bytes(52), 2)
    assert not accepts(codecs.get("bfp:7"), b"\xff" + words.tobytes() + bytes(51), 3)
    assert not accepts(codecs.get("bfp:7"), b"\x00\x00", 3), "a silent block is its exponent"


def test_a_group_byte_tells_the_truth() -> None:
    bounded = codecs.get("bounded:10")
    burst = bytes([1, 0, 0x40])
    assert accepts(bounded, bytes([0b10]) + burst, 9)
    assert not accepts(bounded, bytes([0b10]) + burst, 8), "a burst behind the last word"
    assert not accepts(bounded, bytes([0b10]), 8), "the same, without its bytes"
    assert not accepts(bounded, bytes([0, 0b100]), 80)
    assert not accepts(bounded, bytes([0b10, 0, 0]), 16), "a burst said to be loud whose tags are all 00"
    assert not accepts(bounded, bytes([0b10000000]) + burst, 56)
    assert accepts(bounded, bytes([0b10000000]) + burst, 57)


def test_vectors_that_no_encoder_writes_decode_to_zero() -> None:
    """A vector with no one in it is +0.0, whatever its sign, so that what is decoded always encodes again."""
    signs_alone = "7f" + "80" * 2 + "00" * 14  # bfp:7
    bodies = [("inceptionn:10", "05008080"), ("inceptionn:10", "0a0000800080"), ("bounded:10", "0105008080")]
    for name, body in (*bodies, ("bfp:7", signs_alone), ("bfp:7", "01" + signs_alone[2:])):
        assert codecs.get(name).decode(bytes.fromhex(body), 2).view(np.uint32).tolist() == [0, 0]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("count", [-1, 1000, 1 << 32, 1 << 59, 1 << 62, 1 << 64, 1 << 100])
def test_claims_beyond_the_bytes_cost_no_memory(name: str, count: int) -> None:
    codec = codecs.get(name)
    with pytest.raises(codecs.DecodeError, match=f"{count} words"):
        codec.decode(b"\0\0\0", count)
    with pytest.raises(codecs.DecodeError, match=f"{count} words"):
        tag_counts(codec, b"\0\0\0", count)


@given(body=st.binary(max_size=120), count=st.integers(0, 140), name=st.sampled_from(EVERY))
def test_any_bytes(body: bytes, count: int, name: str) -> None:
    codec = codecs.get(name)
    if accepts(codec, body, count):
        words = codec.decode(body, count)
        assert codec.decode(codec.encode(words), count).size == count
    else:
        with pytest.raises(codecs.DecodeError):
            codec.decode(body, count)


@given(seed=st.integers(0, 2**32), name=st.sampled_from(NAMES), data=st.data())
def test_bodies_with_bytes_changed(seed: int, name: str, data: st.DataObject) -> None:
    """Near misses get further into a decoder than noise does."""
    codec = codecs.get(typical(name))
    count = data.draw(st.integers(1, 200))
    body = bytearray(codec.encode(mixed_words(np.random.default_rng(seed), count).view(np.float32)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    accepts(codec, bytes(body), count)
