"""Codec 5: its error, its scales at the ends of the range, and blocks cut in any way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softnic import codecs
from tests import needs
from tests.codecs.cases import RANGES, Words, decode, gradients
from tests.codecs.reference import TABLES, codes_of, rht_block, rht_encode

ROWS = {3: 48, 4: 64, 5: 80, 6: 96}
"""Bytes of the codes of a block, by parameter."""


def bits_of(codec: codecs.Codec, words: Words) -> bytes:
    return codec.roundtrip(words.view(np.float32)).tobytes()


def error_of(codec: codecs.Codec, x: np.ndarray) -> float:
    """The mean squared error, as a part of the mean square."""
    exact = x.astype(np.float64)
    return float(((codec.roundtrip(x) - exact) ** 2).sum() / (exact**2).sum())


@pytest.mark.parametrize(("b", "most"), [(3, 0.045), (4, 0.0095), (5, 0.0024), (6, 0.0007)])
def test_the_error_does_not_depend_on_the_distribution(b: int, most: float) -> None:
    codec, rng, count = codecs.get(f"rht:{b}"), np.random.default_rng(71), 1 << 17
    for x in (rng.standard_normal(count), rng.laplace(size=count), rng.standard_t(3, count)):
        for scale in (1e-12, 1e-3, 1e6):
            assert error_of(codec, (scale * x).astype(np.float32)) <= most


@pytest.mark.parametrize(("b", "ratio"), [(3, 10.2), (4, 7.7), (5, 6.2), (6, 5.2)])
def test_the_size_does_not_depend_on_the_data(b: int, ratio: float) -> None:
    x = np.random.default_rng(72).standard_cauchy(1 << 14).astype(np.float32)
    assert x.nbytes / len(codecs.get(f"rht:{b}").encode(x)) >= ratio


def test_short_blocks_at_the_end() -> None:
    """At most one each of 64, 32, 16 and 8 words; the last words are as they were."""
    x = np.random.default_rng(73).standard_normal(3 * 128 + 127).astype(np.float32)
    body = codecs.get("rht:4").encode(x)
    assert len(body) == 3 * 66 + (2 + 32) + (2 + 16) + (2 + 8) + (2 + 4) + 4 * 7
    assert codecs.get("rht:4").decode(body, x.size)[-7:].tobytes() == x[-7:].tobytes()


@given(seed=st.integers(0, 2**32), b=st.sampled_from(RANGES["rht"]), blocks=st.integers(1, 5), rest=st.integers(0, 127))
def test_what_crossed_once_crosses_unchanged_at_any_cut(seed: int, b: int, blocks: int, rest: int) -> None:
    codec, rng = codecs.get(f"rht:{b}"), np.random.default_rng(seed)
    words = gradients(rng, 128 * blocks + rest)
    once = bits_of(codec, words)
    assert bits_of(codec, np.frombuffer(once, np.uint32)) == once
    cut = 128 * int(rng.integers(0, blocks + 1))
    assert bits_of(codec, words[:cut]) + bits_of(codec, words[cut:]) == once


@given(seed=st.integers(0, 2**32), exponent=st.integers(-126, 127), b=st.sampled_from(RANGES["rht"]))
@example(seed=0, exponent=-100, b=4)
@example(seed=0, exponent=112, b=4)
def test_blocks_of_one_exponent(seed: int, exponent: int, b: int) -> None:
    """Scales at both ends: what is decoded may be too large to be transformed again, or too small."""
    codec, rng = codecs.get(f"rht:{b}"), np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        words = (rng.uniform(-2, 2, 128).astype(np.float32) * np.float32(2.0**exponent)).view(np.uint32)
    once = bits_of(codec, words)
    assert bits_of(codec, np.frombuffer(once, np.uint32)) == once


def test_a_coefficient_just_below_the_least_scale_is_kept() -> None:
    """What rounding errors can make of the least scale is not zero: else it would not cross unchanged."""
    codec = codecs.get("rht:4")
    for below in range(6):
        word = np.array(
            [0x0D800000 + (3 << 23) - below], np.uint32
        )  # alone in its block: an eighth in each coefficient
        words = np.zeros(128, np.uint32)
        words[0] = word[0]
        assert codec.encode(words.view(np.float32))[:2] == b"\x80\x0d"
        once = bits_of(codec, words)
        assert any(once)
        assert bits_of(codec, np.frombuffer(once, np.uint32)) == once


@pytest.mark.parametrize("b", RANGES["rht"])
@pytest.mark.parametrize("least", [1, 3, 0x80000001, 0x80000004])
@pytest.mark.parametrize("sign", [0, 1 << 31])
def test_a_coefficient_may_be_a_denormal_beside_large_ones(b: int, least: int, sign: int) -> None:
    """Two words cancel each other in half of the coefficients; of a third word an eighth is left, rounded to zero."""
    words = np.zeros(128, np.uint32)
    words[:3] = 0x68000000, 0x68000000 | sign, least
    assert codecs.get(f"rht:{b}").encode(words.view(np.float32)) == rht_encode(words.tolist(), b)


def two_coefficients(top: np.float32, other: np.float32, m: int) -> Words | None:
    """Return a block of `m` words each of whose coefficients is one of two values; None if rounding prevents it."""
    scale = np.float32(2.0 ** ((m.bit_length() - 1) // 2 - 1))
    words = np.zeros(m, np.float32)
    words[:2] = (top + other) * scale, (top - other) * scale
    wanted = np.array([top, top], np.float64) + np.array([other, -other], np.float64)
    return words.view(np.uint32) if (words[:2] == wanted * np.float64(scale)).all() else None


@pytest.mark.parametrize("m", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("b", RANGES["rht"])
def test_a_coefficient_at_a_threshold_is_above_it(b: int, m: int) -> None:
    """The scale has the eight bits of the largest coefficient, so that a float meets scale times threshold exactly."""
    codec = codecs.get(f"rht:{b}")
    for index, threshold in enumerate(TABLES[b]["thresholds"]):
        met = 0
        for mantissa in range(128, 256):
            if met >= 4:
                break
            top = np.float32(mantissa / 128)
            at = top * threshold
            below = np.nextafter(at, np.float32(0))
            for other, expected in ((at, index + 1), (below, index), (-at, index + 1), (-below, index)):
                words = two_coefficients(top, other, m)
                if words is None:
                    continue
                codes = codec.encode(words.view(np.float32))
                assert codes == rht_block(words.tolist(), b)
                indices = {code & (1 << b - 1) - 1 for code in codes_of(codes[2:], b)}
                assert indices == {expected, (1 << b - 1) - 1}
                met += abs(other) == at
        assert met, f"no block meets threshold {index}"


@pytest.mark.parametrize("b", RANGES["rht"])
def test_scales_that_no_encoder_writes(b: int) -> None:
    codec, row = codecs.get(f"rht:{b}"), bytes(range(ROWS[b]))
    for scale in (*range(0x7F80, 0x7F90), 0x8000, 0x8D80, 0xFFFE):
        assert decode(codec, scale.to_bytes(2, "little") + row, 128) is None
    assert decode(codec, b"\x7f\x7f" + row, 128) is not None
    assert decode(codec, b"\1\0" + row, 128) is not None
    assert decode(codec, b"\0\0" + row, 128) is None
    assert decode(codec, b"\xff\xff" + row, 128) is None


def test_blocks_of_what_has_no_size_are_as_they_were() -> None:
    words = np.random.default_rng(74).standard_normal(128).astype(np.float32).view(np.uint32)
    for special in (0x7F800000, 0xFF800000, 0x7FC00001, 0xFF801234, 0x78000000, 0xF8000000):
        for place in (0, 77, 127):
            given = words.copy()
            given[place] = special
            body = codecs.get("rht:4").encode(given.view(np.float32))
            assert body == b"\xff\xff" + given.tobytes()
            assert bits_of(codecs.get("rht:4"), given) == given.tobytes()


def test_denormals_count_whatever_the_process_has_configured() -> None:
    torch = needs.module("torch")
    rng = np.random.default_rng(75)
    words = (rng.standard_normal(1 << 14) * 2.0 ** rng.integers(-126, -94, 1 << 14)).astype(np.float32).view(np.uint32)
    codec = codecs.get("rht:6")
    expected = bits_of(codec, words), codec.encode(words.view(np.float32))
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU does not flush denormals")
    try:
        assert (bits_of(codec, words), codec.encode(words.view(np.float32))) == expected
        assert codec.decode(expected[1], words.size).tobytes() == expected[0]
    finally:
        torch.set_flush_denormal(False)
