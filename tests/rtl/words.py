"""Words for packets, and their encoded bodies by the C."""

from __future__ import annotations

import random

import numpy as np

from softnic import codecs
from softnic.codecs.kernels import simd_select
from tests.codecs.cases import Words, anything, boundary_words, gradients

simd_select("scalar")
EDGES = np.random.default_rng(3).permutation(boundary_words())


def some_words(chance: random.Random, count: int) -> Words:
    """Words of one of several kinds: gradients with silent runs, any bits, exponents' edges, zeros."""
    rng = np.random.default_rng(chance.randrange(1 << 32))
    kind = chance.choice(("gradients", "gradients", "anything", "edges", "zeros", "large"))
    if kind == "gradients":
        return gradients(rng, count)
    if kind == "edges":
        start = int(rng.integers(0, EDGES.size - count))
        return EDGES[start : start + count]
    if kind == "zeros":
        return np.zeros(count, np.uint32)
    return anything(rng, count) | np.uint32(0x40000000 if kind == "large" else 0)


def encoded(codec: str, k: int, words: Words) -> bytes:
    return codecs.get(f"{codec}:{k}").encode(words.view(np.float32))


def decoded(codec: str, k: int, body: bytes, count: int) -> bytes:
    return codecs.get(f"{codec}:{k}").decode(body, count).tobytes()
