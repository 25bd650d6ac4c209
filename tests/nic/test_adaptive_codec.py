"""codec = "auto": its decisions under a virtual clock with codecs of given speeds; they never change the data."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from softnic import codecs
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryLink, MemoryNetwork
from softnic.nic.adaptive_codec import HOLD_S, AdaptiveCodec, FixedSpeed, Stopwatch
from softnic.nic.counters import NicCounters
from softnic.nic.flows import NicFlow
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.clock import Actor, VirtualClock

from .harness import IP_A, IP_B, TOS, Pair, decode_payload, floats, roundtrip, take_apart
from .nodes import Transfer, TxPart, expected, introduced, transfer, two_nodes

AUTO = "auto:bounded:10"
SUPER = 256 << 10

# The decision alone: a pipeline on paper.


@dataclass
class Pipeline:
    """A stream that always has something to send, in bytes a second: codec, round trip, wire, and what the codec
    spares. `serial`: codec and wire are one machine's work, as they are without a slower wire behind it."""

    codec: float
    rounding: float
    wire: float
    ratio: float = 3.0
    serial: bool = False
    now: float = 100.0

    def run(self, auto: AdaptiveCodec, seconds: float) -> float:
        """Runs the stream; returns its goodput in original bytes per second."""
        end, began, sent = self.now + seconds, self.now, 0
        segment = max(SUPER, round(self.best / 2000))  # or half a minute of a fast link would take one to simulate
        while self.now < end:
            codec_s = segment / (self.rounding if auto.raw else self.codec)
            size = segment if auto.raw else round(segment / self.ratio)
            wire_s = size / self.wire
            auto.sent(self.now, segment, size, codec_s, limited=wire_s > codec_s)
            self.now += codec_s + wire_s if self.serial else max(codec_s, wire_s)
            sent += segment
        return sent / (self.now - began)

    @property
    def best(self) -> float:
        if self.serial:
            return max(
                1 / (1 / self.codec + 1 / (self.ratio * self.wire)),
                1 / (1 / self.rounding + 1 / self.wire),
            )
        return max(min(self.codec, self.ratio * self.wire), min(self.rounding, self.wire))


def fresh() -> tuple[AdaptiveCodec, NicCounters]:
    counters = NicCounters()
    return AdaptiveCodec(codecs.get(AUTO), counters), counters


def test_a_slow_wire_is_never_left_uncompressed() -> None:
    auto, counters = fresh()
    pipe = Pipeline(codec=7e9, rounding=18e9, wire=125e6)
    assert pipe.run(auto, 60) == pytest.approx(375e6, rel=0.01)
    assert counters == NicCounters(tx_auto_compressed_bytes=counters.tx_auto_compressed_bytes)
    assert auto.describe() == (
        "auto: compressing bounded:10, 3.0:1 at 375.0 MB/s; codec 7.0 GB/s (5% of the time), wire 125.0 MB/s"
    )


def test_a_wire_faster_than_the_codec_is_used_raw() -> None:
    auto, counters = fresh()
    pipe = Pipeline(codec=400e6, rounding=4e9, wire=3e9)
    pipe.run(auto, 1)
    assert auto.raw
    assert not auto.trying
    assert counters.tx_auto_to_raw == 1
    assert auto.describe() == (
        "auto: raw at 3.0 GB/s, wire 3.0 GB/s; bounded:10 gave 400.0 MB/s: 3.0:1, codec 400.0 MB/s"
    )
    assert pipe.run(auto, 60) == pytest.approx(3e9, rel=0.01)
    assert counters.tx_auto_trials == 1  # the model knows without trying that 400 MB/s are fewer


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("codec", [50e6, 400e6, 7e9])
@pytest.mark.parametrize("wire", [1.25e6, 12.5e6, 125e6, 400e6, 1.25e9, 3.1e9, 10e9])
def test_it_is_about_as_fast_as_the_better_of_the_two(wire: float, codec: float, serial: bool) -> None:
    pipe = Pipeline(codec, 2.5 * codec, wire, serial=serial)
    auto, counters = fresh()
    pipe.run(auto, 2)
    assert pipe.run(auto, 20) >= 0.9 * pipe.best  # the margin, and the trials
    assert counters.tx_auto_to_raw + counters.tx_auto_to_compressed <= 1


def test_a_hopeless_trial_comes_ever_more_rarely() -> None:
    """The wire is nearly as fast as the codec, so only a trial shows that raw is not faster."""
    auto, counters = fresh()
    pipe = Pipeline(codec=400e6, rounding=4e9, wire=300e6)
    pipe.run(auto, HOLD_S[0] - 0.5)
    assert counters.tx_auto_trials == 1
    pipe.run(auto, 8 * HOLD_S[0])
    assert counters.tx_auto_trials == 3  # the last one 3 to 7 HOLD_S[0] after the first
    pipe.run(auto, 300)
    assert counters.tx_auto_trials <= 3 + 3 + 300 / HOLD_S[1]
    assert counters.tx_auto_to_raw == 0


def test_raw_is_not_tried_where_the_link_cannot_carry_it() -> None:
    """Known to be a link of 1 Gbit/s: 375 MB/s are more than it takes raw, whatever the codec costs."""
    pipe = Pipeline(codec=400e6, rounding=4e9, wire=125e6)
    rates: list[tuple[float | None, int]] = [(1e9, 0), (10e9, 1), (None, 1)]
    for rate_bps, trials in rates:
        counters = NicCounters()
        auto = AdaptiveCodec(codecs.get(AUTO), counters, rate_bps)
        pipe.run(auto, 1)
        assert counters.tx_auto_trials == trials


def test_it_follows_a_wire_that_changes() -> None:
    auto, counters = fresh()
    pipe = Pipeline(codec=50e6, rounding=500e6, wire=250e6)
    for _ in range(2):
        pipe.wire = 250e6
        pipe.run(auto, 3 * HOLD_S[0])
        assert auto.raw
        pipe.wire = 12.5e6
        pipe.run(auto, 3 * HOLD_S[0])
        assert not auto.raw
    assert counters.tx_auto_to_raw == counters.tx_auto_to_compressed == 2


def test_noise_does_not_make_it_flap() -> None:
    """Compressed and raw alike but for 30 % of noise: what it changes, it changes seldom."""
    (auto, counters), rng = fresh(), random.Random(5)
    pipe = Pipeline(codec=400e6, rounding=400e6, wire=4e9, serial=True)
    for _ in range(6000):
        pipe.codec = pipe.rounding = 400e6 * rng.uniform(0.7, 1.3)
        pipe.run(auto, 0.02)
    changes = counters.tx_auto_to_raw + counters.tx_auto_to_compressed
    assert changes < 60  # of the 6000 intervals, in two minutes


def test_a_program_that_pauses_is_no_slow_wire() -> None:
    """4 MB every 100 ms, over a wire of 3 GB/s, past a codec of 400 MB/s: the pauses count for nothing."""
    auto, _ = fresh()
    pipe = Pipeline(codec=400e6, rounding=4e9, wire=3e9)
    for _ in range(60):
        pipe.run(auto, 0.010 if not auto.raw else 0.0014)
        auto.sent(pipe.now, 64, 64, 0.0, limited=False)
        pipe.now += 0.1
    assert auto.raw
    assert auto.compressed is not None
    assert auto.compressed.goodput == pytest.approx(400e6, rel=0.05)


def test_before_it_knows_anything_it_compresses() -> None:
    auto, counters = fresh()
    assert auto.describe() == "auto: compressing bounded:10, not measured yet"
    auto.sent(0.0, 1000, 500, 1e-6, limited=False)
    auto.sent(1.0, 1000, 500, 1e-6, limited=False)
    assert not auto.raw
    assert counters == NicCounters(tx_auto_compressed_bytes=2000)


def test_a_trial_says_so() -> None:
    auto, _ = fresh()
    pipe = Pipeline(codec=400e6, rounding=4e9, wire=3e9)
    while not auto.trying:
        pipe.run(auto, 0.001)
    assert auto.describe().startswith("auto: compressing bounded:10, 3.0:1 at 400.0 MB/s; codec 400.0 MB/s (100% of")
    assert auto.describe().endswith("; trying raw")


def test_timers() -> None:
    clock = iter([1.0, 1.25])
    watch = Stopwatch(lambda: next(clock))
    watch.start()
    assert watch.stop(1000, raw=False) == 0.25
    fixed = FixedSpeed(1000.0)
    fixed.start()
    assert (fixed.stop(500, raw=False), fixed.stop(500, raw=True)) == (0.5, 0.25)


# The kernel: nothing encoded, the same floats.


@pytest.mark.parametrize("mode", ["fill", "packet"])
@pytest.mark.parametrize("codec", [AUTO, "auto:inceptionn:7", "auto:bfp:7", "auto:truncate:12", "auto:rht:4"])
def test_raw_bodies_hold_the_round_trip(mode: Any, codec: str) -> None:
    data = floats(5000).tobytes() + b"abc"
    pair = Pair(offloads={TOS: codec}, mode=mode).handshake()
    flow = None
    for raw in (False, True):
        pair.a.transmit(pair.segment(data), b"\x02SNM\x00\x02", 100, 0.0)
        batch = pair.link_b.receive(0.0)
        assert batch is not None
        payloads = [decode_payload(take_apart(frame).payload) for frame in batch]
        assert all(payload.raw == raw for payload in payloads)
        assert b"".join(payload.original for payload in payloads) == roundtrip(codec, data)
        flow = pair.state(pair.a)
        assert flow.adaptive is not None
        flow.adaptive.raw = True
    assert flow is not None
    pair.a.transmit(pair.segment(data, codec="bounded:3"), b"\x02SNM\x00\x02", 100, 0.0)
    batch = pair.link_b.receive(0.0)
    assert batch is not None
    assert not decode_payload(take_apart(batch[0]).payload).raw  # a codec without auto is always applied


# Whole nodes.


class BusyNode:
    """A node whose codec takes time on the virtual clock: while it works, the node does nothing else."""

    def __init__(self, node: Node, encode: float, raw: float) -> None:
        self.node = node
        self._speed = FixedSpeed(encode, raw)
        self._busy_until = 0.0
        self._spent = 0.0
        node.nic.codec_timer = self

    def start(self) -> None:
        self._speed.start()

    def stop(self, original_bytes: int, raw: bool) -> float:
        seconds = self._speed.stop(original_bytes, raw)
        self._spent += seconds
        return seconds

    def advance(self, now: float) -> None:
        if now < self._busy_until:
            return
        self._spent = 0.0
        self.node.advance(now)
        self._busy_until = now + self._spent

    def next_time(self) -> float | None:
        due = self.node.next_time()
        return None if due is None else max(due, self._busy_until)


def rated(rate_bps: float, **node: Any) -> tuple[Node, Node, EmulatedLink]:
    network = MemoryNetwork()
    spec = EmulationSpec(rate_bps=rate_bps, delay_s=50e-6, limit_bytes=10**6)
    link = EmulatedLink(network.port(), spec, seed=1)
    back: MemoryLink = network.port()
    table = {"offloads": {TOS: AUTO}, **node}
    return Node(IP_A, link, rng=random.Random(1), **table), Node(IP_B, back, rng=random.Random(2), **table), link


def stream(mb: int) -> bytes:
    return floats(1 << 20).tobytes() * (mb // 4)


def auto_of(program: Transfer) -> AdaptiveCodec:
    connection = program.connection
    flow: NicFlow = connection.nic
    assert flow.adaptive is not None
    return flow.adaptive


def send(rate_bps: float, codec: float, mb: int) -> tuple[Transfer, float]:
    """So much over such a link through such a codec. Returns the original bytes a second, too."""
    a, b, _ = rated(rate_bps)
    busy, clock = BusyNode(a, codec, 4 * codec), VirtualClock()
    program = Transfer(a, b, parts := [(Tag(TOS), stream(mb))])
    clock.run([program, busy, b], lambda: program.done, 600.0)
    assert program.got == expected(parts, AUTO)
    return program, len(program.got) / clock.now


def test_100_mbit_is_compressed() -> None:
    program, rate = send(100e6, 7e9, 32)
    assert rate > 2.8 * 12.5e6
    counters = program.sender.nic.counters
    assert counters.tx_auto_compressed_bytes == len(program.got)
    assert counters.tx_auto_trials == 0


def test_a_slow_codec_is_left_out_of_a_fast_link() -> None:
    program, rate = send(2e9, 50e6, 64)
    assert rate > 2 * 50e6  # which is what the codec would have allowed
    counters = program.sender.nic.counters
    assert auto_of(program).raw
    assert counters.tx_auto_to_raw == 1
    assert counters.tx_auto_compressed_bytes + counters.tx_auto_raw_bytes == len(program.got)
    assert counters.tx_auto_compressed_bytes < len(program.got) / 4


def test_a_slow_codec_still_pays_on_a_slower_link() -> None:
    program, rate = send(100e6, 50e6, 32)
    assert rate > 2.5 * 12.5e6
    assert not auto_of(program).raw


def test_it_takes_compression_up_again_when_the_link_becomes_slow() -> None:
    a, b, link = rated(400e6)
    busy, clock = BusyNode(a, 20e6, 100e6), VirtualClock()
    program = Transfer(a, b, parts := [(Tag(TOS), stream(100))])
    actors: list[Actor] = [program, busy, b]
    clock.run(actors, lambda: len(program.got) > 60e6, 60.0)
    assert auto_of(program).raw
    link._c.byte_s = 8 / 20e6
    clock.run(actors, lambda: program.done, 60.0)
    assert not auto_of(program).raw
    counters = a.nic.counters
    assert (counters.tx_auto_to_raw, counters.tx_auto_to_compressed) == (1, 1)
    assert program.got == expected(parts, AUTO)


def test_an_unlimited_link_and_a_clock_that_stands_still() -> None:
    """Only the codec timer reports elapsed time."""
    a, b = two_nodes(1, offloads={TOS: AUTO}, codec_timer=FixedSpeed(50e6))
    program, _ = transfer(a, b, [(Tag(TOS), stream(32))])
    assert auto_of(program).raw
    assert program.got == expected([(Tag(TOS), stream(32))], AUTO)


def test_without_a_timer_it_compresses() -> None:
    a, b = two_nodes(1, offloads={TOS: AUTO})
    program, _ = transfer(a, b, [(Tag(TOS), stream(8))])
    assert a.nic.counters.tx_auto_compressed_bytes == len(program.got)
    assert "codec free" in auto_of(program).describe() or "not measured" in auto_of(program).describe()


@pytest.mark.parametrize("seed", range(6))
def test_no_bit_depends_on_it(seed: int) -> None:
    """Ranges under many codecs over a bad link, while it flips at random between compressed and raw."""
    rng = random.Random(seed)
    data = floats(1 << 19, seed=seed).tobytes()
    tags = [PLAIN, Tag(TOS), Tag(TOS, "auto:inceptionn:9"), Tag(TOS, "auto:bfp:7"), Tag(TOS, "bounded:10")]
    parts: list[TxPart] = []
    for _ in range(12):
        start = 4 * rng.randrange(len(data) // 8)
        others = [tag for tag in tags if not parts or tag != parts[-1][0]]
        parts.append((rng.choice(others), data[start : start + rng.randrange(1, 1 << 20)]))
    link = {"rate_bps": 1e9, "delay_s": 50e-6, "loss": 0.03, "duplicate": 0.01, "reorder": 0.05}
    a, b = two_nodes(
        seed, link=link, offloads={TOS: AUTO}, equal_sizes=seed % 2 == 1, mode=("fill", "packet")[seed % 3 == 2]
    )
    clock = introduced(a, b)
    program = Transfer(a, b, list(parts), now=clock.now)

    class Whim:
        """Decides at random, at any time."""

        def advance(self, now: float) -> None:  # noqa: ARG002
            connection = program.connection
            flow: NicFlow | None = connection.nic
            if flow is not None and flow.adaptive is not None:
                flow.adaptive.raw = rng.random() < 0.5

        def next_time(self) -> float | None:
            return None

    clock.run([program, Whim(), a, b], lambda: program.done, 600.0)
    assert program.got == expected(parts, AUTO)
    assert a.nic.counters.tx_auto_raw_bytes > 0
    assert a.nic.counters.tx_auto_compressed_bytes > 0
    assert b.nic.counters.rx_dropped == 0
    assert program.connection.retransmits > 0


def test_the_same_seed_decides_the_same() -> None:
    first, second = (send(300e6, 40e6, 32)[0].sender.nic.counters for _ in range(2))
    assert asdict(first) == asdict(second)


def test_one_who_cannot_decode_gets_no_auto() -> None:
    a, b = two_nodes(3, offloads={TOS: AUTO}, codec_timer=FixedSpeed(1e6))
    b.nic.codecs = 1 | 1 << 1  # no bounded
    data = floats(1 << 18).tobytes()
    program, _ = transfer(a, b, [(Tag(TOS), data)])
    assert program.got == data  # as it is, as ever where the peer lacks the codec
    assert a.nic.counters.tx_auto_compressed_bytes == a.nic.counters.tx_auto_raw_bytes == 0
