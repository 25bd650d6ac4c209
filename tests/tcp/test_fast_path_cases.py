"""The fast path where numbers wrap, tables are full and memory is returned: the same segments as from Python alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from softnic.packet.segment import Segment
from softnic.tcp import isn
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.tcp.flow_state import state_of
from tests.tcp.lab import START, Lab, Wire
from tests.tcp.test_fast_path import Mode, describe

Act = Callable[[Connection, Connection, int], object]
"""What an application does at both ends in a step."""
WRAP = 1 << 32


@dataclass
class Outcome:
    """One connection, from a's end to b's, after all steps."""

    lab: Lab
    ends: tuple[Connection, Connection]
    trace: list[str] = field(default_factory=list)
    sent: list[list[Segment]] = field(default_factory=lambda: [[], []])
    """By node."""

    def shares(self) -> list[tuple[float, float]]:
        """The parts of the segments received and sent by each node that the fast path has processed."""
        counters = [node.host.counters for node in self.lab.nodes]
        return [(c.fast_path_received / c.segments_received, c.fast_path_sent / c.segments_sent) for c in counters]


def run(act: Act, mode: Mode, steps: int, step_s: float, wire: Wire, **config: Any) -> Outcome:
    lab, coin = Lab(replace(wire), config=TcpConfig(fast_path=mode != "off", **config)), Random(3)
    outcome = Outcome(lab, lab.pair())
    for step in range(steps):
        act(*outcome.ends, step)
        for end in outcome.ends:
            end.fast_path = mode == "on" or (mode == "mixed" and coin.random() < 0.5)
        lab.run(limit_s=step_s)
        for node, sent in zip(lab.nodes, outcome.sent, strict=True):
            outcome.trace += [f"{lab.now.hex()} {describe(replace(segment, flow=None))}" for segment in node.sent]
            outcome.trace += [type(event).__name__ for event in node.take_events()]
            sent += node.sent
            node.sent.clear()
    return outcome


def state(end: Connection) -> dict[str, object]:
    """All fields but the switch of the fast path and the addresses of zero-copy memory."""
    return {
        name: value
        for name, value in state_of(end).items()
        if not name.endswith("fast_path") and not re.search(r"_kept\[\d+\]\[1\]$", name)
    }


def same(act: Act, *, steps: int = 30, step_s: float = 0.01, wire: Wire | None = None, **config: Any) -> Outcome:
    """Compares the fast path off, on and by turns. Returns the outcome with the fast path."""
    off, on, mixed = (run(act, mode, steps, step_s, wire or Wire(), **config) for mode in ("off", "on", "mixed"))
    for other in (on, mixed):
        assert other.trace == off.trace
        for one, two in zip(off.ends, other.ends, strict=True):
            assert state(one) == state(two)
    assert off.shares() == [(0, 0)] * 2
    return on


def exchange(a: Connection, b: Connection, step: int) -> None:
    """Both ends write, and read what has come."""
    for end in (a, b):
        end.send(bytes([step % 256]) * 3000)
        end.recv(1 << 20)


def stream(a: Connection, b: Connection, step: int) -> None:
    """As much as fits leaves a, and b reads it."""
    a.send(bytes([step % 256]) * 200_000)
    b.recv(1 << 20)


def test_sequence_numbers_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isn, "initial_sequence", lambda *_: WRAP - 20_000)
    on = same(exchange)
    for sent in on.sent:
        numbers = [segment.seq for segment in sent]
        acks = [segment.ack for segment in sent]
        assert max(numbers) > WRAP - 10_000
        assert max(acks) > WRAP - 10_000
        assert numbers[-1] < 80_000
        assert acks[-1] < 80_000
    assert min(min(shares) for shares in on.shares()) > 0.7


@pytest.mark.parametrize("before_s", [0.05, 0.1007, 0.15])
def test_timestamps_wrap(monkeypatch: pytest.MonkeyPatch, before_s: float) -> None:
    monkeypatch.setattr(isn, "timestamp_offset", lambda *_: -int((START + before_s) * 1000) % WRAP)
    on = same(exchange)
    for sent in on.sent:
        for values in zip(*(segment.timestamps for segment in sent if segment.timestamps), strict=True):
            assert values[0] > WRAP - 1000
            assert values[-1] < 1000
    assert min(min(shares) for shares in on.shares()) > 0.7


def test_a_full_scoreboard_is_enlarged_by_python() -> None:
    """Small segments are in flight, each a range of its own: 8 ranges at first, then twice as many each time."""
    counts: list[int] = []

    def write(a: Connection, b: Connection, step: int) -> None:
        counts.append(len(a.snd.scoreboard.ranges))
        a.set_nodelay(True)
        if step < 40:
            a.send(b"x")
        b.recv(1 << 20)

    on = same(write, steps=60, step_s=0.0002, wire=Wire(delay_s=0.03))
    assert max(counts) == len(on.sent[0]) == 40
    counters = on.lab.a.host.counters
    by_python = counters.segments_sent - counters.fast_path_sent
    assert by_python == 1 + 4  # its SYN, and before 1, 9, 17 and 33 ranges


def test_memory_of_zero_copy_sends_is_given_back_by_the_fast_path() -> None:
    lab = Lab(config=TcpConfig(fast_path=True))
    a, b = lab.pair()
    lab.run(limit_s=0.1)
    lents = [Random(number).randbytes(10_000) for number in range(3)]
    expected = b"".join(lents)
    before = replace(lab.a.host.counters)
    for lent in lents:
        a.send_zerocopy(memoryview(lent), 0, len(lent))
    lab.step()
    assert not a.snd.buffer.zerocopy.completed_bytes
    got = bytearray()

    def received() -> bool:
        got.extend(b.recv(1 << 20))
        return len(got) == len(expected)

    assert lab.run(received)
    lab.run(limit_s=0.1)
    assert got == expected
    after = lab.a.host.counters
    acknowledgements = after.segments_received - before.segments_received
    assert after.fast_path_received - before.fast_path_received == acknowledgements > 0
    assert a.snd.buffer.zerocopy.completed_bytes == len(expected)


def test_zero_copy_and_copied_bytes_by_turns() -> None:
    memory = memoryview(Random(1).randbytes(1 << 16))
    got = bytearray()

    def write(a: Connection, b: Connection, step: int) -> None:
        if step % 3 == 1 and step < 50:
            assert a.send(memory[step : step + 2000]) == 2000
        elif step % 3 == 2 and step < 50:
            a.send_zerocopy(memory, step, 5000)
        got.extend(b.recv(1 << 20))

    same(write, steps=120, step_s=0.001)
    writes = [memory[step : step + (2000 if step % 3 == 1 else 5000)] for step in range(50) if step % 3]
    assert got == b"".join(writes) * 3


@pytest.mark.parametrize(("act", "steps"), [(stream, 40), (exchange, 240)])
@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_bbr_needs_python_for_the_beginning_of_a_connection_only(act: Act, steps: int, delay_s: float) -> None:
    """In all of its modes: PROBE_RTT comes after ten seconds."""
    on = same(act, steps=steps, step_s=0.05, wire=Wire(delay_s=delay_s), congestion="bbr")
    for counters in (node.host.counters for node in on.lab.nodes):
        assert counters.segments_received - counters.fast_path_received <= 5
        assert counters.segments_sent - counters.fast_path_sent <= 10
