"""The fast path in C does the same as Python: every segment at every instant, every field at rest."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from random import Random
from typing import Literal

import pytest

from softnic.packet.segment import Segment, Tag
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.slow import some
from tests.tcp.flow_state import state_of
from tests.tcp.lab import TAGGED, Lab, Wire

Mode = Literal["off", "on", "mixed"]
Trace = list[str]


def describe(segment: Segment) -> str:
    values = [getattr(segment, field.name) for field in fields(segment) if field.name not in ("flow", "payload")]
    return f"{values} {hashlib.blake2b(segment.payload, digest_size=8).hexdigest()}"


class World:
    """Two connections between two hosts, each end writing and reading at random, the same for the same seed."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.random = Random(seed)
        self.mode = mode
        self.coin = Random(seed + 1)
        choose = self.random.choice
        self.loss = choose((0.0, 0.0, 0.01, 0.05))
        wire = Wire(
            delay_s=choose((0.0001, 0.002, 0.03)),
            loss=0.0,
            duplicate=choose((0.0, 0.0, 0.01)),
            reorder=choose((0.0, 0.0, 0.02)),
            ratio=choose((1, 4)),
            room=choose((20_000, 1 << 20)),
        )
        config = TcpConfig(
            congestion=choose(("cubic", "cubic", "reno", "bbr")),
            send_buffer=choose((16 << 10, 256 << 10)),
            receive_buffer=choose((16 << 10, 256 << 10)),
            receive_buffer_max=1 << 20,
            send_buffer_max=1 << 20,
            fast_path=mode != "off",
        )
        self.lab = Lab(wire, seed, config=config)
        self.lab.pair(4000)
        pairs = [self.lab.pair(5000 + number) for number in range(2)]
        wire.loss = self.loss
        self.ends = [end for pair in pairs for end in pair]
        for end in self.ends:
            end.set_nodelay(self.random.random() < 0.5)
        self.tags = {id(end): self.random.random() < 0.3 for end in self.ends}
        self.trace: Trace = []

    def act(self, end: Connection) -> None:
        """Writes, tags, reads or does nothing."""
        draw = self.random
        if draw.random() < 0.6:
            size = draw.choice((1, 64, 1448, 4096, 100_000))
            if self.tags[id(end)]:
                size = -(-size // 4) * 4
                if draw.random() < 0.1 and not (end.bytes_written - 1) % 4:
                    end.tag(Tag(draw.choice((0, TAGGED))))
            space = end.write_space()
            size = min(size, len(space)) // 4 * 4 if self.tags[id(end)] else min(size, len(space))
            space[:size] = draw.randbytes(size)
            end.wrote(size)
        if draw.random() < 0.7:
            end.recv(draw.choice((100, 10_000, 1 << 20)))

    def run(self, steps: int) -> World:
        lab = self.lab
        for _ in range(steps):
            for end in self.ends:
                self.act(end)
                if self.mode == "mixed":
                    end.fast_path = self.coin.random() < 0.5
            lab.run(limit_s=self.random.choice((0.0001, 0.001, 0.02, 0.5)))
            for node in lab.nodes:
                self.trace += [f"{lab.now.hex()} {describe(replace(segment, flow=None))}" for segment in node.sent]
                self.trace += [type(event).__name__ for event in node.take_events()]
                node.sent.clear()
        return self

    def state(self) -> list[dict[str, object]]:
        ignored = ("fast_path",)
        return [
            {name: value for name, value in state_of(end).items() if not name.endswith(ignored)} for end in self.ends
        ]

    def taken(self) -> tuple[int, int]:
        """Segments that the fast path has processed: received, sent."""
        counters = [node.host.counters for node in self.lab.nodes]
        return sum(c.fast_path_received for c in counters), sum(c.fast_path_sent for c in counters)


def compare(seed: int, steps: int, mode: Mode) -> World:
    off, other = World(seed, "off").run(steps), World(seed, mode).run(steps)
    for index, (one, two) in enumerate(zip(off.trace, other.trace, strict=False)):
        assert one == two, f"seed {seed}: entry {index}"
    assert len(off.trace) == len(other.trace)
    for one_end, other_end in zip(off.state(), other.state(), strict=True):
        assert one_end == other_end
    assert off.taken() == (0, 0)
    return other


@pytest.mark.parametrize("mode", ["on", "mixed"])
@pytest.mark.parametrize("seed", range(20))
def test_python_and_c_send_the_same_segments(seed: int, mode: Mode) -> None:
    compare(seed, 60, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on", "mixed"])
def test_python_and_c_send_the_same_segments_in_many_worlds(mode: Mode) -> None:
    for seed in some(30, range(100, 160)):
        compare(seed, 60, mode)


def test_a_stream_without_losses_needs_python_for_its_beginning_only() -> None:
    lab = Lab(config=TcpConfig(fast_path=True))
    a, b = lab.pair()
    counters = lab.a.host.counters, lab.b.host.counters
    before = sum(each.segments_received for each in counters)
    for _ in range(200):
        a.send(bytes(100_000))
        lab.run(limit_s=0.01)
        b.recv(1 << 20)
    received = sum(each.segments_received for each in counters) - before
    assert sum(each.fast_path_received for each in counters) > 0.8 * received
    assert counters[0].fast_path_sent > 0.9 * counters[0].segments_sent
