"""Each implementation against the scalar reference, on sizes that reach its quick ways, and the choice among them.

The other files of this directory hold every implementation against FORMAT.md; what is here takes too many words for
a reference in Python. In the runs for `scalar` it compares the reference with itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from softnic import codecs
from softnic._native import lib
from softnic.codecs.kernels import simd_select
from tests.codecs.cases import (
    EVERY,
    NAMES,
    RANGES,
    anything,
    block_words,
    boundary_words,
    cut_words,
    damaged_body,
    decode,
    encode_prefix,
    gradients,
    threshold_words,
    typical,
)


@contextmanager
def reference(implementation: str) -> Iterator[None]:
    simd_select("scalar")
    try:
        yield
    finally:
        simd_select(implementation)


@pytest.mark.parametrize("text", EVERY)
def test_the_same_bits_as_the_reference(implementation: str, text: str) -> None:
    codec = codecs.get(text)
    rng = np.random.default_rng(codec.parameter)
    shuffled = rng.permutation(boundary_words())
    for words in (gradients(rng, 100_003), anything(rng, 100_003), block_words(rng, 100_003), shuffled):
        floats = words.view(np.float32)
        with reference(implementation):
            expected = codec.encode(floats), codec.roundtrip(floats).tobytes()
        assert (codec.encode(floats), codec.roundtrip(floats).tobytes()) == expected
        assert codec.decode(expected[0], words.size).tobytes() == expected[1]
        in_place = floats.copy()
        codec.roundtrip(in_place, in_place)
        assert in_place.tobytes() == expected[1]


@pytest.mark.parametrize("text", EVERY)
def test_words_around_the_thresholds(implementation: str, text: str) -> None:
    codec, floats = codecs.get(text), threshold_words().view(np.float32)
    with reference(implementation):
        expected = codec.encode(floats), codec.roundtrip(floats).tobytes()
    assert (codec.encode(floats), codec.roundtrip(floats).tobytes()) == expected


@pytest.mark.parametrize("name", NAMES)
def test_one_word_in_silence(implementation: str, name: str) -> None:
    """A group is silent by the same bit by which a word is: one word around the bound in it, at every place."""
    for k in RANGES[name]:
        codec = codecs.get(f"{name}:{k}")
        bound = (127 - codec.parameter) << 23
        words = np.zeros((64 * 6, 128), np.uint32)
        for place in range(64):
            words[6 * place : 6 * place + 6, place] = [
                bound + off | sign for sign in (0, 1 << 31) for off in (-1, 0, 1)
            ]
        with reference(implementation):
            expected = codec.encode(words.view(np.float32))
        assert codec.encode(words.view(np.float32)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_same_cuts_as_the_reference(implementation: str, name: str) -> None:
    """Capacities all around the places where a quick way ends and the careful one takes over."""
    rng = np.random.default_rng(21)
    for _ in range(60):
        codec = codecs.get(f"{name}:{rng.choice(RANGES[name])}")
        words = gradients(rng, int(rng.integers(64, 700)))
        first, size = int(rng.integers(1, cut_words(codec) + 1)), len(codec.encode(words.view(np.float32)))
        for capacity in {*rng.integers(0, size + 1, 20).tolist(), *range(max(0, size - 6), size + 2)}:
            with reference(implementation):
                expected = encode_prefix(codec, words, first, capacity)
            assert encode_prefix(codec, words, first, capacity) == expected


def test_silence_cut_short(implementation: str) -> None:
    """A group without vectors is left by a short way; its last coding block may have to be taken back."""
    for name in NAMES:
        codec = codecs.get(typical(name))
        words = np.concatenate([np.zeros(256, np.uint32), np.full(64, 0x7F800000, np.uint32)])
        for first in (*range(1, 16), cut_words(codec)):
            for capacity in range(400):
                with reference(implementation):
                    expected = encode_prefix(codec, words, first, capacity)
                assert encode_prefix(codec, words, first, capacity) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_refused_as_by_the_reference(implementation: str, name: str) -> None:
    """Bodies of several groups with bytes changed, cut off or added, between fences."""
    rng, accepted = np.random.default_rng(22), 0
    for _ in range(1500):
        codec = codecs.get(typical(name))
        body, count = damaged_body(rng, codec)
        with reference(implementation):
            expected = decode(codec, body, count)
        found = decode(codec, body, count)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.tobytes() == expected.tobytes()
            accepted += 1
    assert 100 < accepted < 1400


@pytest.mark.parametrize("name", NAMES)
def test_noise_is_refused_as_by_the_reference(implementation: str, name: str) -> None:
    rng = np.random.default_rng(23)
    for _ in range(1500):
        codec, count = codecs.get(typical(name)), int(rng.integers(1, 400))
        body = rng.integers(0, 256, int(rng.integers(0, 900)), dtype=np.uint8)
        body[rng.random(body.size) < rng.random()] = 0
        with reference(implementation):
            expected = decode(codec, body.tobytes(), count)
        found = decode(codec, body.tobytes(), count)
        assert (found is None) == (expected is None)
        assert found is None or expected is None or found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_few_bytes_that_claim_many_words(implementation: str, name: str) -> None:
    """The end of a body is decoded where it can be read past; what it claims must not lead further than that."""
    codec, rng = codecs.get(typical(name)), np.random.default_rng(24)
    for size in (1, 2, 33, 34, 35, 271, 272, 273, 274, 300, 546, 900):
        for share in (0.0, 0.01, 0.1, 0.9):
            body = rng.integers(0, 256, size, dtype=np.uint8)
            body[rng.random(size) > share] = 0
            for last in (body[-1], 0, 1, 0xFF):
                body[-1] = last
                most = min({"bounded": 64, "bfp": 16, "rht": 64}.get(name, 4) * size, 1 << 14)
                for count in (most, most - 1, most // 2, 63, 64, 65):
                    with reference(implementation):
                        expected = decode(codec, body.tobytes(), count)
                    found = decode(codec, body.tobytes(), count)
                    assert (found is None) == (expected is None)
                    assert found is None or expected is None or found.tobytes() == expected.tobytes()


# The choice.


def report(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "SOFTNIC_KERNELS"}
    command = [sys.executable, "-c", "from softnic import codecs; print(codecs.simd())"]
    return subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_reference_is_always_there_and_the_quickest_is_taken(implementation: str) -> None:
    assert codecs.simd() == implementation
    assert codecs.simd_available()[0] == "scalar"
    for environment in ({}, {"SOFTNIC_KERNELS": ""}):
        assert report(**environment).stdout.strip() == codecs.simd_available()[-1]


def test_the_environment_forces_one(implementation: str) -> None:
    assert report(SOFTNIC_KERNELS=implementation).stdout.strip() == implementation


@pytest.mark.parametrize("name", ["AVX2", "none", "scalar,avx2"])
def test_what_is_not_there_is_an_error_at_import(name: str) -> None:
    failed = report(SOFTNIC_KERNELS=name)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert last.startswith(f"ValueError: SOFTNIC_KERNELS: {name!r} is not available: use one of scalar")


def test_a_refused_choice_changes_nothing(implementation: str) -> None:
    for number in (-1, lib.SN_SIMD_NUMBERS, 1000):
        assert not lib.sn_simd_available(number)
        assert lib.sn_simd_select(number) == -1
    with pytest.raises(ValueError, match="'none' is not available"):
        simd_select("none")
    assert codecs.simd() == implementation
