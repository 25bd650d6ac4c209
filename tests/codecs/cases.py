"""Words worth trying, and the ways into the library that the tests of this directory share."""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.codecs import Codec

Words = npt.NDArray[np.uint32]

RANGES: dict[str, Sequence[int | str]] = {
    "inceptionn": range(1, 24),
    "bounded": range(1, 24),
    "bfp": range(3, 16),
    "truncate": range(8, 33),
    "rht": range(3, 7),
    "exact": range(16, 33, 16),
    "mx": ("e4m3", "e5m2", "e2m3", "e2m1"),
}
"""Parameters, as FORMAT.md has them, by codec."""
NAMES = tuple(RANGES)
EVERY = tuple(f"{name}:{parameter}" for name in NAMES for parameter in RANGES[name])
BLOCKS = {"bfp": 16, "rht": 128, "exact": 128, "mx": 32}
"""Words of the blocks of codecs that have them. Other codecs' ranges are cut at multiples of 16."""
BURSTS = ("inceptionn", "bounded")
"""Codecs whose vectors have tags."""
VECTORS = Path(__file__).parent.parent / "vectors"


def typical(name: str) -> str:
    """The codec of this name with a parameter in the middle of its range."""
    return f"{name}:{10 if 10 in RANGES[name] else RANGES[name][1]}"


def cut_words(codec: Codec) -> int:
    """Words between two places where a range may be cut."""
    return max(16, BLOCKS.get(codec.name, 0))


def golden(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text())
    return cases


def words_of(hexadecimal: list[str]) -> Words:
    return np.array([int(text, 16) for text in hexadecimal], np.uint32)


def boundary_words() -> Words:
    """Every exponent, both signs, with mantissas around each bit: where ties, cuts and carries are."""
    mantissas = {0, 0x7FFFFF, 0x2AAAAA, 0x555555}
    for bit in range(23):
        mantissas |= {1 << bit, (1 << bit) - 1, 3 << bit & 0x7FFFFF, 0x7FFFFF & ~((1 << bit) - 1)}
    for bit in (7, 8, 15, 16, 21, 22):
        mantissas |= {(1 << bit) + 1, (3 << bit & 0x7FFFFF) - 1, (3 << bit & 0x7FFFFF) + 1}
    low = np.array(sorted(mantissas), np.uint32)
    exponents = np.arange(256, dtype=np.uint32) << np.uint32(23)
    signs = np.array([0, 1 << 31], np.uint32)
    return (signs[:, None, None] | exponents[:, None] | low).reshape(-1)


def mixed_words(rng: np.random.Generator, count: int) -> Words:
    """Words of all vector sizes in changing shares, with runs of zeros and specials among them."""
    scale = 2.0 ** rng.integers(-24, 4, size=count // 16 + 1)
    values = rng.standard_normal(count) * np.repeat(scale, 16)[:count]
    words = values.astype(np.float32).view(np.uint32)
    specials = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 1, 0x3F800000], np.uint32)
    chosen = rng.random(count) < 0.02
    words[chosen] = rng.choice(specials, int(chosen.sum()))
    return words


def threshold_words() -> Words:
    """Every word within 200 of a power of two's, and of what rounds up to one, from silence to 32 bits."""
    exponents = np.arange(127 - 24, 127 + 16, dtype=np.uint32) << np.uint32(23)
    near = np.arange(-200, 201, dtype=np.int64).astype(np.uint32)
    halves = np.array([0, 0x400000, 0x7F8000, 0x7F0000, 0x7FFE00, 0x7FFF00], np.uint32)
    return (exponents[:, None, None] + halves[:, None] + near).reshape(-1)


def gradients(rng: np.random.Generator, count: int) -> Words:
    """Inputs with fast paths: long runs of zeros, whole groups of them, nonzero blocks between."""
    words = mixed_words(rng, count)
    for _ in range(int(rng.integers(0, 4))):
        start = int(rng.integers(0, count))
        words[start : start + int(rng.integers(1, 400))] &= np.uint32(0x80000000)
    if rng.random() < 0.3:
        words[rng.random(count) < 0.9] = 0
    return words


def damaged_body(rng: np.random.Generator, codec: Codec) -> tuple[bytes, int]:
    """A body of several groups with bytes changed, cut off or added, and the words that it is said to hold."""
    count = int(rng.integers(1, 500))
    body = bytearray(codec.encode(gradients(rng, count).view(np.float32)))
    for _ in range(int(rng.integers(0, 4))):
        body[int(rng.integers(0, len(body)))] = int(rng.choice([0, 0xFF, int(rng.integers(0, 256))]))
    if rng.random() < 0.3:
        del body[int(rng.integers(0, len(body))) :]
    elif rng.random() < 0.2:
        body += bytes(int(rng.integers(1, 80)))
    return bytes(body), count


def anything(rng: np.random.Generator, count: int) -> Words:
    return rng.integers(0, 1 << 32, count, dtype=np.uint32)


def block_words(rng: np.random.Generator, count: int) -> Words:
    """Blocks of 16 words whose exponents lie just below a common one, anywhere in the range, with few mantissa bits:
    what block floating point keeps, halves and drops. Some are silent, some hold specials."""
    blocks = count // 16 + 1
    shared = rng.integers(0, 256, (blocks, 1))
    below = np.minimum(rng.geometric(0.2, (blocks, 16)) - 1, rng.integers(0, 30, (blocks, 1)))
    mantissa = rng.integers(0, 1 << 23, (blocks, 16)) & -(1 << rng.integers(0, 23, (blocks, 1)))
    mantissa |= (rng.random((blocks, 16)) < 0.2) * 0x7FFFFF
    words = rng.integers(0, 2, (blocks, 16)) << 31 | np.maximum(shared - below, 0) << 23 | mantissa
    words[rng.random(blocks) < 0.1] &= 1 << 31
    return words.astype(np.uint32).reshape(-1)[:count]


class Fence:
    """Memory that ends at a page nobody may touch: one byte too far ends the test run, sanitizer or not."""

    def __init__(self, size: int = 16 * mmap.PAGESIZE) -> None:
        self._memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._size = size
        self._end = ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) + size
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert protect(self._end, mmap.PAGESIZE, 0) == 0, ctypes.get_errno()

    def place(self, data: bytes | Words) -> Any:
        """A `uint8_t *` to a copy of the data that ends at the fence."""
        view = memoryview(data).cast("B") if isinstance(data, bytes) else data.view(np.uint8).data
        assert view.nbytes <= self._size
        pointer = ffi.cast("uint8_t *", self._end - view.nbytes)
        ffi.memmove(pointer, view, view.nbytes)
        return pointer


_INPUT, _OUTPUT = Fence(), Fence()


def encode_prefix(codec: Codec, words: Words, first: int, capacity: int) -> tuple[bytes, int]:
    """sn_encode with exactly this much room, between fences. Returns the bytes and the words they hold."""
    out = _OUTPUT.place(bytes(capacity))
    consumed = ffi.new("size_t *")
    given = _INPUT.place(words) if words.nbytes <= 1 << 16 else ffi.from_buffer("uint8_t[]", words)
    used = lib.sn_encode(codec.number, codec.parameter, given, words.size, first, out, capacity, consumed)
    assert used <= capacity
    return ffi.buffer(out, used)[:], int(consumed[0])


def decode(codec: Codec, body: bytes, count: int) -> Words | None:
    """sn_decode of exactly these bytes, between fences: the words, or None where they are refused."""
    words = _OUTPUT.place(bytes(4 * count))
    if lib.sn_decode(codec.number, codec.parameter, _INPUT.place(body), len(body), words, count):
        return None
    return np.frombuffer(ffi.buffer(words, 4 * count)[:], np.uint32)


def count_tags(codec: Codec, body: bytes, count: int) -> list[int] | None:
    """sn_tag_counts of exactly these bytes, behind a fence."""
    counts = ffi.new("uint64_t[4]")
    if lib.sn_tag_counts(codec.number, codec.parameter, _INPUT.place(body), len(body), count, counts):
        return None
    return list(counts)
