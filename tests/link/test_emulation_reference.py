"""Emulated links in C do what the reference in Python does, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.packet.frames import HEADROOM, Frames
from tests.link.doubles import BROADCAST, A, B, C, Recorder
from tests.link.reference_emulation import ReferenceEmulatedLink
from tests.link.sockets import WireRecorder

DESTINATIONS = (B, B, B, C, BROADCAST)
SIZES = (0, 5, 14, 60, 60, 66, 700, 1514, 1514, 1514, 9014, 70_000)
"""Of frames: without an address, of acknowledgements, full, and longer than the MTU."""
WIRE_SIZES = (14, 60, 66, 200)
PROBABILITIES = (0.0, 0.0, 0.0, 0.1, 0.5, 1.0)
CHANCE = ("loss", "duplicate", "reorder", "corrupt")
RATES = (None, 8.0, 8e3, 1e6, 1e8, 1e9, 1e9, 1e10, 1e11, 1e15)
DELAYS = (0.0, 0.0, 50e-6, 1e-3, 0.25)
PAUSES = (0.0, 0.0, 1e-9, 1e-6, 12e-6, 1e-4, 1e-3, 0.1, 10.0)
STARTS = (0.0, 1000.0, 1.7e9)


def spec_of(random: Random, *, by_chance: bool) -> EmulationSpec:
    choice = random.choice
    rate_bps = choice(RATES)
    return EmulationSpec(
        rate_bps=None if rate_bps is None else rate_bps * choice((1.0, random.uniform(0.5, 2.0))),
        delay_s=choice(DELAYS) * choice((1.0, random.random())),
        jitter_s=choice(DELAYS) if by_chance else 0.0,
        limit_bytes=choice((None, 4 * 1514, 10_000, 100_000, 10**7)),
        coalesce_s=choice((100e-6, 100e-6, 0.0, 1e-3, random.random() * 1e-3)),
        **({name: choice(PROBABILITIES) for name in CHANCE} if by_chance else {}),
    )


@dataclass
class Both:
    """The link in C and the reference, which get the same calls."""

    random: Random
    spec: EmulationSpec
    inner: tuple[Recorder, Recorder] = field(default_factory=lambda: (Recorder(), Recorder()))
    sizes: tuple[int, ...] = SIZES
    most: int = 300
    """Of frames in a batch."""
    now: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        seed = self.random.randrange(1 << 32)
        self.link = EmulatedLink(self.inner[0], self.spec, seed=seed)
        self.reference = ReferenceEmulatedLink(self.inner[1], self.spec, seed=seed)

    def check(self) -> None:
        """Compare what has left and everything that callers see."""
        recorded, expected = self.inner
        if isinstance(recorded, WireRecorder):  # which has no times, and where batches of one destination become one
            assert [data for _, data in recorded.sent] == [data for _, data in expected.sent]
        else:
            assert recorded.sent == expected.sent
            assert contents(recorded.batches) == contents(expected.batches)
        for link in self.inner:
            link.sent.clear()
            link.batches.clear()
        assert self.link.counted == self.reference.counted
        assert self.link.next_time() == self.reference.next_time()
        assert self.link.in_transit == self.reference.in_transit

    def frames(self) -> list[bytes]:
        random, destination = self.random, self.random.choice(DESTINATIONS)
        size = random.choice((0, random.choice(self.sizes)))
        made = []
        for _ in range(random.choice((0, 1, 1, 2, 5, random.randrange(self.most)))):
            self.number += 1
            data = destination + A + b"\x08\x00" + self.number.to_bytes(4, "big")
            length = size or random.choice(self.sizes)
            made.append(data[:length].ljust(length, b"\0"))
        return made

    def step(self) -> None:
        random = self.random
        kind = random.choice(("send", "send", "send", "wake", "wake", "advance", "space"))
        if kind == "wake":
            self.now = max(self.now, self.link.next_time() or self.now)
        elif random.random() < 0.7:
            self.now += random.choice(PAUSES) * random.choice((1.0, random.random()))
        if kind == "send":
            frames, packet_id = self.frames(), random.randrange(1000)
            self.link.send(Frames.of(frames, packet_id), self.now)
            self.reference.send(Frames.of(frames, packet_id), self.now)
        elif kind == "space":
            assert self.link.tx_space(self.now) == self.reference.tx_space(self.now)
        else:
            self.link.advance(self.now)
            self.reference.advance(self.now)
        self.check()

    def drain(self) -> None:
        """Advance to every moment at which the link has something to do, until it is empty."""
        while (at := self.link.next_time()) is not None:
            self.now = max(self.now, at)
            self.link.advance(self.now)
            self.reference.advance(self.now)
            self.check()
        assert not self.link.in_transit
        assert self.link.tx_space(self.now) == self.reference.tx_space(self.now)


def contents(batches: Iterable[Frames]) -> list[tuple[int, list[bytes]]]:
    return [(batch.packet_id, list(batch)) for batch in batches]


def play(random: Random, *, by_chance: bool, steps: int = 40) -> None:
    both = Both(random, spec_of(random, by_chance=by_chance), now=random.choice(STARTS))
    for _ in range(steps):
        both.step()
    if both.spec.rate_bps is None or both.spec.rate_bps > 1e5:
        both.drain()


@given(st.randoms(use_true_random=False), st.booleans())
def test_every_step_is_that_of_the_reference(random: Random, by_chance: bool) -> None:
    play(random, by_chance=by_chance, steps=random.randrange(1, 12))


@pytest.mark.parametrize("by_chance", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_long_runs_are_those_of_the_reference(seed: int, by_chance: bool) -> None:
    play(Random(seed), by_chance=by_chance)


@pytest.mark.parametrize("seed", range(25))
def test_frames_that_go_to_the_kernel_leave_as_those_of_the_reference(stack: ExitStack, seed: int) -> None:
    """Bursts pass from the ring to a socket, or through the inner link while it has no path."""
    random = Random(seed)
    wire = WireRecorder(stack, random)
    both = Both(random, spec_of(random, by_chance=seed % 3 == 0), (wire, Recorder()), WIRE_SIZES, most=16)
    for _ in range(60):
        both.step()
    if both.spec.rate_bps is None or both.spec.rate_bps > 1e5:
        both.drain()


@pytest.mark.parametrize("pause", [0.0, 2.0**-30])
def test_frames_sent_when_the_bottleneck_becomes_free_continue_its_busy_period(pause: float) -> None:
    """To the instant: the times are exact in binary. After a pause, however short, another period begins."""
    took = 2.0**-12
    spec = EmulationSpec(rate_bps=64 * 8 / took, delay_s=0.25, coalesce_s=100e-6)
    both = Both(Random(1), spec)
    for number in range(8):
        both.now = number * (took + pause)
        for link in (both.link, both.reference):
            link.send(Frames.of([(B + A + b"\x08\x00").ljust(64, b"\0")], number), both.now)
        both.check()
    both.now = took + 0.25
    for link in (both.link, both.reference):
        link.advance(both.now)
    assert (len(both.inner[0].sent) > 1) is (pause == 0.0)
    both.check()
    both.drain()


@pytest.mark.parametrize("parts", [(4,), (1, 3)])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_ring_that_is_full_to_the_byte_overwrites_nothing(more: int, parts: tuple[int, ...]) -> None:
    """Frames of a sixteenth of the first ring, a quarter of which is free again when its end is reached, and filled."""
    both = Both(Random(1), EmulationSpec(delay_s=1.0))
    part = (1 << 16) // 16
    for now, count in ((0.0, 4), (0.5, 12)):
        send_at(both, now, [1] * count, part - HEADROOM)
    for count in parts:
        send_at(both, 1.0, [1], count * part - HEADROOM + (more if count > 1 else 0))
    for now, count in ((1.0, 1), (1.25, 3)):
        send_at(both, now, [1] * count, part - HEADROOM)
    both.drain()


@pytest.mark.parametrize(
    "steps",
    [
        [(5.0, [8]), (8.0, [8]), (10.0, [8]), (10.5, []), (12.0, []), (12.9, [])],
        [(5.0, []), (6.1, []), (6.2, [1] * 16), (7.2, []), (8.3, [])],
    ],
    ids=["full to the byte", "filled one by one"],
)
def test_a_ring_that_is_in_use_is_not_trimmed(steps: list[tuple[float, list[int]]]) -> None:
    """Sixteen frames at once make a ring for just these. Its unused memory is looked for once a second."""
    both = Both(Random(1), EmulationSpec(delay_s=5.0))
    for now, counts in ((0.0, [16]), *steps):
        send_at(both, now, counts, (1 << 14) - HEADROOM)
    both.drain()


def send_at(both: Both, now: float, counts: list[int], size: int) -> None:
    """Pass time, then send batches of `counts` frames, all of one size, to a link and its reference."""
    both.now = now
    for link in (both.link, both.reference):
        link.advance(now)
    for count in counts:
        frames = []
        for _ in range(count):
            both.number += 1
            frames.append((B + A + b"\x08\x00" + both.number.to_bytes(4, "big")).ljust(size, b"\x01"))
        for link in (both.link, both.reference):
            link.send(Frames.of(frames, both.number), now)
    both.check()
