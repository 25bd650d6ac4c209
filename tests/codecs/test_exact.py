"""Codec 6: every bit survives, whatever the data, and none of it grows by more than 1/512."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from tests.codecs.cases import Words, anything, decode, gradients

WIDTHS = (16, 32)


def bfloat16(values: np.ndarray) -> Words:
    """The upper halves of floats, two a word."""
    return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint32)


@pytest.mark.parametrize(("bits", "ratio"), [(16, 1.4), (32, 1.18)])
@pytest.mark.parametrize("sigma", [1e-30, 0.02, 1.0])
def test_weights_shrink(bits: int, ratio: float, sigma: float) -> None:
    weights = sigma * np.random.default_rng(91).standard_normal(1 << 16)
    words = bfloat16(weights) if bits == 16 else weights.astype(np.float32).view(np.uint32)
    assert words.nbytes / len(codecs.get(f"exact:{bits}").encode(words.view(np.float32))) >= ratio


@given(seed=st.integers(0, 2**32), bits=st.sampled_from(WIDTHS), count=st.integers(0, 700), kind=st.integers(0, 3))
def test_every_bit_survives(seed: int, bits: int, count: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    halves = rng.standard_normal(2 * count)
    words = (
        anything(rng, count),
        gradients(rng, count) if count else anything(rng, 0),
        bfloat16(halves),
        halves.astype(np.float16).view(np.uint32),
    )[kind]
    codec = codecs.get(f"exact:{bits}")
    body = codec.encode(words.view(np.float32))
    assert len(body) <= words.nbytes + -(-count // 128)
    assert codec.decode(body, count).tobytes() == words.tobytes()
    assert codec.roundtrip(words.view(np.float32)).tobytes() == words.tobytes()


@pytest.mark.parametrize("bits", WIDTHS)
def test_all_symbols(bits: int) -> None:
    """Blocks around every base, so that codes wrap round at both ends."""
    codec = codecs.get(f"exact:{bits}")
    elements = 128 * (32 // bits)
    for base in range(256):
        symbols = (base + np.arange(elements) % 13 - 9) % 256
        words = (symbols << (bits - 9)).astype(f"u{bits // 8}").view(np.uint32)
        assert decode(codec, codec.encode(words.view(np.float32)), words.size) is not None
        assert codec.decode(codec.encode(words.view(np.float32)), words.size).tobytes() == words.tobytes()


def test_bits_behind_the_last_code_are_zero() -> None:
    codec = codecs.get("exact:32")
    words = np.full(5, 1.5, np.float32)
    body = bytearray(codec.encode(words))
    assert len(body) == 1 + 1 + 1 + 15
    for plane in (1, 2):
        for bit in range(8):
            changed = bytearray(body)
            changed[plane] ^= 1 << bit
            if bit >= 5:
                assert decode(codec, bytes(changed), 5) is None
    assert decode(codec, b"\xff" + words.tobytes(), 5) is not None
    assert decode(codec, b"\xff" + words.tobytes()[:-1], 5) is None


@pytest.mark.parametrize("bits", WIDTHS)
def test_bits_behind_the_last_second_code_of_a_whole_block_are_zero(bits: int) -> None:
    """Whole blocks, which SIMD decodes: the planes of second codes end in a byte that is used in part."""
    codec, elements = codecs.get(f"exact:{bits}"), 128 * (32 // bits)
    for escaped in (1, 3, 7, 9, 30, 61):
        symbols = np.full(elements, 120)
        symbols[-escaped:] = 113  # a distance of 7 is a second code that is not sent as it is
        words = (symbols << (bits - 9)).astype(f"u{bits // 8}").view(np.uint32)
        body = bytearray(codec.encode(words.view(np.float32)))
        start, second = 1 + 2 * elements // 8, (escaped + 7) // 8
        assert len(body) == start + 3 * second + words.nbytes - elements
        assert decode(codec, bytes(body), words.size) is not None
        for plane in range(3):
            last = start + (plane + 1) * second - 1
            for bit in range(escaped % 8, 8):
                changed = bytearray(body)
                changed[last] ^= 1 << bit
                assert decode(codec, bytes(changed), words.size) is None, (escaped, plane, bit)
