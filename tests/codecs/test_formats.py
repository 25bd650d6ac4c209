"""Bytes and words exactly as FORMAT.md says: golden vectors, then every exponent against the slow reference."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softnic import codecs
from tests.codecs import reference
from tests.codecs.cases import EVERY, NAMES, RANGES, Words, block_words, boundary_words, golden, mixed_words, words_of

GOLDEN = [
    pytest.param(name, case, id=f"{name}:{case['parameter']}-{case['case']}") for name in NAMES for case in golden(name)
]


def check(codec: codecs.Codec, words: Words, encoded: bytes, decoded: Words) -> None:
    floats = words.view(np.float32)
    assert codec.encode(floats) == encoded
    np.testing.assert_array_equal(codec.decode(encoded, words.size).view(np.uint32), decoded)
    np.testing.assert_array_equal(codec.roundtrip(floats).view(np.uint32), decoded)


@pytest.mark.parametrize(("name", "case"), GOLDEN)
def test_golden_vectors(name: str, case: dict[str, Any]) -> None:
    codec = codecs.get(f"{name}:{case['parameter']}")
    check(codec, words_of(case["words"]), bytes.fromhex(case["encoded"]), words_of(case["decoded"]))


@pytest.mark.parametrize(("name", "case"), GOLDEN)
def test_the_reference_agrees_with_the_golden_vectors(name: str, case: dict[str, Any]) -> None:
    words = words_of(case["words"]).tolist()
    parameter = codecs.get(f"{name}:{case['parameter']}").parameter
    assert reference.ENCODE[name](words, parameter).hex() == case["encoded"]
    assert reference.roundtrip(name, words, parameter) == words_of(case["decoded"]).tolist()


def check_against_the_reference(codec: codecs.Codec, words: Words) -> None:
    check(codec, words, *of_the_reference(codec.name, codec.parameter, words.tobytes()))


@functools.cache  # of any size: a limit below the number of cases would forget each before its next implementation
def of_the_reference(name: str, parameter: int, words: bytes) -> tuple[bytes, Words]:
    """What it encodes and decodes. It is slow, and its results are the same for every implementation."""
    listed = np.frombuffer(words, np.uint32).tolist()
    decoded = np.array(reference.roundtrip(name, listed, parameter), np.uint32)
    return reference.ENCODE[name](listed, parameter), decoded


@pytest.mark.parametrize("text", EVERY)
def test_every_exponent_and_boundary_mantissa(text: str) -> None:
    check_against_the_reference(codecs.get(text), boundary_words())


@pytest.mark.parametrize("name", NAMES)
def test_boundary_words_in_changing_company(name: str) -> None:
    """The same words shuffled, so that all tags meet in bursts and groups."""
    words = np.random.default_rng(1).permutation(boundary_words())[:20_000]
    for k in {1, 7, 8, 10, 15, 23}.intersection(RANGES[name]):
        check_against_the_reference(codecs.get(f"{name}:{k}"), words)


@pytest.mark.parametrize("text", EVERY)
def test_blocks_of_every_shared_exponent(text: str) -> None:
    check_against_the_reference(codecs.get(text), block_words(np.random.default_rng(12), 30_000))


@pytest.mark.parametrize("name", NAMES)
def test_every_count_up_to_three_groups(name: str) -> None:
    rng = np.random.default_rng(2)
    for count in range(195):
        k = rng.choice(RANGES[name])
        check_against_the_reference(codecs.get(f"{name}:{k}"), mixed_words(rng, count))


@pytest.mark.parametrize("text", EVERY)
def test_what_crossed_once_crosses_unchanged(text: str) -> None:
    codec = codecs.get(text)
    for words in (boundary_words(), block_words(np.random.default_rng(13), 100_003)):
        once = codec.roundtrip(words.view(np.float32))
        body = codec.encode(once)
        np.testing.assert_array_equal(codec.roundtrip(once).view(np.uint32), once.view(np.uint32))
        np.testing.assert_array_equal(codec.decode(body, once.size).view(np.uint32), once.view(np.uint32))
        assert codec.encode(codec.decode(body, once.size)) == body


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(values=st.lists(FINITE, min_size=1, max_size=70), k=st.sampled_from(RANGES["bounded"]))
@example(values=[3.4028234663852886e38, -1.401298464324817e-45, 2.0**-10, 1.5 * 2.0**-9, 63.99902725219727], k=10)
@example(values=[32767.5, 32766.5, 32767.498046875], k=1)
def test_codec_2_keeps_its_bound(values: list[float], k: int) -> None:
    words = np.array(values, np.float32)
    got = codecs.get(f"bounded:{k}").roundtrip(words)
    assert np.array_equal(codecs.get(f"bounded:{k}").decode(codecs.get(f"bounded:{k}").encode(words), words.size), got)
    for before, after in zip(words.tolist(), got.tolist(), strict=True):
        assert abs(Fraction(before) - Fraction(after)) <= Fraction(1, 2**k)


@pytest.mark.parametrize("k", RANGES["bounded"])
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


@pytest.mark.parametrize("name", ["raw", *EVERY])
def test_sizes_lie_between_least_and_bound(name: str) -> None:
    codec = codecs.get(name)
    loud = np.full(200, np.inf, np.float32)
    if codec.name == "exact":  # whose symbols must differ
        loud = np.random.default_rng(3).integers(0, 1 << 32, 200, dtype=np.uint32).view(np.float32)
    for count in (0, 1, 7, 8, 9, 63, 64, 65, 200):
        assert len(codec.encode(loud[:count])) == codec.bound(count)
        assert len(codec.encode(np.zeros(count, np.float32))) == codec.least(count)


# Codec 3.

BLOCKS = st.integers(0, 254).flatmap(
    lambda shared: st.lists(
        st.builds(
            lambda sign, exponent, mantissa: sign << 31 | exponent << 23 | mantissa,
            st.integers(0, 1),
            st.integers(max(0, shared - 20), shared),
            st.one_of(st.integers(0, 0x7FFFFF), st.sampled_from([0, 1, 0x400000, 0x7FFFFF])),
        ),
        min_size=1,
        max_size=16,
    )
)


@given(block=BLOCKS, m=st.sampled_from(RANGES["bfp"]))
@example(block=[0x3FFFFFFF, 0x3C000000, 0xBC000001], m=7)
@example(block=[0x00800000, 0x807FFFFF, 0x00000001], m=15)
def test_codec_3_errs_by_half_a_step(block: list[int], m: int) -> None:
    """By a whole one where the largest magnitudes would have rounded up to the next exponent."""
    words = np.array(block, np.uint32).view(np.float32)
    shared = int((words.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).max())
    got = codecs.get(f"bfp:{m}").roundtrip(words)
    if shared == 0:
        assert got.view(np.uint32).tolist() == [0] * len(block)
        return
    step = Fraction(2) ** (shared - 127 - (m - 1))
    for before, after in zip(words.tolist(), got.tolist(), strict=True):
        clamped = abs(Fraction(before)) > step * (2**m - 1)
        assert abs(Fraction(before) - Fraction(after)) <= (step if clamped else step / 2)
        assert before * after >= 0


def test_codec_3_sizes() -> None:
    """BFP16's 3.76:1, a byte for a silent block, and 65 for one that holds what has no size."""
    gradient = np.full(16_000, 0.01, np.float32)
    assert gradient.nbytes / len(codecs.get("bfp:7").encode(gradient)) == pytest.approx(3.76, abs=0.01)
    assert codecs.get("bfp:7").encode(np.zeros(160, np.float32)) == bytes(10)
    assert len(codecs.get("bfp:7").encode(np.array([1, np.nan], np.float32))) == 65


# Codec 4.


@pytest.mark.parametrize("bits", RANGES["truncate"])
def test_codec_4_never_enlarges(bits: int) -> None:
    words = boundary_words().view(np.float32)
    finite = words[np.isfinite(words) & (words.view(np.uint32) << 1 >= 1 << 24)]  # normal: its bits hold an exponent
    got = codecs.get(f"truncate:{bits}").roundtrip(finite).astype(np.float64)
    assert np.all(np.abs(got) <= np.abs(finite))
    if bits >= 9:
        assert np.all(np.abs(finite - got) < np.abs(finite) * 2.0 ** (9 - bits))
