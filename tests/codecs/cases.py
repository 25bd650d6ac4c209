"""Words worth trying, and the ways into the library that the tests of this directory share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.codecs import Codec

Words = npt.NDArray[np.uint32]

NAMES = ("inceptionn", "bounded")
PARAMETERS = range(1, 24)
VECTORS = Path(__file__).parent.parent / "vectors"


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
    """Words of all vector sizes in changing shares, with silent stretches and specials among them."""
    scale = 2.0 ** rng.integers(-24, 4, size=count // 16 + 1)
    values = rng.standard_normal(count) * np.repeat(scale, 16)[:count]
    words = values.astype(np.float32).view(np.uint32)
    specials = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 1, 0x3F800000], np.uint32)
    chosen = rng.random(count) < 0.02
    words[chosen] = rng.choice(specials, int(chosen.sum()))
    return words


def encode_prefix(codec: Codec, words: Words, first: int, capacity: int) -> tuple[bytes, int]:
    """sn_encode with exactly this much room. Returns the bytes and the words they hold; checks what lies behind."""
    guard = 64
    out = np.full(capacity + guard, 0xA5, np.uint8)
    consumed = ffi.new("size_t *")
    used = lib.sn_encode(
        codec.number,
        codec.parameter,
        ffi.from_buffer("uint8_t[]", words),
        words.size,
        first,
        ffi.from_buffer("uint8_t[]", out),
        capacity,
        consumed,
    )
    assert used <= capacity
    assert (out[capacity:] == 0xA5).all(), "written behind the capacity"
    return out[:used].tobytes(), int(consumed[0])
