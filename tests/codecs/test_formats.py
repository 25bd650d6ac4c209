"""Bytes and words exactly as FORMAT.md says: golden vectors, then every exponent against the slow reference."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softnic import codecs
from tests.codecs import reference
from tests.codecs.cases import NAMES, PARAMETERS, Words, boundary_words, golden, mixed_words, words_of

GOLDEN = [
    pytest.param(name, case, id=f"{name}:{case['parameter']}-{case['case']}") for name in NAMES for case in golden(name)
]
EVERY_GOLDEN = [
    pytest.param(name, case, id=f"{name}:{case['parameter']}-{case['case']}")
    for name in ("inceptionn", "bounded", "bfp", "truncate")
    for case in golden(name)
]


def check(codec: codecs.Codec, words: Words, encoded: bytes, decoded: Words) -> None:
    floats = words.view(np.float32)
    assert codec.encode(floats) == encoded
    np.testing.assert_array_equal(codec.decode(encoded, words.size).view(np.uint32), decoded)
    np.testing.assert_array_equal(codec.roundtrip(floats).view(np.uint32), decoded)


@pytest.mark.parametrize(("name", "case"), EVERY_GOLDEN)
def test_golden_vectors(name: str, case: dict[str, Any]) -> None:
    codec = codecs.get(f"{name}:{case['parameter']}")
    check(codec, words_of(case["words"]), bytes.fromhex(case["encoded"]), words_of(case["decoded"]))


@pytest.mark.parametrize(("name", "case"), GOLDEN)
def test_the_reference_agrees_with_the_golden_vectors(name: str, case: dict[str, Any]) -> None:
    words = words_of(case["words"]).tolist()
    assert reference.ENCODE[name](words, case["parameter"]).hex() == case["encoded"]
    assert reference.roundtrip(name, words, case["parameter"]) == words_of(case["decoded"]).tolist()


@pytest.mark.parametrize("k", PARAMETERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_exponent_and_boundary_mantissa(name: str, k: int) -> None:
    words = boundary_words()
    expected = words_of([]) if not words.size else np.array(reference.roundtrip(name, words.tolist(), k), np.uint32)
    check(codecs.get(f"{name}:{k}"), words, reference.ENCODE[name](words.tolist(), k), expected)


@pytest.mark.parametrize("name", NAMES)
def test_boundary_words_in_changing_company(name: str) -> None:
    """The same words shuffled, so that all tags meet in bursts and groups."""
    words = np.random.default_rng(1).permutation(boundary_words())[:20_000]
    for k in (1, 7, 10, 15, 23):
        expected = np.array(reference.roundtrip(name, words.tolist(), k), np.uint32)
        check(codecs.get(f"{name}:{k}"), words, reference.ENCODE[name](words.tolist(), k), expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_count_up_to_three_groups(name: str) -> None:
    rng = np.random.default_rng(2)
    for count in range(195):
        words, k = mixed_words(rng, count), int(rng.integers(1, 24))
        expected = np.array(reference.roundtrip(name, words.tolist(), k), np.uint32)
        check(codecs.get(f"{name}:{k}"), words, reference.ENCODE[name](words.tolist(), k), expected)


@pytest.mark.parametrize("k", PARAMETERS)
@pytest.mark.parametrize("name", NAMES)
def test_what_crossed_once_crosses_unchanged(name: str, k: int) -> None:
    codec = codecs.get(f"{name}:{k}")
    once = codec.roundtrip(boundary_words().view(np.float32))
    body = codec.encode(once)
    np.testing.assert_array_equal(codec.roundtrip(once).view(np.uint32), once.view(np.uint32))
    np.testing.assert_array_equal(codec.decode(body, once.size).view(np.uint32), once.view(np.uint32))
    assert codec.encode(codec.decode(body, once.size)) == body


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(values=st.lists(FINITE, min_size=1, max_size=70), k=st.sampled_from(PARAMETERS))
@example(values=[3.4028234663852886e38, -1.401298464324817e-45, 2.0**-10, 1.5 * 2.0**-9, 63.99902725219727], k=10)
@example(values=[32767.5, 32766.5, 32767.498046875], k=1)
def test_codec_2_keeps_its_bound(values: list[float], k: int) -> None:
    words = np.array(values, np.float32)
    got = codecs.get(f"bounded:{k}").roundtrip(words)
    assert np.array_equal(codecs.get(f"bounded:{k}").decode(codecs.get(f"bounded:{k}").encode(words), words.size), got)
    for before, after in zip(words.tolist(), got.tolist(), strict=True):
        assert abs(Fraction(before) - Fraction(after)) <= Fraction(1, 2**k)


@pytest.mark.parametrize("k", PARAMETERS)
def test_codec_2_keeps_its_bound_at_every_exponent(k: int) -> None:
    words = boundary_words().view(np.float32)
    finite = words[np.isfinite(words)]
    got = codecs.get(f"bounded:{k}").roundtrip(finite)
    # Exact: where 8 or 16 bits were sent the two share an exponent range that a double holds; else they are equal.
    assert np.abs(finite.astype(np.float64) - got.astype(np.float64)).max() <= 2.0**-k


def test_codec_1_is_a_threshold_and_no_bound() -> None:
    """What FORMAT.md says is known and kept: at k = 10 the worst error is just under 2^-7."""
    just_below = np.array([2.0**-5 - 2.0**-29], np.float32)
    error = np.abs(codecs.get("inceptionn:10").roundtrip(just_below) - just_below)
    assert 2.0**-8 < error[0] < 2.0**-7
    small = np.array([2.0**-8, -(2.0**-8)], np.float32)
    assert codecs.get("inceptionn:15").roundtrip(small).view(np.uint32).tolist() == [0, 0]


def test_silence_costs_a_byte_for_64_words() -> None:
    silent = np.full(64_000, 1e-6, np.float32)
    assert codecs.get("bounded:10").encode(silent) == bytes(1000)
    assert codecs.get("inceptionn:10").encode(silent) == bytes(16_000)


@pytest.mark.parametrize("name", ["raw", *(f"{name}:{k}" for name in NAMES for k in (1, 10, 23))])
def test_sizes_lie_between_least_and_bound(name: str) -> None:
    codec = codecs.get(name)
    loud = np.full(200, 1e30, np.float32)
    for count in (0, 1, 7, 8, 9, 63, 64, 65, 200):
        assert len(codec.encode(loud[:count])) == codec.bound(count)
        assert len(codec.encode(np.zeros(count, np.float32))) == codec.least(count)
