"""The engine of native/rtl/ring_step.sv: steps of the ring all-reduce, with the bits of the C's codec and additions."""

from __future__ import annotations

import platform

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from softnic.codecs.combine import ReduceOp, combine
from tests.rtl.b_engine import Beats, Engine, Packet, Ports, Run, beats_of

Words = npt.NDArray[np.uint32]
DEPTH = 32
BITS = 7
CODEC = codecs.get(f"bfp:{BITS}")
INVALID = 0xFFC00000 if platform.machine() == "x86_64" else 0x7FC00000
PORTS = Ports(
    inputs=("rx", "local"),
    outputs=("tx", "out"),
    settings=("receives", "adds", "sends", "stores", "magnitude_bits", "words"),
)
FIRST, MIDDLE, COMPLETE, PASS_ON, LAST = (0, 1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1), (1, 0, 1, 1), (1, 0, 0, 1)
"""The steps of ring_step.sv's table: receives, adds, sends, stores."""
STEPS = [FIRST, MIDDLE, COMPLETE, PASS_ON, LAST]
CLOSED = 256
LATENCY = {FIRST: 13, MIDDLE: 26, COMPLETE: 26, PASS_ON: 19, LAST: 19}
BETWEEN_STEPS = 16


@pytest.fixture
def engine() -> Engine:
    return Engine("ring_step", PORTS, (f"-GDEPTH={DEPTH}", f"-GINVALID=32'h{INVALID:08x}"))


Step = tuple[int, int, int, int]


def run_steps(
    engine: Engine, step: Step, bodies: list[bytes], blocks: list[bytes], count: int, stall: int = 0
) -> tuple[Run, list[Packet], list[Packet]]:
    """Run as many steps of a kind as there are blocks, or bodies. Returns what was sent, and what was stored."""
    receives, adds, sends, stores = step
    inputs = [beats_of(bodies) if receives else beats_of([])[:0], beats_of(blocks) if adds else beats_of([])[:0]]
    stalls = [stall, stall, stall if sends else CLOSED, stall if stores else CLOSED]
    packets = len(bodies if receives else blocks)
    run = engine.run(inputs, [*step, BITS, count], packets, stalls, seed=count + stall)
    return run, run.outputs[0], run.outputs[1]


def expected(step: Step, body: bytes, block: bytes, count: int) -> tuple[bytes, bytes]:
    """Return the body that a step sends, and the words that it stores."""
    receives, adds = step[:2]
    local = np.frombuffer(block, np.float32)
    words = CODEC.decode(body, count) if receives else local
    if receives and adds:
        words = combine(ReduceOp.SUM, words, local)
    sent = CODEC.encode(words)
    return sent, CODEC.decode(sent, count).tobytes()


def words_of(random: np.random.Generator, count: int) -> bytes:
    values = random.normal(0, 1, count).astype(np.float32)
    values *= np.exp2(random.integers(-145, 120, -(-count // 16)).repeat(16)[:count]).astype(np.float32)
    words = values.view(np.uint32)
    words[random.random(count) < 0.002] = 0x7F800000
    words[random.random(count) < 0.002] = 0xFF800000
    words[random.random(count) < 0.002] = 0x7FA00001
    return words.tobytes()


@pytest.mark.parametrize("stall", [0, 100, 210])
@pytest.mark.parametrize("step", STEPS)
def test_steps_have_the_bits_of_the_c(engine: Engine, step: Step, stall: int) -> None:
    random = np.random.default_rng(stall)
    for count in (4003, 16, 1, 0, 640):
        blocks = [words_of(random, count) for _ in range(5)]
        bodies = [CODEC.encode(np.frombuffer(words_of(random, count), np.float32)) for _ in range(5)]
        _, sent, stored = run_steps(engine, step, bodies, blocks, count, stall)
        wanted = [expected(step, body, block, count) for body, block in zip(bodies, blocks, strict=True)]
        assert [packet.body for packet in sent] == [body for body, _ in wanted if step[2]]
        assert [packet.body for packet in stored] == [words for _, words in wanted if step[3]]
        assert not any(packet.is_error for packet in sent + stored)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_all_nodes_of_a_ring_end_with_the_same_bits(engine: Engine, nodes: int) -> None:
    """Each node has the engine in turn, step by step."""
    count = 320
    random = np.random.default_rng(nodes)
    gradients = [[random.normal(0, 1, count).astype(np.float32) for _ in range(nodes)] for _ in range(nodes)]
    bodies: list[bytes] = [b""] * nodes
    results: list[list[bytes]] = [[b""] * nodes for _ in range(nodes)]
    for number in range(2 * nodes - 1):
        step = FIRST if number == 0 else MIDDLE if number < nodes - 1 else COMPLETE if number == nodes - 1 else PASS_ON
        step = LAST if number == 2 * nodes - 2 else step
        sent_bodies = []
        for node in range(nodes):
            block = (node - number) % nodes
            local = gradients[node][block].tobytes()
            _, sent, stored = run_steps(engine, step, [bodies[node - 1]], [local], count)
            sent_bodies.append(sent[0].body if sent else b"")
            if stored:
                results[node][block] = stored[0].body
        bodies = sent_bodies
    assert all(result == results[0] for result in results)
    total = np.frombuffer(b"".join(results[0]), np.float32)
    exact = np.sum([np.concatenate(blocks) for blocks in gradients], axis=0)
    assert np.abs(total - exact).max() < 0.02 * nodes * np.abs(exact).max()
    for block in range(nodes):  # in the order of the ring, rounded by the codec at each hop
        words = gradients[block][block]
        for hop in range(1, nodes):
            words = combine(ReduceOp.SUM, CODEC.roundtrip(words), gradients[(block + hop) % nodes][block])
        assert results[0][block] == CODEC.roundtrip(words).tobytes()


@pytest.mark.parametrize("step", STEPS)
def test_one_beat_a_cycle(engine: Engine, step: Step) -> None:
    count = 16 * 1000
    random = np.random.default_rng(1)
    block = random.normal(0, 1, count).astype(np.float32)
    run, _, _ = run_steps(engine, step, [CODEC.encode(block)], [block.tobytes()], count)
    if step[3]:
        assert (np.diff(run.beats[1]["cycle"].astype(int)) == 1).all(), "the engine paused"
    assert run.cycles <= 1000 + LATENCY[step] + 3


@pytest.mark.parametrize("step", STEPS)
def test_latency_of_a_single_block(engine: Engine, step: Step) -> None:
    block = np.ones(16, np.float32)
    run, sent, stored = run_steps(engine, step, [CODEC.encode(block)], [block.tobytes()], 16)
    last = max(packet.last_cycle for packet in sent + stored)
    assert last - min(int(beats["cycle"][0]) for beats in run.inputs if beats.size) == LATENCY[step]


def test_cycles_between_steps(engine: Engine) -> None:
    block = np.ones(16 * 20, np.float32)
    run, _, _ = run_steps(engine, MIDDLE, [CODEC.encode(block)] * 10, [block.tobytes()] * 10, block.size)
    assert run.cycles <= 10 * (20 + BETWEEN_STEPS) + LATENCY[MIDDLE]


@pytest.mark.parametrize("step", [MIDDLE, COMPLETE])
@pytest.mark.parametrize("lengths", [(320, 319), (320, 160), (160, 320), (320, 0), (0, 320), (320, 2000), (16, 17)])
def test_a_block_of_another_length_is_an_error(engine: Engine, step: Step, lengths: tuple[int, int]) -> None:
    random = np.random.default_rng(2)
    count, local = lengths
    body = CODEC.encode(random.normal(0, 1, count).astype(np.float32))
    good = words_of(random, count)
    blocks = [random.normal(0, 1, local).astype(np.float32).tobytes(), good]
    for stall in (0, 128):
        _, sent, stored = run_steps(engine, step, [body, body], blocks, count, stall)
        wanted = expected(step, body, good, count)
        for packets, of_good in ((sent, wanted[0]), (stored, wanted[1]))[: 1 + step[3]]:
            assert [packet.is_error for packet in packets] == [True, False]
            assert packets[1].body == of_good


@pytest.mark.parametrize("step", [MIDDLE, COMPLETE, PASS_ON, LAST])
def test_malformed_bodies_are_errors(engine: Engine, step: Step) -> None:
    random = np.random.default_rng(3)
    count = 100
    body = CODEC.encode(random.normal(0, 1, count).astype(np.float32))
    block = words_of(random, count)
    wanted = expected(step, body, block, count)
    for size in [*range(0, len(body), 7), len(body) - 1, len(body) + 1, len(body) + 500]:
        bad = body[:size].ljust(size, b"\x01")
        _, sent, stored = run_steps(engine, step, [bad, body], [block, block], count, size % 2 * 128)
        assert sent or stored
        for packets, of_good in ((sent, wanted[0]), (stored, wanted[1])):
            if packets:
                assert [packet.is_error for packet in packets] == [True, False], size
                assert packets[1].body == of_good


def test_a_closed_output_holds_back_the_inputs(engine: Engine) -> None:
    """Buffers fill, and no beat is lost when the output opens again."""
    count = 16 * 400
    block = np.random.default_rng(4).normal(0, 1, count).astype(np.float32)
    inputs: list[Beats] = [beats_of([CODEC.encode(block)]), beats_of([block.tobytes()])]
    settings = [*COMPLETE, BITS, count]
    for closed in ((0, 0, 0, CLOSED), (0, 0, CLOSED, 0), (0, 0, CLOSED, CLOSED)):
        run = engine.run(inputs, settings, 1, closed, limit=3000)
        taken = int((run.inputs[1]["cycle"] > 0).sum())
        assert DEPTH < taken < 400, "the local block was not held back"
        engine.reset()
    _, sent, stored = run_steps(engine, COMPLETE, [CODEC.encode(block)], [block.tobytes()], count, 128)
    assert (sent[0].body, stored[0].body) == expected(COMPLETE, CODEC.encode(block), block.tobytes(), count)


def test_reset_amid_a_step(engine: Engine) -> None:
    count = 500
    block = words_of(np.random.default_rng(5), count)
    body = CODEC.encode(np.frombuffer(block, np.float32))
    inputs = [beats_of([body]), beats_of([block])]
    for limit in range(1, 90, 4):
        engine.run(inputs, [*COMPLETE, BITS, count], 1, (30, 30, 90, 90), seed=limit, limit=limit)
        engine.reset()
        _, sent, stored = run_steps(engine, COMPLETE, [body], [block], count)
        assert (sent[0].body, stored[0].body) == expected(COMPLETE, body, block, count)
