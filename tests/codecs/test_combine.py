"""The fused forms give the bits of the calls that they stand for: all codecs, operations and implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs import Codec
from softnic.codecs.combine import ReduceOp, combine, combine_encode, combine_roundtrip, decode_combine
from softnic.codecs.registry import Floats
from tests.codecs.cases import Fence, encode_prefix, mixed_words

PART = int(lib.SN_COMBINE_WORDS)
"""Words combined at a time: counts around it are where parts meet."""
COUNTS = (0, 1, 15, 16, 63, 64, 65, 200, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 77)
BODY, LEFT, RIGHT, OUT = Fence(), Fence(), Fence(), Fence()


def built_in() -> list[Codec]:
    """Each codec with its least, a usual and its greatest parameter."""
    found, lowest, highest = [], ffi.new("int *"), ffi.new("int *")
    for number in range(lib.SN_CODEC_NUMBERS):
        name = lib.sn_codec_describe(number, lowest, highest)
        if name != ffi.NULL:
            parameters = {lowest[0], (lowest[0] + highest[0]) // 2, highest[0]}
            parameters = {one for one in parameters if lib.sn_codec_valid(number, one)}
            found += [Codec(ffi.string(name).decode(), parameter) for parameter in sorted(parameters)]
    return found


CODECS = built_in()


def floats(rng: np.random.Generator, count: int) -> Floats:
    """Words of all sizes with long silence and specials among them."""
    words = mixed_words(rng, count)
    for _ in range(3):
        start = int(rng.integers(0, count + 1))
        words[start : start + int(rng.integers(1, 400))] &= np.uint32(0x80000000)
    return words.view(np.float32)


@pytest.mark.parametrize("operation", ReduceOp)
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_fused_is_one_after_the_other(codec: Codec, operation: ReduceOp) -> None:
    rng = np.random.default_rng(51)
    for count in COUNTS:
        left, right = floats(rng, count), floats(rng, count)
        body, combined = codec.encode(left), combine(operation, left, right)
        assert combine_encode(codec, operation, left, right) == codec.encode(combined)
        assert combine_roundtrip(codec, operation, left, right).tobytes() == codec.roundtrip(combined).tobytes()
        received = combine(operation, codec.decode(body, count), right)
        assert decode_combine(codec, body, operation, right).tobytes() == received.tobytes()


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_the_result_may_be_an_operand(codec: Codec) -> None:
    rng = np.random.default_rng(52)
    for operation in ReduceOp:
        left, right = floats(rng, 2 * PART + 99), floats(rng, 2 * PART + 99)
        expected = combine_roundtrip(codec, operation, left, right)
        for operand in (0, 1):
            operands = [left.copy(), right.copy()]
            assert combine_roundtrip(codec, operation, operands[0], operands[1], operands[operand]) is operands[operand]
            assert operands[operand].tobytes() == expected.tobytes()
        body, accumulator = codec.encode(left), right.copy()
        expected = decode_combine(codec, body, operation, right)
        assert decode_combine(codec, body, operation, accumulator, accumulator) is accumulator
        assert accumulator.tobytes() == expected.tobytes()


def combine_prefix(
    codec: Codec, operation: ReduceOp, left: Floats, right: Floats, first: int, room: int
) -> tuple[bytes, int]:
    """sn_combine_encode with exactly this much room, between fences. Returns the bytes and the words they hold."""
    out, consumed = OUT.place(bytes(room)), ffi.new("size_t *")
    a, b = LEFT.place(left.view(np.uint32)), RIGHT.place(right.view(np.uint32))
    used = lib.sn_combine_encode(codec.number, codec.parameter, operation, a, b, left.size, first, out, room, consumed)
    assert used <= room
    return ffi.buffer(out, used)[:], int(consumed[0])


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_it_is_cut_where_the_encoder_alone_cuts(codec: Codec) -> None:
    """Rooms that end all around the places where one part ends and the next begins, for every cut."""
    rng = np.random.default_rng(53)
    left, right = floats(rng, 3 * PART + 21), floats(rng, 3 * PART + 21)
    total = combine(ReduceOp.SUM, left, right).view(np.uint32)
    for first in range(1, 17):
        ends = [len(codec.encode(total[:end].view(np.float32))) for end in (0, PART, 2 * PART, 3 * PART, total.size)]
        rooms = {max(0, end + off) for end in ends for off in (*range(-9, 10), -70, -40, 30, 66, 100)}
        for room in sorted(rooms):
            expected = encode_prefix(codec, total, first, room)
            assert combine_prefix(codec, ReduceOp.SUM, left, right, first, room) == expected, (first, room)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_few_words_behind_a_part(codec: Codec) -> None:
    """Fewer words than the cut is away from the part's end, which must not be taken for more to do."""
    rng = np.random.default_rng(54)
    for more in (1, 5, 14, 16, 30):
        left, right = floats(rng, PART + more), floats(rng, PART + more)
        total = combine(ReduceOp.SUM, left, right).view(np.uint32)
        fits = len(codec.encode(total[:PART].view(np.float32)))
        for first in (1, 7, 15, 16):
            for room in range(fits, fits + 40, 3):
                expected = encode_prefix(codec, total, first, room)
                assert combine_prefix(codec, ReduceOp.SUM, left, right, first, room) == expected


def decode_between_fences(codec: Codec, body: bytes, right: Floats) -> bytes | None:
    """sn_decode_combine of exactly these bytes, or None where they are refused. The operand must stay as it is."""
    kept, out = RIGHT.place(right.view(np.uint32)), OUT.place(bytes(right.nbytes))
    refused = lib.sn_decode_combine(
        codec.number, codec.parameter, BODY.place(body), len(body), ReduceOp.SUM, kept, out, right.size
    )
    assert ffi.buffer(kept, right.nbytes)[:] == right.tobytes()
    return None if refused else ffi.buffer(out, right.nbytes)[:]


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_every_end_but_the_right_one_is_refused(codec: Codec) -> None:
    rng = np.random.default_rng(55)
    left, right = floats(rng, PART + 100), floats(rng, PART + 100)
    body = codec.encode(left)
    whole = combine(ReduceOp.SUM, codec.roundtrip(left), right).tobytes()
    assert decode_between_fences(codec, body, right) == whole
    for end in {*range(0, len(body), 37), *range(len(body) - 80, len(body))}:
        assert decode_between_fences(codec, body[: max(end, 0)], right) is None
    for surplus in (b"\0", b"\0" * 7, b"\xff" * 40):
        assert decode_between_fences(codec, body + surplus, right) is None


@given(data=st.data(), codec=st.sampled_from(CODECS), count=st.integers(0, 80))
def test_any_bytes(data: st.DataObject, codec: Codec, count: int) -> None:
    body, right = data.draw(st.binary(max_size=200)), np.ones(count, np.float32)
    found = decode_between_fences(codec, body, right)
    try:
        decoded = codec.decode(body, count)
    except codecs.DecodeError:
        assert found is None
        with pytest.raises(codecs.DecodeError, match=f"{count} words"):
            decode_combine(codec, body, ReduceOp.SUM, right)
    else:
        assert found == combine(ReduceOp.SUM, decoded, right).tobytes()


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_bodies_with_bytes_changed(codec: Codec) -> None:
    """In the first part or behind it: what the decoder alone refuses, and nothing else, is refused."""
    rng, outcomes = np.random.default_rng(56), set()
    for _ in range(200):
        count = int(rng.integers(1, 2 * PART))
        left, right = floats(rng, count), floats(rng, count)
        body = bytearray(codec.encode(left))
        for _ in range(int(rng.integers(0, 3))):
            body[int(rng.integers(0, len(body)))] = int(rng.integers(0, 256))
        if rng.random() < 0.2:
            del body[int(rng.integers(0, len(body))) :]
        found = decode_between_fences(codec, bytes(body), right)
        outcomes.add(found is None)
        try:
            decoded = codec.decode(bytes(body), count)
        except codecs.DecodeError:
            assert found is None
        else:
            assert found == combine(ReduceOp.SUM, decoded, right).tobytes()
    assert outcomes == {False, True}


@pytest.mark.parametrize(
    ("number", "parameter", "operation"), [(15, 1, 0), (-1, 0, 0), (1, 0, 0), (1, 10, 4), (0, 0, -1)]
)
def test_what_does_not_exist_does_nothing(number: int, parameter: int, operation: int) -> None:
    words, out, consumed = b"\1" * 64, ffi.new("uint8_t[64]"), ffi.new("size_t *", 7)
    assert lib.sn_combine_roundtrip(number, parameter, operation, words, words, 16, out) == -1
    assert lib.sn_combine_encode(number, parameter, operation, words, words, 16, 16, out, 64, consumed) == 0
    assert lib.sn_decode_combine(number, parameter, words, 64, operation, words, out, 16) == -1
    assert consumed[0] == 0
    assert bytes(out) == bytes(64)


def test_only_float32_is_fused_with_codecs() -> None:
    codec, ones = codecs.get("bounded:10"), np.ones(4, np.float32)
    doubles: Any = ones.astype(np.float64)
    for call in (
        lambda: combine_roundtrip(codec, ReduceOp.SUM, doubles, doubles),
        lambda: combine_roundtrip(codec, ReduceOp.SUM, ones, ones, doubles),
        lambda: combine_encode(codec, ReduceOp.SUM, doubles, doubles),
        lambda: combine_encode(codec, ReduceOp.SUM, ones, doubles),
        lambda: decode_combine(codec, codec.encode(ones), ReduceOp.SUM, doubles),
        lambda: decode_combine(codec, codec.encode(ones), ReduceOp.SUM, ones, doubles),
    ):
        with pytest.raises(TypeError, match="float64"):
            call()
