"""Codecs by name and number, and the numpy face that all of them share."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic._native import lib
from tests.codecs.cases import RANGES

EVERY = ["raw", "inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:16", "mx:e4m3"]


def gradient(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return (np.random.default_rng(11).standard_normal(count) * 0.01).astype(np.float32)


# Names and numbers.


def test_names_and_numbers_are_those_of_the_format() -> None:
    assert codecs.names() == ("raw", "inceptionn", "bounded", "bfp", "truncate", "rht", "exact", "mx")
    assert [codecs.get(text).number for text in EVERY] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert codecs.BUILT_IN == 0b11111111


@pytest.mark.parametrize("text", ["raw", *(f"{name}:{k}" for name in RANGES for k in RANGES[name])])
def test_text_number_and_codec_are_one(text: str) -> None:
    codec = codecs.get(text)
    assert str(codec) == text
    assert codecs.from_number(codec.number, codec.parameter) == codec == codecs.Codec(codec.name, codec.parameter)
    assert lib.sn_codec_valid(codec.number, codec.parameter)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gzip:9", "unknown codec 'gzip': use raw, inceptionn, bounded, bfp, truncate, rht, exact, mx"),
        ("gzip", "unknown codec 'gzip'"),
        ("bounded", "expected for example bounded:23"),
        ("raw:1", "expected raw"),
        ("raw:0", "expected raw"),
        ("bounded:0", r"does not accept parameter 0 \(it accepts 1..23\)"),
        ("bounded:24", "does not accept parameter 24"),
        ("bfp:2", r"does not accept parameter 2 \(it accepts 3..15\)"),
        ("mx:e3m2", "expected for example mx:e2m1"),
        ("mx:1", "expected for example mx:e2m1"),
        ("mx", "expected for example mx:e2m1"),
        ("bounded:e4m3", "expected for example bounded:23"),
        ("exact:24", r"does not accept parameter 24 \(it accepts 16 or 32\)"),
        ("truncate:33", r"does not accept parameter 33 \(it accepts 8..32\)"),
        ("bounded:-1", "expected name:parameter"),
        ("bounded:1_0", "expected name:parameter"),
        ("bounded:10 ", "expected name:parameter"),
        ("bounded:10\n", "expected name:parameter"),
        ("bounded:\u0661", "expected name:parameter"),
        ("bounded:1000000", "expected name:parameter"),
        ("Bounded:10", "expected name:parameter"),
        ("auto:", "expected for example auto:bounded:10"),
        ("auto:auto", "expected for example auto:bounded:10"),
        ("auto:auto:bounded:10", "expected for example auto:bounded:10"),
        ("auto:1", "'1' is not a codec"),
        ("auto:raw", "needs a codec that compresses"),
        ("auto:bounded", "expected for example bounded:23"),
        ("auto:gzip:9", "unknown codec 'gzip'"),
        ("autobounded:10", "unknown codec 'autobounded'"),
        (":10", "expected name:parameter"),
        ("", "expected name:parameter"),
    ],
)
def test_what_is_no_codec(text: str, reason: str) -> None:
    with pytest.raises(codecs.CodecError, match=reason):
        codecs.get(text)


def test_auto_is_its_codec_but_for_what_a_nic_may_do() -> None:
    auto, plain = codecs.get("auto:inceptionn:9"), codecs.get("inceptionn:9")
    assert str(auto) == "auto:inceptionn:9"
    assert auto.auto
    assert not plain.auto
    assert auto != plain
    assert (auto.name, auto.number, auto.parameter) == (plain.name, plain.number, plain.parameter)
    words = gradient(1000)
    assert auto.encode(words) == plain.encode(words)
    assert auto.roundtrip(words).tobytes() == plain.roundtrip(words).tobytes()
    assert codecs.get("auto") == codecs.get("auto:bounded:10")
    assert not codecs.from_number(1, 9).auto


@pytest.mark.parametrize(
    ("number", "parameter"),
    [
        (3, 2),
        (3, 16),
        (4, 7),
        (4, 33),
        (5, 2),
        (5, 7),
        (6, 8),
        (6, 24),
        (6, 48),
        (7, 0),
        (7, 5),
        (15, 1),
        (-1, 1),
        (255, 1),
        (1, 0),
        (1, 24),
        (0, 1),
    ],
)
def test_what_is_no_number(number: int, parameter: int) -> None:
    with pytest.raises(codecs.CodecError):
        codecs.from_number(number, parameter)


def test_which_codecs_have_tags() -> None:
    assert [name for name in EVERY if codecs.get(name).has_tags] == ["raw", "inceptionn:10", "bounded:10"]
    assert not lib.sn_codec_has_tags(15)
    assert not lib.sn_codec_has_tags(-1)


def test_a_codec_is_a_value() -> None:
    codec = codecs.get("bounded:10")
    assert {codec: 1}[codecs.from_number(2, 10)] == 1
    assert codecs.get("bounded:9") != codec != codecs.get("inceptionn:10")
    assert pickle.loads(pickle.dumps(codec)) == codec
    with pytest.raises(FrozenInstanceError):
        codec.parameter = 9  # type: ignore[misc]
    assert issubclass(codecs.CodecError, ValueError)
    assert issubclass(codecs.DecodeError, ValueError)


# Arrays and buffers.


@pytest.mark.parametrize("text", EVERY)
def test_arrays_of_any_shape(text: str) -> None:
    codec = codecs.get(text)
    flat = gradient(120)
    body = codec.encode(flat)
    assert codec.encode(flat.reshape(4, 5, 6)) == body
    assert codec.encode(np.repeat(flat, 2)[::2]) == body
    assert codec.encode(flat.reshape(10, 12).T) == codec.encode(np.ascontiguousarray(flat.reshape(10, 12).T))
    assert codec.encode(flat[:0]) == b""
    assert codec.decode(b"", 0).size == 0
    read_only = np.frombuffer(flat.tobytes(), np.float32)
    assert codec.encode(read_only) == body
    assert codec.roundtrip(flat.reshape(4, 30)).shape == (4, 30)
    assert codec.roundtrip(flat[:0]).shape == (0,)


@pytest.mark.parametrize("text", EVERY)
def test_bodies_in_any_buffer(text: str) -> None:
    codec = codecs.get(text)
    flat = gradient(100)
    body = codec.encode(flat)
    expected = codec.roundtrip(flat)
    for buffer in (body, bytearray(body), memoryview(body), np.frombuffer(body, np.uint8), memoryview(b"x" + body)[1:]):
        np.testing.assert_array_equal(codec.decode(buffer, 100), expected)


@pytest.mark.parametrize("text", EVERY)
def test_roundtrip_in_place_and_elsewhere(text: str) -> None:
    codec = codecs.get(text)
    for count in (1, 15, 16, 17, 1000):
        flat = gradient(count)
        expected = codec.decode(codec.encode(flat), count)
        elsewhere = np.empty(count, np.float32)
        assert codec.roundtrip(flat, elsewhere) is elsewhere
        np.testing.assert_array_equal(elsewhere, expected)
        assert codec.roundtrip(flat, flat) is flat
        np.testing.assert_array_equal(flat, expected)


@pytest.mark.parametrize("text", EVERY)
def test_encode_into_and_decode_into(text: str) -> None:
    codec = codecs.get(text)
    flat = gradient(200)
    body = codec.encode(flat)
    room = bytearray(len(body) + 9)
    assert codec.encode_into(flat, room) == len(body)
    assert room == body + bytes(9)
    assert codec.encode_into(flat, memoryview(room)[: len(body)]) == len(body)
    with pytest.raises(ValueError, match="not enough for 200 words"):
        codec.encode_into(flat, bytearray(len(body) - 1))
    out = np.zeros(200, np.float32)
    codec.decode_into(body, out)
    np.testing.assert_array_equal(out, codec.roundtrip(flat))
    with pytest.raises(codecs.DecodeError):
        codec.decode_into(body, out[:-20])


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "u4", ">f4", "c8"])
def test_only_float32(dtype: str) -> None:
    """A silent conversion would lose bits, or send other numbers than the caller holds."""
    codec = codecs.get("bounded:10")
    wrong = np.zeros(8, dtype)
    with pytest.raises(TypeError, match="float32"):
        codec.encode(wrong)
    with pytest.raises(TypeError, match="float32"):
        codec.roundtrip(wrong)
    with pytest.raises(TypeError, match="float32"):
        codec.roundtrip(np.zeros(8, np.float32), wrong)
    with pytest.raises(TypeError, match="float32"):
        codec.decode_into(b"\0", wrong)


def test_outputs_that_cannot_be_written() -> None:
    codec = codecs.get("bounded:10")
    flat = gradient(64)
    with pytest.raises(ValueError, match="63 words, the array 64"):
        codec.roundtrip(flat, np.empty(63, np.float32))
    with pytest.raises(ValueError, match="contiguous"):
        codec.roundtrip(flat, np.empty(128, np.float32)[::2])
    with pytest.raises(ValueError, match="overlaps"):
        codec.roundtrip(flat[1:], flat[:-1])
    frozen = flat.copy()
    frozen.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        codec.roundtrip(frozen, frozen)
    with pytest.raises((BufferError, ValueError)):
        codec.encode_into(flat, bytes(500))
    with pytest.raises((BufferError, ValueError)):
        codec.decode_into(codec.encode(flat), frozen)


@pytest.mark.parametrize("text", [10, None, ["bounded:10"], b"bounded:10"])
def test_a_codec_is_named_by_a_string(text: Any) -> None:
    with pytest.raises(ValueError, match="is given as a str"):
        codecs.get(text)
