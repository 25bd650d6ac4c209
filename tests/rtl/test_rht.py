"""The engines of native/rtl/rht_*.sv: bodies and words of native/codecs/rht.c for rht:4, one beat a cycle, no hangs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from tests.rtl.b_engine import Beats, Engine, Packet, Ports, beats_of

Words = npt.NDArray[np.uint32]
CODEC = codecs.get("rht:4")
ENCODER_LATENCY = 72
"""From the first beat of a block of 128 words to the last beat of its body, if it ends the packet."""
LENGTHS = [
    1,
    7,
    8,
    9,
    15,
    16,
    17,
    23,
    24,
    31,
    32,
    0,
    48,
    64,
    100,
    127,
    128,
    129,
    135,
    136,
    255,
    0,
    0,
    256,
    700,
    1024,
    3,
]


@pytest.fixture
def encoder() -> Engine:
    return Engine("rht_encoder", Ports())


def encoded(words: Words) -> bytes:
    return CODEC.encode(words.view(np.float32))


def decoded(body: bytes, count: int) -> bytes:
    return CODEC.decode(body, count).tobytes()


def words_of(random: np.random.Generator, count: int) -> Words:
    """Return words of all kinds, by blocks of 128: Gaussian of any scale, denormals, zeros, huge ones, and any bits."""
    blocks = -(-count // 128)
    scale = np.exp2(random.uniform(-148, 110, blocks)).astype(np.float32)
    values = (random.normal(0, 1, (blocks, 128)).astype(np.float32) * scale[:, None]).astype(np.float32)
    words = values.view(np.uint32)
    kind = random.choice(8, blocks, p=[0.5, 0.1, 0.1, 0.08, 0.06, 0.06, 0.05, 0.05])
    words[kind == 1] &= 0x807FFFFF  # denormals
    words[kind == 2] = random.integers(0, 1 << 32, ((kind == 2).sum(), 128), np.uint32) & 0x8FFFFFFF
    words[kind == 3] &= 0x80000000  # zeros of both signs
    words[kind == 4] &= 0x8000000F
    words[kind == 5, 77] |= 0x78000000  # one huge word
    words[kind == 6] = random.integers(0, 1 << 32, ((kind == 6).sum(), 128), np.uint32)
    words[kind == 7, 1:] &= 0x80000000  # a single word
    # Around 2^-100, below which scales become zero.
    near = np.flatnonzero(kind == 0)[::5]
    values[near] = random.normal(0, 2.0**-101, (near.size, 128)).astype(np.float32)
    return words.reshape(-1)[:count].copy()


def regular(random: np.random.Generator, count: int) -> Words:
    return random.normal(0, 1e-3, count).astype(np.float32).view(np.uint32)


def test_bodies_are_those_of_the_c(encoder: Engine) -> None:
    for seed, count in ((1, 250_000), (2, 50_003), (3, 12_345)):
        words = words_of(np.random.default_rng(seed), count)
        (body,) = encoder.run([beats_of([words.tobytes()])]).outputs[0]
        assert body.body == encoded(words)
        assert not body.is_error


@pytest.mark.parametrize("stalls", [(0, 0), (128, 128), (220, 0), (0, 220)])
def test_bodies_do_not_depend_on_stalls(encoder: Engine, stalls: tuple[int, int]) -> None:
    random = np.random.default_rng(4)
    packets = [make(random, length) for length in LENGTHS * 3 for make in (words_of, regular)]
    run = encoder.run([beats_of([words.tobytes() for words in packets])], packets=len(packets), stalls=stalls)
    wanted = [encoded(words) for words in packets]
    assert [packet.body for packet in run.outputs[0]] == wanted
    assert not any(packet.is_error for packet in run.outputs[0])


def test_lengths(encoder: Engine) -> None:
    random = np.random.default_rng(5)
    packets = [words_of(random, length) for length in range(270)]
    run = encoder.run([beats_of([words.tobytes() for words in packets])], packets=len(packets))
    for words, packet in zip(packets, run.outputs[0], strict=True):
        assert packet.body == encoded(words), words.size
