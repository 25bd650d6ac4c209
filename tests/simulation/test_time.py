"""Clocks of nodes, and their links to the network."""

from __future__ import annotations

import random

import pytest

from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.packet.frames import Frames
from tests.simulation.links import LATE_S, LocalLink, SimLink
from tests.simulation.local_clock import LocalClock

A, B = b"\x02\x00\x00\x00\x00\x0a", b"\x02\x00\x00\x00\x00\x0b"


@pytest.mark.parametrize("seed", range(20))
def test_conversions_of_local_times_are_never_early(seed: int) -> None:
    rng = random.Random(seed)
    clock = LocalClock(rng.choice((0.0, 1e6 * rng.random())), rng.uniform(0.9, 1.1))
    for _ in range(200):
        now = rng.random() * 100
        local = clock.local_time(now)
        assert clock.local_time(clock.global_time(local)) >= local
        assert clock.global_time(local) == pytest.approx(now, abs=1e-6)


def test_a_clock_jumps_ahead_and_goes_on() -> None:
    clock = LocalClock(100.0, 2.0)
    clock.jump(30.0, 10.0)
    assert clock.local_time(10.0) == 150.0
    assert clock.local_time(11.0) == 152.0
    assert clock.global_time(152.0) == 11.0


def frame(destination: bytes, source: bytes, text: bytes) -> Frames:
    return Frames.of([destination + source + b"\x88\xb5" + text])


class TwoLinks:
    """Two links on one network; `b` drops frames from the MACs in `blocked`."""

    def __init__(self, spec: EmulationSpec) -> None:
        network = MemoryNetwork()
        self.blocked: set[bytes] = set()
        self.observed: list[tuple[bytes, bool]] = []
        self.a = SimLink(
            network.port(), spec, 1, lambda _: True, lambda frames, out: self.observed.append((frames[0], out))
        )
        self.b = SimLink(network.port(), spec, 2, lambda mac: mac not in self.blocked, lambda *_: None)

    def at_b(self, now: float) -> list[bytes]:
        """Receive all payloads at b."""
        self.a.advance(now)
        payloads = []
        while (frames := self.b.receive(now)) is not None:
            payloads += [each[14:] for each in frames]
        return payloads


def test_frames_sent_before_a_change_keep_their_delay() -> None:
    two = TwoLinks(EmulationSpec(delay_s=1.0, coalesce_s=0.0))
    two.a.send(frame(B, A, b"slow"), 0.0)
    two.a.change(EmulationSpec(coalesce_s=0.0))
    two.a.send(frame(B, A, b"quick"), 0.1)
    assert two.at_b(0.1) == [b"quick"]
    assert two.a.next_time() == 1.0
    assert two.at_b(1.0) == [b"slow"]
    two.a.advance(1.0)
    assert two.a.next_time() is None
    assert [out for _, out in two.observed] == [True, True]


def test_frames_of_a_blocked_sender_do_not_arrive() -> None:
    two = TwoLinks(EmulationSpec())
    two.blocked.add(A)
    two.a.send(frame(B, A, b"lost"), 0.0)
    assert two.at_b(0.0) == []
    two.blocked.clear()
    two.a.send(frame(B, A, b"received"), 0.0)
    assert two.at_b(0.0) == [b"received"]


def test_a_new_nic_does_not_receive_what_waited_for_the_old_one() -> None:
    two = TwoLinks(EmulationSpec())
    two.a.send(frame(B, A, b"old"), 0.0)
    two.b.discard_waiting(0.0)
    assert two.at_b(0.0) == []


def test_stale_duplicates_arrive_late() -> None:
    network, received = MemoryNetwork(), []
    link = SimLink(network.port(), EmulationSpec(), 1, lambda _: True, lambda *_: None, stale_duplicates=1.0)
    port = network.port()
    link.send(frame(B, A, b"x"), 0.0)
    due = link.next_time()
    assert due is not None
    assert 0 < due < LATE_S
    for now in (0.0, due):
        link.advance(now)
        while (frames := port.receive(now)) is not None:
            received.append((now, frames[0][14:]))
    assert received == [(0.0, b"x"), (due, b"x")]


def test_a_local_link_is_in_the_time_of_the_world() -> None:
    two = TwoLinks(EmulationSpec(delay_s=1.0, coalesce_s=0.0))
    link = LocalLink(two.a, lambda: 0.0)
    link.send(frame(B, A, b"x"), 1000.0)
    assert two.a.next_time() == 1.0
    assert link.tx_space(1000.0) > 0
