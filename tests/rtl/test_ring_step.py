"""The engine of native/rtl/ring_step.sv: steps of the ring all-reduce, with the bits of the C's codec and additions."""

from __future__ import annotations

import platform

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from softnic.codecs.combine import ReduceOp, combine
from softnic.collectives import schedule
from tests.mpi.ranks import by_hand, gradient
from tests.rtl.b_engine import Beats, Engine, Packet, Ports, Run, beats_of
from tests.rtl.b_ring import PORTS as RING_PORTS
from tests.rtl.b_ring import Node, run_ring

Floats = npt.NDArray[np.float32]
DEPTH = 32
BITS = 7
NAME = f"bfp:{BITS}"
CODEC = codecs.get(NAME)
INVALID = 0xFFC00000 if platform.machine() == "x86_64" else 0x7FC00000
PORTS = Ports(
    inputs=("rx", "local"),
    outputs=("tx", "out"),
    settings=("receives", "adds", "sends", "stores", "magnitude_bits", "words"),
)
FIRST, MIDDLE, COMPLETE, PASS_ON, LAST = (0, 1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1), (1, 0, 1, 1), (1, 0, 0, 1)
"""The steps of ring_step.sv's table: receives, adds, sends, stores."""
STEPS = [FIRST, MIDDLE, COMPLETE, PASS_ON, LAST]
PARAMETERS = (f"-GDEPTH={DEPTH}", f"-GINVALID=32'h{INVALID:08x}")
CLOSED = 256
LATENCY = {FIRST: 13, MIDDLE: 26, COMPLETE: 26, PASS_ON: 19, LAST: 19}
BETWEEN_STEPS = 16


@pytest.fixture
def engine() -> Engine:
    return Engine("ring_step", PORTS, PARAMETERS)


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


def ring_of(nodes: int, counts: list[int], gradients: list[list[Floats]]) -> list[Node]:
    """Return the nodes of a ring with what they have to do for all-reduces of some words, one behind the other."""
    steps = [FIRST, *[MIDDLE] * (nodes - 2), COMPLETE, *[PASS_ON] * (nodes - 2), LAST]
    ring = []
    for rank in range(nodes):
        settings, local = [], []
        for count, gradient_of in zip(counts, gradients, strict=True):
            cuts = schedule.blocks("allreduce", "ring", count, nodes)
            for number, step in enumerate(steps):
                cut = cuts[(rank - number) % nodes]
                settings.append((*step, BITS, cut.stop - cut.start))
                if step[1]:
                    local.append(gradient_of[rank][cut].tobytes())
        ring.append(Node(Engine("b_ring_node", RING_PORTS, PARAMETERS), settings, local))
    return ring


def results_of(node: Node, rank: int, nodes: int, counts: list[int]) -> list[bytes]:
    """Return the words of each all-reduce, of the blocks that a node has stored: its successor's comes first."""
    stored = [packet.body for packet in node.stored]
    assert len(stored) == nodes * len(counts)
    of_each = [stored[nodes * i : nodes * (i + 1)] for i in range(len(counts))]
    return [b"".join(bodies[(rank + 1 - block) % nodes] for block in range(nodes)) for bodies in of_each]


@pytest.mark.parametrize("stall", [0, 100, 210])
@pytest.mark.parametrize("nodes", [2, 3, 4, 6])
def test_a_ring_of_engines_has_the_bits_of_softnic(nodes: int, stall: int) -> None:
    """As many engines as nodes, and links that pause: the all-reduces are those that tests/mpi compares MPI's with."""
    counts = [1280 * nodes, 1003, 5, 640]  # five words leave blocks empty
    gradients = [[gradient(rank, count) for rank in range(nodes)] for count in counts]
    ring = ring_of(nodes, counts, gradients)
    run_ring(ring, stall, seed=nodes + stall)
    wanted = [by_hand(nodes, count, NAME).tobytes() for count in counts]
    for rank, node in enumerate(ring):
        assert results_of(node, rank, nodes, counts) == wanted
        assert len(node.sent) == (2 * nodes - 2) * len(counts)
        assert not any(packet.is_error for packet in node.sent + node.stored)


def test_a_ring_has_all_infinities_and_nans() -> None:
    nodes, count = 4, 6400
    random = np.random.default_rng(7)
    gradients = [np.frombuffer(words_of(random, count), np.float32) for _ in range(nodes)]
    ring = ring_of(nodes, [count], [gradients])
    run_ring(ring, 50)
    wanted = []
    for index, cut in enumerate(schedule.blocks("allreduce", "ring", count, nodes)):
        words = gradients[index][cut]
        for hop in range(1, nodes):
            words = combine(ReduceOp.SUM, CODEC.roundtrip(words), gradients[(index + hop) % nodes][cut])
        wanted.append(CODEC.roundtrip(words).tobytes())
    assert np.isnan(np.frombuffer(b"".join(wanted), np.float32)).any()
    assert [results_of(node, rank, nodes, [count]) for rank, node in enumerate(ring)] == [[b"".join(wanted)]] * nodes


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
