"""Clocks of machines, and ways to the network."""

from __future__ import annotations

import random

import pytest

from tests.facades.link import EmulationSpec
from tests.facades.packet import Frames
from tests.facades.sim import MemoryNetwork
from tests.simulation.links import LATE_S, LocalLink, SimLink
from tests.simulation.local_clock import Clock

A, B = b"\x02\x00\x00\x00\x00\x0a", b"\x02\x00\x00\x00\x00\x0b"


@pytest.mark.parametrize("seed", range(20))
def test_clocks_convert_without_being_early(seed: int) -> None:
    rng = random.Random(seed)
    clock = Clock(rng.choice((0.0, 1e6 * rng.random())), rng.uniform(0.9, 1.1))
    for _ in range(200):
        now = rng.random() * 100
        local = clock.local(now)
        assert clock.local(clock.world(local)) >= local
        assert clock.world(local) == pytest.approx(now, abs=1e-6)
        assert clock.world(clock.local_of(now)) >= now


def test_a_clock_jumps_ahead_and_goes_on() -> None:
    clock = Clock(100.0, 2.0)
    clock.jump(30.0, 10.0)
    assert clock.local(10.0) == 150.0
    assert clock.local(11.0) == 152.0
    assert clock.world(152.0) == 11.0


def frame(destination: bytes, source: bytes, text: bytes) -> Frames:
    return Frames.of([destination + source + b"\x88\xb5" + text])


class Two:
    """Two ways on one network; `deaf` holds MACs that b does not hear."""

    def __init__(self, spec: EmulationSpec) -> None:
        network = MemoryNetwork()
        self.deaf: set[bytes] = set()
        self.seen: list[tuple[bytes, bool]] = []
        self.a = SimLink(
            network.port(), spec, 1, lambda _: True, lambda frames, out: self.seen.append((frames[0], out))
        )
        self.b = SimLink(network.port(), spec, 2, lambda mac: mac not in self.deaf, lambda *_: None)

    def at_b(self, now: float) -> list[bytes]:
        self.a.advance(now)
        got = []
        while (frames := self.b.receive(now)) is not None:
            got += [each[14:] for each in frames]
        return got


def test_what_was_sent_before_a_change_takes_its_time() -> None:
    two = Two(EmulationSpec(delay_s=1.0, coalesce_s=0.0))
    two.a.send(frame(B, A, b"slow"), 0.0)
    two.a.change(EmulationSpec(coalesce_s=0.0))
    two.a.send(frame(B, A, b"quick"), 0.1)
    assert two.at_b(0.1) == [b"quick"]
    assert two.a.next_time() == 1.0
    assert two.at_b(1.0) == [b"slow"]
    two.a.advance(1.0)
    assert two.a.next_time() is None
    assert [out for _, out in two.seen] == [True, True]


def test_who_is_severed_is_not_heard() -> None:
    two = Two(EmulationSpec())
    two.deaf.add(A)
    two.a.send(frame(B, A, b"lost"), 0.0)
    assert two.at_b(0.0) == []
    two.deaf.clear()
    two.a.send(frame(B, A, b"heard"), 0.0)
    assert two.at_b(0.0) == [b"heard"]


def test_a_new_nic_does_not_hear_what_waited_for_the_old_one() -> None:
    two = Two(EmulationSpec())
    two.a.send(frame(B, A, b"old"), 0.0)
    two.b.forget(0.0)
    assert two.at_b(0.0) == []


def test_ghosts_come_again() -> None:
    network, got = MemoryNetwork(), []
    way = SimLink(network.port(), EmulationSpec(), 1, lambda _: True, lambda *_: None, ghosts=1.0)
    port = network.port()
    way.send(frame(B, A, b"x"), 0.0)
    due = way.next_time()
    assert due is not None
    assert 0 < due < LATE_S
    for now in (0.0, due):
        way.advance(now)
        while (frames := port.receive(now)) is not None:
            got.append((now, frames[0][14:]))
    assert got == [(0.0, b"x"), (due, b"x")]


def test_a_local_link_tells_local_times() -> None:
    two = Two(EmulationSpec(delay_s=1.0, coalesce_s=0.0))
    clock, now = Clock(1000.0, 2.0), 0.0
    link = LocalLink(two.a, clock, lambda: now)
    link.send(frame(B, A, b"x"), 1000.0)
    due = link.next_time()
    assert due is not None
    assert due == pytest.approx(1002.0)
    assert clock.world(due) >= 1.0
    assert link.tx_space(1000.0) > 0
