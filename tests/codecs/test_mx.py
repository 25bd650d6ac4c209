"""Codec 7: the bits of ml_dtypes, what blocks do at the ends of the range, and any cut of what crossed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from tests import needs
from tests.codecs.cases import RANGES, Words, anything, block_words, boundary_words, decode, gradients
from tests.codecs.reference import MX, mx_decode, mx_values

NUMBERS = {str(name): number for number, name in enumerate(RANGES["mx"], 1)}
BITS = {name: MX[number][0] for name, number in NUMBERS.items()}
TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m3": "float6_e2m3fn", "e2m1": "float4_e2m1fn"}
"""What ml_dtypes calls the elements."""
NAN = 0x7FC00000


def get(name: str) -> codecs.Codec:
    return codecs.get(f"mx:{name}")


def elements_of(body: bytes, name: str, count: int) -> npt.NDArray[np.uint8]:
    """Unpacked, each in a byte, of blocks of `count` words."""
    rows = np.frombuffer(body, np.uint8).reshape(-1, 1 + count * BITS[name] // 8)[:, 1:]
    bits = np.unpackbits(rows, axis=1, bitorder="little").reshape(-1, BITS[name])
    return np.packbits(bits, axis=1, bitorder="little").reshape(-1, count)


def finite_blocks(words: Words) -> Words:
    """Whole blocks, with zeros for infinities and NaNs."""
    words = words[: words.size // 32 * 32].copy()
    words[(words & np.uint32(0x7F800000)) == 0x7F800000] = 0
    return words.reshape(-1, 32)


def by_ml_dtypes(ml_dtypes: Any, name: str, blocks: Words) -> tuple[Words, Words, Words]:
    """Scales, elements and decoded words: the specification's algorithm on the types of ml_dtypes."""
    element, exact = getattr(ml_dtypes, TYPES[name]), blocks.view(np.float32).astype(np.float64)
    info = ml_dtypes.finfo(element)
    greatest = np.abs(exact).max(axis=1)
    shared = np.frexp(greatest)[1] - np.frexp(float(info.max))[1]
    scales = np.ldexp(1.0, np.where(greatest > 0, np.maximum(shared, -127), -127)).astype(ml_dtypes.float8_e8m0fnu)
    factors = scales.astype(np.float64)[:, None]
    limited = np.clip(exact / factors, -float(info.max), float(info.max))
    elements = limited.astype(element)
    words = (elements.astype(np.float64) * factors).astype(np.float32).view(np.uint32)
    return scales.view(np.uint8), elements.view(np.uint8), words


@pytest.mark.parametrize("name", NUMBERS)
def test_the_bits_of_ml_dtypes(name: str) -> None:
    ml_dtypes = needs.module("ml_dtypes")
    rng = np.random.default_rng(81)
    denormals = rng.integers(0, 1 << 26, 1 << 14, dtype=np.uint32)
    for words in (
        boundary_words(),
        rng.permutation(boundary_words()),
        block_words(rng, 1 << 16),
        anything(rng, 1 << 14),
        rng.standard_normal(1 << 16).astype(np.float32).view(np.uint32),
        denormals | rng.integers(0, 2, denormals.size, dtype=np.uint32) << np.uint32(31),
    ):
        blocks = finite_blocks(words)
        scales, elements, decoded = by_ml_dtypes(ml_dtypes, name, blocks)
        body = get(name).encode(blocks.view(np.float32))
        found = np.frombuffer(body, np.uint8).reshape(-1, 1 + 4 * BITS[name])
        np.testing.assert_array_equal(found[:, 0], scales)
        np.testing.assert_array_equal(elements_of(body, name, 32), elements)
        np.testing.assert_array_equal(get(name).decode(body, blocks.size).view(np.uint32), decoded.reshape(-1))


@pytest.mark.parametrize("name", NUMBERS)
def test_every_element_at_every_scale(name: str) -> None:
    """Whatever a foreign encoder wrote: also infinities, NaNs, and scales that are too large."""
    bits = BITS[name]
    codes = np.arange(-(-(1 << bits) // 32) * 32, dtype=np.uint8).reshape(-1, 32, 1) & np.uint8((1 << bits) - 1)
    rows = np.packbits(
        np.unpackbits(codes, axis=2, bitorder="little")[:, :, :bits].reshape(len(codes), -1), axis=1, bitorder="little"
    )
    for scale in range(256):
        body = b"".join(bytes([scale]) + row.tobytes() for row in rows)
        expected = np.array(mx_decode(body, NUMBERS[name], codes.size), np.uint32)
        found = decode(get(name), body, codes.size)
        assert found is not None
        np.testing.assert_array_equal(found, expected)
        if scale == 255:
            assert (found == NAN).all()


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("word", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF])
def test_a_block_with_an_infinity_or_a_nan_is_all_nans(name: str, word: int) -> None:
    words = np.random.default_rng(82).standard_normal(96 + 7).astype(np.float32).view(np.uint32)
    for place in (32, 50, 63, 96, 102):
        given = words.copy()
        given[place] = word
        start = place // 32 * 32
        got = get(name).roundtrip(given.view(np.float32)).view(np.uint32)
        assert (got[start : start + 32] == NAN).all()
        rest = np.r_[0:start, min(start + 32, words.size) : words.size]
        np.testing.assert_array_equal(got[rest], get(name).roundtrip(words.view(np.float32)).view(np.uint32)[rest])
        size = 1 + 4 * BITS[name]
        body = get(name).encode(given.view(np.float32))[start // 32 * size :][:size]
        assert body[0] == 255
        assert not any(body[1:])


@pytest.mark.parametrize("name", NUMBERS)
def test_zeros_keep_their_signs(name: str) -> None:
    zeros = np.array([0, 1 << 31, 1 << 31, 0] * 10, np.uint32)
    assert get(name).roundtrip(zeros.view(np.float32)).tobytes() == zeros.tobytes()
    assert get(name).encode(np.zeros(40, np.float32)) == bytes(get(name).bound(40))


@pytest.mark.parametrize("name", NUMBERS)
def test_the_largest_word_stays_in_its_binade(name: str) -> None:
    """So a second encoding finds the same scale: every magnitude of 10 bits, at every exponent, as the largest word."""
    mantissas = np.arange(0, 1 << 23, 1 << 13, dtype=np.uint32)
    mantissas = np.concatenate([mantissas, mantissas + np.uint32(1), mantissas + np.uint32(0x1FFF)])
    for exponent in range(255):
        blocks = np.zeros((mantissas.size, 32), np.uint32)
        blocks[:, 17] = np.uint32(exponent << 23) | mantissas
        once = get(name).roundtrip(blocks.view(np.float32)).view(np.uint32)
        if exponent > 15:
            assert (once[:, 17] >> 23 == exponent).all()
        assert get(name).roundtrip(once.view(np.float32)).tobytes() == once.tobytes()


@given(
    seed=st.integers(0, 2**32), name=st.sampled_from(sorted(NUMBERS)), count=st.integers(1, 300), kind=st.integers(0, 2)
)
def test_what_crossed_once_crosses_unchanged_at_any_cut(seed: int, name: str, count: int, kind: int) -> None:
    rng, codec = np.random.default_rng(seed), get(name)
    words = (gradients, anything, block_words)[kind](rng, count)
    once = codec.roundtrip(words.view(np.float32))
    for cut in {0, *(32 * rng.integers(0, count // 32 + 1, 3)).tolist()}:
        body = codec.encode(once[cut:])
        assert codec.decode(body, count - cut).tobytes() == once[cut:].tobytes()
        assert codec.encode(codec.decode(body, count - cut)) == body


@pytest.mark.parametrize(
    ("name", "ratio", "most"),
    [("e4m3", 3.87, 0.0012), ("e5m2", 3.87, 0.0033), ("e2m3", 5.12, 0.0013), ("e2m1", 7.52, 0.021)],
)
def test_sizes_and_errors(name: str, ratio: float, most: float) -> None:
    rng, count = np.random.default_rng(83), 1 << 17
    for x in (rng.standard_normal(count), rng.laplace(size=count), rng.standard_t(3, count)):
        given = x.astype(np.float32)
        assert given.nbytes / len(get(name).encode(given)) >= ratio
        exact = given.astype(np.float64)
        assert ((get(name).roundtrip(given) - exact) ** 2).sum() <= most * (exact**2).sum()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_short_block_at_the_end(name: str) -> None:
    """Its bits behind the last element are zero, else it is malformed."""
    codec, bits = get(name), BITS[name]
    for count in range(1, 32):
        words = np.full(count, -1.5, np.float32)
        body = codec.encode(words)
        assert len(body) == codec.least(count) == 1 + -(-count * bits // 8)
        assert codec.decode(body, count).tobytes() == words.tobytes()
        for bit in range(count * bits, 8 * (len(body) - 1)):
            changed = bytearray(body)
            changed[1 + bit // 8] ^= 1 << bit % 8
            assert decode(codec, bytes(changed), count) is None
        assert decode(codec, body[:-1], count) is None
        assert decode(codec, body + b"\0", count) is None


def test_values_are_those_of_the_specification() -> None:
    largest = {name: mx_values(number)[-1] for name, number in NUMBERS.items()}
    smallest = {name: mx_values(number)[1] for name, number in NUMBERS.items()}
    assert largest == {"e4m3": 448, "e5m2": 57344, "e2m3": 7.5, "e2m1": 6}
    assert smallest == {"e4m3": 2.0**-9, "e5m2": 2.0**-16, "e2m3": 0.125, "e2m1": 0.5}
