"""The adders of native/rtl/float_add*.sv: bit for bit the C's sums of float32, one pair of beats a cycle."""

from __future__ import annotations

import platform

import numpy as np
import numpy.typing as npt
import pytest

from softnic.codecs.combine import ReduceOp, combine
from tests.rtl.b_engine import Engine, Packet, Ports, Run, beats_of

Words = npt.NDArray[np.uint32]
LATENCY = 7
PORTS = Ports(inputs=("a", "b"))
INVALID = 0xFFC00000 if platform.machine() == "x86_64" else 0x7FC00000
EDGES = (
    0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x33800000, 0x33800001, 0x34000000, 0x3F800000, 0x3F800001,
    0x40490FDB, 0x4B000000, 0x4B7FFFFF, 0x73000000, 0x73000001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001,
    0x7FA00000, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF,
)  # fmt: skip


@pytest.fixture
def engine() -> Engine:
    return Engine("float_add_lanes", PORTS, (f"-GINVALID=32'h{INVALID:08x}",))


def expected(a: Words, b: Words) -> Words:
    return combine(ReduceOp.SUM, a.view(np.float32), b.view(np.float32)).view(np.uint32)


def packet_of(run: Run) -> Packet:
    (packet,) = run.outputs[0]
    return packet


def check_sums(engine: Engine, a: Words, b: Words) -> None:
    packet = packet_of(engine.run([beats_of([a.tobytes()]), beats_of([b.tobytes()])]))
    got, wanted = np.frombuffer(packet.body, np.uint32), expected(a, b)
    wrong = np.flatnonzero(got != wanted)
    assert wrong.size == 0, [f"{a[i]:08x} + {b[i]:08x} = {wanted[i]:08x}, not {got[i]:08x}" for i in wrong[:5]]
    assert not packet.is_error


def close_words(random: np.random.Generator, count: int) -> tuple[Words, Words]:
    """Return operands whose exponents are so close that sums round, tie and cancel."""
    exponent = random.integers(0, 256, count)
    other = np.clip(exponent + random.integers(-27, 28, count), 0, 255)
    words = []
    for field in (exponent, other):
        # Mantissas of few ones make ties.
        mantissa = random.integers(0, 1 << 23, count) & random.choice([0x7FFFFF, 0x400000, 0x7FF000, 1, 0], count)
        words.append((field << 23 | mantissa | random.integers(0, 2, count) << 31).astype(np.uint32))
    return words[0], words[1]


def test_sums_of_edges(engine: Engine) -> None:
    signed = np.array([*EDGES, *(word | 1 << 31 for word in EDGES)], np.uint32)
    check_sums(engine, np.repeat(signed, signed.size), np.tile(signed, signed.size))


@pytest.mark.parametrize("seed", range(2))
def test_sums_of_a_million_words(engine: Engine, seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = (random.integers(0, 1 << 32, 1 << 18, np.uint32) for _ in range(2))
    check_sums(engine, a, b)
    check_sums(engine, *close_words(random, 1 << 20))
    denormal = random.integers(0, 1 << 25, 1 << 16, np.uint32) | random.integers(0, 2, 1 << 16, np.uint32) << 31
    check_sums(engine, denormal, np.roll(denormal, 1))
    check_sums(engine, a, a ^ (random.integers(0, 4, a.size, np.uint32) | 1 << 31))


def test_one_pair_of_beats_a_cycle(engine: Engine) -> None:
    body = bytes(64 * 1000)
    run = engine.run([beats_of([body]), beats_of([body])])
    cycles = run.beats[0]["cycle"].astype(int)
    assert (np.diff(cycles) == 1).all()
    assert cycles[0] - int(run.inputs[0]["cycle"][0]) == LATENCY


@pytest.mark.parametrize("stalls", [(128, 128, 128), (200, 0, 0), (0, 200, 30), (0, 0, 220)])
def test_sums_do_not_depend_on_stalls(engine: Engine, stalls: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    sizes = [1, 15, 16, 17, 0, 160, 33, 5, 16, 16, 700]
    a, b = ([random.integers(0, 1 << 32, size, np.uint32) for size in sizes] for _ in range(2))
    run = engine.run([beats_of([x.tobytes() for x in side]) for side in (a, b)], packets=len(sizes), stalls=stalls)
    assert [packet.body for packet in run.outputs[0]] == [expected(x, y).tobytes() for x, y in zip(a, b, strict=True)]
    assert not any(packet.is_error for packet in run.outputs[0])


@pytest.mark.parametrize(("left", "right"), [(160, 64), (64, 160), (16, 15), (0, 16), (17, 0)])
def test_packets_of_different_lengths_are_an_error_and_the_next_ones_are_not(
    engine: Engine, left: int, right: int
) -> None:
    random = np.random.default_rng(7)
    a, b = ([random.integers(0, 1 << 30, size, np.uint32) for size in (side, 40)] for side in (left, right))
    run = engine.run(
        [beats_of([x.tobytes() for x in side]) for side in (a, b)], packets=2, stalls=(90, 90, 90), seed=left + 1
    )
    bad, good = run.outputs[0]
    assert bad.is_error
    assert not good.is_error
    assert good.body == expected(a[1], b[1]).tobytes()


def test_reset_amid_a_packet(engine: Engine) -> None:
    random = np.random.default_rng(9)
    a, b = (random.integers(0, 1 << 30, 64, np.uint32) for _ in range(2))
    for limit in range(1, 14):
        engine.run([beats_of([x.tobytes()]) for x in (a, b)], stalls=(20, 20, 90), seed=limit, limit=limit)
        engine.reset()
        check_sums(engine, a, b)
