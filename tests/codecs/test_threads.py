"""Several threads give the bytes and bits of one: every codec and reduction, cut into 1 to 5 parts of any sizes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs import Codec, threads
from softnic.codecs.combine import ReduceOp, combine
from softnic.codecs.registry import Floats
from tests.codecs.cases import Fence
from tests.codecs.test_combine import CODECS, floats

ROOT = Path(__file__).resolve().parents[2]
THREADS = (1, 2, 3, 4, 5)
COUNTS = (0, 1, 63, 64, 65, 128, 129, 1000, 4096, 10_007)
BODY, WORDS = Fence(), Fence()


def view(data: object) -> object:
    return ffi.from_buffer("uint8_t[]", data)


def encode(codec: Codec, number: int, words: Floats) -> bytes:
    """sn_parallel_encode into exactly the room that it is promised, ending at a fence."""
    room = WORDS.place(bytes(codec.bound(words.size)))
    used = lib.sn_parallel_encode(number, codec.number, codec.parameter, view(words), words.size, room)
    return bytes(ffi.buffer(room, used))


def decode(codec: Codec, number: int, body: bytes, count: int) -> bytes | None:
    """sn_parallel_decode between fences; None where it is refused."""
    out, given = WORDS.place(bytes(4 * count)), BODY.place(body)
    if lib.sn_parallel_decode(number, codec.number, codec.parameter, given, len(body), out, count):
        return None
    return bytes(ffi.buffer(out, 4 * count))


@functools.cache
def company(count: int) -> list[Floats]:
    """Words whose coding blocks are all alike when encoded, in one codec or another, and words whose are not."""
    rng = np.random.default_rng(61)
    normal = rng.standard_normal(count).astype(np.float32)
    silent_at_the_end = normal.copy()
    silent_at_the_end[count * 2 // 3 :] = 0
    return [floats(rng, count), normal, np.zeros(count, np.float32), normal + 100, silent_at_the_end]


@pytest.mark.parametrize("number", THREADS)
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_codecs(codec: Codec, number: int) -> None:
    for count in COUNTS:
        for words in company(count):
            body, rounded = codec.encode(words), codec.roundtrip(words).tobytes()
            assert encode(codec, number, words) == body
            assert decode(codec, number, body, count) == rounded
            out = words.copy()
            lib.sn_parallel_roundtrip(number, codec.number, codec.parameter, view(out), count, view(out))
            assert out.tobytes() == rounded


@pytest.mark.parametrize("number", THREADS)
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_the_same_bodies_are_refused(codec: Codec, number: int) -> None:
    """Above all those of the right length for threads to begin in their midst, and wrong before or behind."""
    rng, outcomes = np.random.default_rng(62), set()
    for turn in range(150):
        count = int(rng.integers(1, 3000))
        words = company(count)[turn % 5]
        body = bytearray(codec.encode(words))
        for _ in range(int(rng.integers(0, 3))):
            body[int(rng.integers(0, len(body)))] = int(rng.choice([0, 0xFF, int(rng.integers(0, 256))]))
        if rng.random() < 0.3:
            body = body[: int(rng.integers(0, len(body) + 1))]
        elif rng.random() < 0.3:
            body += rng.bytes(int(rng.integers(1, 90)))
        try:
            expected = codec.decode(bytes(body), count).tobytes()
        except codecs.DecodeError:
            expected = None
        assert decode(codec, number, bytes(body), count) == expected
        outcomes.add(expected is None)
    assert outcomes == {False, True}


@pytest.mark.parametrize("number", THREADS)
@pytest.mark.parametrize("type_", range(lib.SN_TYPES))
def test_reductions(type_: int, number: int) -> None:
    rng, size = np.random.default_rng(63), lib.sn_type_size(type_)
    for operation in (each for each in range(lib.SN_OPERATIONS) if lib.sn_reduces(each, type_)):
        for count in COUNTS:
            left, right = rng.bytes(count * size), rng.bytes(count * size)
            expected, out = ffi.new("uint8_t[]", count * size), ffi.new("uint8_t[]", count * size)
            assert lib.sn_reduce(operation, type_, left, right, count, expected) == 0
            assert lib.sn_parallel_reduce(number, operation, type_, left, right, count, out) == 0
            assert ffi.buffer(out)[:] == ffi.buffer(expected)[:]


def test_what_does_not_exist_does_nothing() -> None:
    out = ffi.new("uint8_t[1024]")
    assert lib.sn_parallel_reduce(2, 4, 0, b"\1" * 1024, b"\1" * 1024, 256, out) == -1
    assert lib.sn_parallel_reduce(2, 0, 17, b"\1" * 1024, b"\1" * 1024, 256, out) == -1
    assert lib.sn_parallel_decode(2, 15, 1, b"\1" * 1024, 1024, out, 256) == -1
    assert bytes(out) == bytes(1024)


@pytest.mark.parametrize("number", [0, 64, 65, 1000, (1 << 32) - 1])
def test_any_number_of_threads_is_as_good(number: int) -> None:
    codec, words = codecs.get("bounded:10"), floats(np.random.default_rng(64), 10_007)
    assert encode(codec, number, words) == codec.encode(words)


# Which arrays several threads work on.

LARGE = 2 * threads.BYTES_A_THREAD // 4
"""The fewest words for two of them."""


def test_small_arrays_are_left_to_the_caller() -> None:
    with threads.at_most(4):
        sizes = [threads.threads_for(n * threads.BYTES_A_THREAD) for n in (0, 1, 2, 3, 4, 100)]
        assert sizes == [1, 1, 2, 3, 4, 4]
        assert threads.threads_for(2 * threads.BYTES_A_THREAD - 1) == 1
    with threads.at_most(1):
        assert threads.threads_for(1 << 40) == 1


def test_no_more_than_there_are_cores() -> None:
    assert threads.threads_for(1 << 40) == min(64, len(os.sched_getaffinity(0)))
    with threads.at_most(1000):
        assert threads.threads_for(1 << 40) == 64


@pytest.mark.parametrize("name", ["raw", "inceptionn:10", "bounded:10", "bfp:7", "truncate:16"])
def test_large_arrays_through_a_codec(name: str) -> None:
    codec, words = codecs.get(name), np.random.default_rng(65).standard_normal(LARGE + 99).astype(np.float32)
    results = []
    for number in (1, 2, 4):
        with threads.at_most(number):
            body = codec.encode(words)
            results.append((body, codec.decode(body, words.size).tobytes(), codec.roundtrip(words).tobytes()))
            assert codec.encode_into(words, bytearray(len(body) + 64)) == len(body)  # too little for several
    assert results[1:] == results[:1] * 2


def test_large_arrays_combined() -> None:
    left, right = np.arange(LARGE, dtype=np.float32), np.ones(LARGE, np.float32)
    for number in (1, 2, 4):
        with threads.at_most(number):
            assert np.array_equal(combine(ReduceOp.SUM, left, right), left + 1)


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_processes", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    found = []
    for processes in (1, 3, 4, 16, 40):
        threads.share_cores(processes)
        found.append(threads.threads())
    assert found == [16, 5, 4, 1, 1]
    with threads.at_most(7):
        assert threads.threads() == 7


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_large_arrays_are_copied(number: int, dtype: str) -> None:
    for size in (0, 1, LARGE * 4 // np.dtype(dtype).itemsize + 99):
        source, around = np.arange(size).astype(dtype), np.full(size + 2, 77, dtype)
        with threads.at_most(number):
            threads.copy(source, around[1:-1])
        assert np.array_equal(around[1:-1], source)
        assert around[0] == around[-1] == 77


def test_what_several_threads_cannot_copy_is_copied_by_one() -> None:
    source = np.arange(4 * LARGE, dtype=np.float32)
    strided, converted = np.zeros(2 * LARGE, np.float32), np.zeros(4 * LARGE, np.float64)
    with threads.at_most(4):
        threads.copy(source[::2], strided)
        threads.copy(source, converted)
    assert np.array_equal(strided, source[::2])
    assert np.array_equal(converted, source)


def report(value: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from softnic.codecs import threads; print(threads.threads())"]
    environment = os.environ | {"SOFTNIC_THREADS": value}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_environment_says_how_many() -> None:
    assert [report(value).stdout.strip() for value in ("1", "3", "100")] == ["1", "3", "64"]
    assert report("").stdout.strip() == str(threads.threads())


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", " 2"])
def test_what_is_no_number_is_an_error_at_import(value: str) -> None:
    failed = report(value)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith(f"ValueError: SOFTNIC_THREADS: {value!r} is no number")
