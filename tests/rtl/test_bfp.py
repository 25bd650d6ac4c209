"""The engines of native/rtl/bfp_*.sv: bodies and words of native/codecs/bfp.c, one block a cycle, no hangs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from tests.rtl.b_engine import Beats, Engine, Packet, Ports, beats_of

Words = npt.NDArray[np.uint32]
ENCODER_LATENCY = 8
DECODER_LATENCY = 6
BETWEEN_PACKETS = 3
BITS = range(3, 16)
LENGTHS = [1, 15, 16, 17, 0, 160, 33, 5, 16, 16, 700, 31, 1024, 64, 0, 0, 3]


@pytest.fixture
def encoder() -> Engine:
    return Engine("bfp_encoder", Ports(settings=("magnitude_bits",)))


@pytest.fixture
def decoder() -> Engine:
    return Engine("bfp_decoder", Ports(settings=("magnitude_bits", "words")))


def encoded(bits: int, words: Words) -> bytes:
    return codecs.get(f"bfp:{bits}").encode(words.view(np.float32))


def decoded(bits: int, body: bytes, count: int) -> bytes:
    return codecs.get(f"bfp:{bits}").decode(body, count).tobytes()


def words_of(random: np.random.Generator, count: int) -> Words:
    """Return words of all kinds: blocks of one scale, of any bits, of denormals, of zeros, with infinities and NaNs."""
    base = random.integers(0, 255, -(-count // 16)).repeat(16)[:count]
    exponent = np.clip(base - random.integers(0, 20, count), 0, 254)
    scale = (exponent << 23 | random.integers(0, 1 << 23, count)).astype(np.uint32)
    ties = scale & ~np.uint32(0x3FFF)
    kinds = [scale, ties, random.integers(0, 1 << 32, count, np.uint32), scale & 0x7FFFFF, scale & 0x1F, scale * 0]
    kind = random.choice(len(kinds), -(-count // 16), p=[0.4, 0.3, 0.1, 0.08, 0.06, 0.06]).repeat(16)[:count]
    words = np.choose(kind, kinds).astype(np.uint32)
    largest = random.random(count) < 0.02
    words[largest] |= 0x007FFFFF  # what rounds up beyond the largest magnitude
    return words ^ (random.integers(0, 2, count, np.uint32) << np.uint32(31))


@pytest.mark.parametrize("bits", BITS)
def test_bodies_and_words_are_those_of_the_c(encoder: Engine, decoder: Engine, bits: int) -> None:
    words = words_of(np.random.default_rng(bits), 100_003)
    (body,) = encoder.run([beats_of([words.tobytes()])], [bits]).outputs[0]
    wanted = encoded(bits, words)
    assert body.body == wanted
    (back,) = decoder.run([beats_of([wanted])], [bits, words.size]).outputs[0]
    assert back.body == decoded(bits, wanted, words.size)
    assert not body.is_error
    assert not back.is_error


@pytest.mark.parametrize("bits", [3, 7, 15])
def test_codes_that_no_encoder_writes(decoder: Engine, bits: int) -> None:
    """Exponents larger than needed, and signs of zeros."""
    random = np.random.default_rng(bits)
    blocks = random.integers(0, 256, (4000, 1 + 2 * (bits + 1)), np.uint8)
    blocks[:, 0] = random.integers(1, 255, 4000)
    blocks[:500, 0] = random.integers(1, 24, 500)
    blocks[::7, 1:] &= random.integers(0, 256, blocks[::7, 1:].shape, np.uint8) & 0x11
    body = blocks.tobytes()
    (back,) = decoder.run([beats_of([body])], [bits, 64_000]).outputs[0]
    assert back.body == decoded(bits, body, 64_000)


@pytest.mark.parametrize("stalls", [(0, 0), (128, 128), (220, 0), (0, 220)])
@pytest.mark.parametrize("bits", [4, 7, 15])
def test_packets_do_not_depend_on_stalls(encoder: Engine, decoder: Engine, bits: int, stalls: tuple[int, int]) -> None:
    random = np.random.default_rng(bits)
    packets = [words_of(random, length) for length in LENGTHS]
    bodies = [encoded(bits, words) for words in packets]
    run = encoder.run([beats_of([words.tobytes() for words in packets])], [bits], len(packets), stalls)
    assert [packet.body for packet in run.outputs[0]] == bodies
    assert not any(packet.is_error for packet in run.outputs[0])
    for length in (16, 160, 700):  # `words` is constant in a run
        packets = [words_of(random, length) for _ in range(6)]
        bodies = [encoded(bits, words) for words in packets]
        run = decoder.run([beats_of(bodies)], [bits, length], 6, stalls)
        wanted = [decoded(bits, body, length) for body in bodies]
        assert [packet.body for packet in run.outputs[0]] == wanted
        assert not any(packet.is_error for packet in run.outputs[0])


def regular(random: np.random.Generator, count: int) -> Words:
    """Return words of ordinary gradients: no block is irregular."""
    return random.normal(0, 1e-3, count).astype(np.float32).view(np.uint32)


@pytest.mark.parametrize("bits", BITS)
def test_one_block_a_cycle(encoder: Engine, decoder: Engine, bits: int) -> None:
    words = regular(np.random.default_rng(bits), 16 * 2000)
    run = encoder.run([beats_of([words.tobytes()])], [bits])
    accepted = run.inputs[0]["cycle"].astype(int)
    assert (np.diff(accepted) == 1).all(), "the encoder paused"
    assert run.outputs[0][0].last_cycle - accepted[-1] <= ENCODER_LATENCY + 1

    run = decoder.run([beats_of([encoded(bits, words)])], [bits, words.size])
    assert (np.diff(run.beats[0]["cycle"].astype(int)) == 1).all(), "the decoder paused"
    assert int(run.beats[0]["cycle"][0]) - int(run.inputs[0]["cycle"][0]) == DECODER_LATENCY


def test_latency_of_a_single_block(encoder: Engine, decoder: Engine) -> None:
    words = regular(np.random.default_rng(1), 16)
    run = encoder.run([beats_of([words.tobytes()])], [7])
    assert int(run.beats[0]["cycle"][0]) - int(run.inputs[0]["cycle"][0]) == ENCODER_LATENCY
    run = decoder.run([beats_of([encoded(7, words)])], [7, 16])
    assert int(run.beats[0]["cycle"][0]) - int(run.inputs[0]["cycle"][0]) == DECODER_LATENCY


def test_cycles_of_packets_back_to_back(encoder: Engine, decoder: Engine) -> None:
    """A packet costs the encoder one cycle more than its beats, the decoder two pauses."""
    words = [regular(np.random.default_rng(i), 368) for i in range(50)]  # of an MTU of 1500 bytes
    run = encoder.run([beats_of([each.tobytes() for each in words])], [7], 50)
    assert run.cycles <= 50 * (23 + 1) + ENCODER_LATENCY + 1
    run = decoder.run([beats_of([encoded(7, each) for each in words])], [7, 368], 50)
    assert run.cycles <= 50 * (23 + BETWEEN_PACKETS) + DECODER_LATENCY + 1


def test_irregular_blocks_cost_one_cycle_in_64(encoder: Engine, decoder: Engine) -> None:
    words = np.full(16 * 640, 0x7FC01234, np.uint32)
    run = encoder.run([beats_of([words.tobytes()])], [7])
    assert run.cycles <= 640 + 10 + ENCODER_LATENCY + 2
    assert run.outputs[0][0].body == encoded(7, words)
    run = decoder.run([beats_of([encoded(7, words)])], [7, words.size])
    assert run.cycles <= 640 + 10 + DECODER_LATENCY + 2
    assert run.outputs[0][0].body == words.tobytes()


def then_a_good_one(decoder: Engine, bad: Beats, count: int, stalls: tuple[int, int] = (0, 0)) -> Packet:
    """Return what a malformed body becomes, and check that the body behind it is decoded as if alone."""
    words = regular(np.random.default_rng(3), count)
    body = encoded(7, words)
    run = decoder.run([np.concatenate([bad, beats_of([body])])], [7, count], 2, stalls, seed=len(bad))
    first, second = run.outputs[0]
    assert (second.body, second.is_error) == (decoded(7, body, count), False)
    return first


@pytest.mark.parametrize("stalls", [(0, 0), (150, 150)])
def test_bodies_that_end_early_or_late_are_errors(decoder: Engine, stalls: tuple[int, int]) -> None:
    count = 100
    body = encoded(7, words_of(np.random.default_rng(2), count))
    for size in range(len(body)):
        assert then_a_good_one(decoder, beats_of([body[:size]]), count, stalls).is_error, size
    for more in (1, 2, 17, 40, 63, 64, 65, 200, 1000):
        assert then_a_good_one(decoder, beats_of([body + bytes(more)]), count, stalls).is_error, more
    assert not then_a_good_one(decoder, beats_of([body]), count, stalls).is_error


def test_padding_that_is_not_zero_is_an_error(decoder: Engine) -> None:
    for word in (0x3F800000, 0x7F800000):  # of codes, of words as they are
        words = np.full(16, word, np.uint32)
        whole = encoded(7, words)
        for count in (1, 8, 15):
            assert then_a_good_one(decoder, beats_of([whole]), count).is_error
            assert not then_a_good_one(decoder, beats_of([encoded(7, words[:count])]), count).is_error
    negative_zero = bytes([127, *bytes(14), 0x00, 0x80])  # the sign of the last code alone
    assert then_a_good_one(decoder, beats_of([negative_zero]), 15).is_error
    assert not then_a_good_one(decoder, beats_of([negative_zero]), 16).is_error


def test_a_tkeep_with_gaps_is_an_error(encoder: Engine, decoder: Engine) -> None:
    words = regular(np.random.default_rng(6), 160)
    for place, keep in ((9, 0x0FFFFFFFFFFFFFF1), (9, 0x0), (4, 0xFFFFFFFF), (3, 0x0), (9, 0xF0F), (9, 0x3)):
        beats = beats_of([words.tobytes()])
        beats["keep"][place] = keep
        good = beats_of([words.tobytes()])
        first, second = encoder.run([np.concatenate([beats, good])], [7], 2).outputs[0]
        assert first.is_error == (keep != 0 or place != 9)  # a last beat may be null
        assert (second.body, second.is_error) == (encoded(7, words), False)
    bad = beats_of([encoded(7, words)])
    bad["keep"][0] ^= 1 << 40
    assert then_a_good_one(decoder, bad, 160).is_error


def test_random_bytes_end(decoder: Engine) -> None:
    random = np.random.default_rng(8)
    for seed in range(300):
        body = random.bytes(int(random.integers(0, 400)))
        then_a_good_one(decoder, beats_of([body]), int(random.integers(0, 120)), (seed % 200, seed % 130))


def test_reset_amid_a_packet(encoder: Engine, decoder: Engine) -> None:
    words = words_of(np.random.default_rng(4), 500)
    body = encoded(7, words)
    for limit in range(1, 30):
        encoder.run([beats_of([words.tobytes()])], [7], stalls=(20, 120), limit=limit)
        encoder.reset()
        assert encoder.run([beats_of([words.tobytes()])], [7]).outputs[0][0].body == body
        decoder.run([beats_of([body])], [7, 500], stalls=(20, 120), limit=limit)
        decoder.reset()
        assert decoder.run([beats_of([body])], [7, 500]).outputs[0][0].body == decoded(7, body, 500)
