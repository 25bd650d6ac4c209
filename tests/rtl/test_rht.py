"""The engines of native/rtl/rht_*.sv: bodies and words of native/codecs/rht.c for rht:4, one beat a cycle, no hangs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from tests.rtl.b_engine import Beats, Engine, Packet, Ports, beats_of

Words = npt.NDArray[np.uint32]
CODEC = codecs.get("rht:4")
ENCODER_LATENCY = 84
DECODER_LATENCY = 58
BETWEEN_PACKETS = 4
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


@pytest.fixture
def decoder() -> Engine:
    return Engine("rht_decoder", Ports(settings=("words",)))


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


def test_words_are_those_of_the_c(decoder: Engine) -> None:
    for seed, count in ((1, 250_000), (2, 50_003), (3, 12_345)):
        body = encoded(words_of(np.random.default_rng(seed), count))
        (back,) = decoder.run([beats_of([body])], [count]).outputs[0]
        assert back.body == decoded(body, count)
        assert not back.is_error


def test_lengths_of_the_decoder(decoder: Engine) -> None:
    random = np.random.default_rng(6)
    for count in range(270):
        bodies = [encoded(make(random, count)) for make in (words_of, regular)]
        run = decoder.run([beats_of(bodies)], [count], 2, (count % 100, 3 * count % 100), seed=count)
        assert [packet.body for packet in run.outputs[0]] == [decoded(body, count) for body in bodies], count
        assert not any(packet.is_error for packet in run.outputs[0])


@pytest.mark.parametrize("stalls", [(0, 0), (128, 128), (220, 0), (0, 220)])
def test_words_do_not_depend_on_stalls(decoder: Engine, stalls: tuple[int, int]) -> None:
    random = np.random.default_rng(4)
    for length in (16, 127, 700, 2048):
        bodies = [encoded(make(random, length)) for _ in range(4) for make in (words_of, regular)]
        run = decoder.run([beats_of(bodies)], [length], 8, stalls)
        assert [packet.body for packet in run.outputs[0]] == [decoded(body, length) for body in bodies]


def test_scales_that_no_encoder_writes(decoder: Engine) -> None:
    """Denormal ones, and those whose transforms overflow and give NaNs."""
    random = np.random.default_rng(7)
    blocks = random.integers(0, 256, (3000, 66), np.uint8)
    scales = random.integers(0, 0x7F80, 3000).astype(np.uint16)
    scales[:500] = random.integers(0, 0x0900, 500)
    scales[500:1000] = random.integers(0, 0x80, 500)
    scales[1000:1500] = random.integers(0x7B00, 0x7F80, 500)
    scales[scales == 0] = 1
    blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    blocks[1000:2000:2, 2:] &= 0x77  # of one sign
    body = blocks.tobytes()
    (back,) = decoder.run([beats_of([body])], [3000 * 128]).outputs[0]
    assert back.body == decoded(body, 3000 * 128)


def test_one_beat_a_cycle(encoder: Engine, decoder: Engine) -> None:
    words = regular(np.random.default_rng(8), 128 * 400)
    run = encoder.run([beats_of([words.tobytes()])])
    accepted = run.inputs[0]["cycle"].astype(int)
    assert (np.diff(accepted) == 1).all(), "the encoder paused"
    assert run.outputs[0][0].last_cycle - accepted[-8] <= ENCODER_LATENCY + 1
    run = decoder.run([beats_of([encoded(words)])], [words.size])
    assert (np.diff(run.beats[0]["cycle"].astype(int)) == 1).all(), "the decoder paused"


def test_latency_of_a_single_block(encoder: Engine, decoder: Engine) -> None:
    words = regular(np.random.default_rng(9), 128)
    run = encoder.run([beats_of([words.tobytes()])])
    assert run.outputs[0][0].last_cycle - int(run.inputs[0]["cycle"][0]) == ENCODER_LATENCY
    run = decoder.run([beats_of([encoded(words)])], [128])
    assert run.outputs[0][0].first_cycle - int(run.inputs[0]["cycle"][0]) == DECODER_LATENCY


def test_cycles_of_packets_back_to_back(encoder: Engine, decoder: Engine) -> None:
    words = [regular(np.random.default_rng(i), 384) for i in range(50)]
    run = encoder.run([beats_of([each.tobytes() for each in words])], packets=50)
    assert run.cycles <= 50 * (24 + 1) + ENCODER_LATENCY + 10
    run = decoder.run([beats_of([encoded(each) for each in words])], [384], 50)
    assert run.cycles <= 50 * (24 + BETWEEN_PACKETS) + DECODER_LATENCY + 10


def test_blocks_with_huge_words_cost_two_cycles_more_at_most(encoder: Engine, decoder: Engine) -> None:
    words = np.full(128 * 100, 0x7FC01234, np.uint32)
    run = encoder.run([beats_of([words.tobytes()])])
    assert run.cycles <= 100 * 8 + 100 + ENCODER_LATENCY + 10
    run = decoder.run([beats_of([encoded(words)])], [words.size])
    assert run.cycles <= 100 * 10 + DECODER_LATENCY + 10


def then_a_good_one(decoder: Engine, bad: Beats, count: int, stalls: tuple[int, int] = (0, 0)) -> Packet:
    """Return what a malformed body becomes, and check that the body behind it is decoded as if alone."""
    body = encoded(regular(np.random.default_rng(3), count))
    run = decoder.run([np.concatenate([bad, beats_of([body])])], [count], 2, stalls, seed=len(bad))
    first, second = run.outputs[0]
    assert (second.body, second.is_error) == (decoded(body, count), False)
    return first


@pytest.mark.parametrize("stalls", [(0, 0), (150, 150)])
def test_bodies_that_end_early_or_late_are_errors(decoder: Engine, stalls: tuple[int, int]) -> None:
    random = np.random.default_rng(2)
    count = 128 * 3 + 64 + 16 + 8 + 3
    words = regular(random, count)
    words[200] = 0x7F800000
    words[256:384] = 0
    body = encoded(words)
    assert not then_a_good_one(decoder, beats_of([body]), count, stalls).is_error
    for size in range(len(body)):
        assert then_a_good_one(decoder, beats_of([body[:size]]), count, stalls).is_error, size
    for more in (1, 2, 17, 40, 63, 64, 65, 200, 1000):
        for length in (count, 128, 64, 16, 8, 3, 0):
            body = encoded(regular(random, length))
            assert then_a_good_one(decoder, beats_of([body + bytes(more)]), length, stalls).is_error, (length, more)


@pytest.mark.parametrize("scale", [0x7F80, 0x8000, 0x9D80, 0xFFFE])
def test_malformed_scales_are_errors(decoder: Engine, scale: int) -> None:
    for count, place in ((128, 0), (256, 66), (24, 10)):
        body = bytearray(encoded(regular(np.random.default_rng(1), count)))
        body[place : place + 2] = scale.to_bytes(2, "little")
        assert then_a_good_one(decoder, beats_of([bytes(body)]), count).is_error
        assert then_a_good_one(decoder, beats_of([bytes(body) + bytes(500)]), count, (99, 99)).is_error


def test_a_tkeep_with_gaps_is_an_error(encoder: Engine, decoder: Engine) -> None:
    words = regular(np.random.default_rng(6), 160)
    good = beats_of([words.tobytes()])
    for place, keep in ((9, 0x0FFFFFFFFFFFFFF1), (4, 0xFFFFFFFF), (3, 0x0), (9, 0xF0F), (9, 0x3)):
        beats = good.copy()
        beats["keep"][place] = keep
        first, second = encoder.run([np.concatenate([beats, good])], packets=2).outputs[0]
        assert first.is_error
        assert (second.body, second.is_error) == (encoded(words), False)
    bad = beats_of([encoded(words)])
    bad["keep"][0] ^= 1 << 40
    assert then_a_good_one(decoder, bad, 160).is_error


def test_random_bytes_end(decoder: Engine) -> None:
    random = np.random.default_rng(8)
    for seed in range(300):
        body = random.bytes(int(random.integers(0, 1200)))
        then_a_good_one(decoder, beats_of([body]), int(random.integers(0, 400)), (seed % 200, seed % 130))


def test_reset_amid_a_packet(encoder: Engine, decoder: Engine) -> None:
    words = words_of(np.random.default_rng(4), 500)
    body = encoded(words)
    for limit in range(1, 120, 3):
        encoder.run([beats_of([words.tobytes()])], stalls=(20, 60), limit=limit)
        encoder.reset()
        assert encoder.run([beats_of([words.tobytes()])]).outputs[0][0].body == body
        decoder.run([beats_of([body])], [500], stalls=(20, 60), limit=limit)
        decoder.reset()
        assert decoder.run([beats_of([body])], [500]).outputs[0][0].body == decoded(body, 500)
