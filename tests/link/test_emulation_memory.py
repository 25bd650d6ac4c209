"""The memory of an emulated link: bounded, given back after a burst; frames for which there is none are dropped."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from softnic._native import ffi
from softnic.link.emulation import EmulatedLink, EmulationCounters
from softnic.link.emulation_spec import EmulationSpec
from tests.link.doubles import Recorder, numbered

FRAME = 1514
IDLE_BYTES = 80_000
"""Memory of an idle link."""
SPEC = EmulationSpec(rate_bps=1e9, delay_s=0.1, limit_bytes=10**7)
PAUSE_S = 1.5
"""Of which one without use is enough to give memory back."""
SPARE_BYTES = 2**24
"""Memory that a process without any still has for small objects."""


def ring_bytes(link: EmulatedLink) -> int:
    """Return the bytes of memory that the frames in flight of an emulated link occupy, with what is free for more."""
    c = link._c
    ring = c.size + c.capacity * (ffi.sizeof("sn_emulated_frame") + ffi.sizeof("double"))
    return int(ring + c.late_capacity * ffi.sizeof("sn_emulated_late *"))


def drain(link: EmulatedLink, now: float) -> float:
    while (at := link.next_time()) is not None:
        now = max(now, at)
        link.advance(now)
    return now


def burst(link: EmulatedLink, now: float, count: int = 4000) -> None:
    for first in range(0, count, 100):
        link.send(numbered(first, 100), now)


def test_memory_is_given_back_after_a_burst() -> None:
    inner = Recorder()
    link = EmulatedLink(inner, SPEC, seed=1)
    burst(link, 0.0)
    most = ring_bytes(link)
    assert 4000 * FRAME <= most <= 2 * 4000 * (FRAME + 80)
    now = drain(link, 0.0)
    for _ in range(2):
        now += PAUSE_S
        link.advance(now)
    assert ring_bytes(link) <= IDLE_BYTES
    burst(link, now)
    drain(link, now)
    assert inner.numbers == 2 * list(range(4000))


def test_the_list_of_late_frames_is_given_back() -> None:
    inner = Recorder()
    link = EmulatedLink(inner, replace(SPEC, reorder=1.0), seed=1)
    for number in range(4000):
        link.send(numbered(number, 1), 0.0)
    assert link._c.late_count == 4000
    now = drain(link, 0.0)
    link.advance(now + PAUSE_S)
    assert link._c.late_capacity == 0
    assert sorted(inner.numbers) == list(range(4000))


def test_memory_is_given_back_while_a_few_frames_are_always_in_flight() -> None:
    inner = Recorder()
    link = EmulatedLink(inner, SPEC, seed=1)
    burst(link, 0.0)
    for number in range(4000, 4100):
        now = (number - 4000) * 0.09
        link.advance(now)
        link.send(numbered(number, 1), now)
        assert link.in_transit
    assert ring_bytes(link) <= IDLE_BYTES
    drain(link, now)
    assert inner.numbers == list(range(4100))


def test_a_link_in_use_keeps_its_memory() -> None:
    link = EmulatedLink(Recorder(), SPEC, seed=1)
    sizes = set()
    for number in range(20):
        burst(link, number * 0.5, 2000)
        drain(link, number * 0.5)
        sizes.add(ring_bytes(link))
    assert len(sizes) == 1


def test_frames_that_find_the_queue_full_take_no_memory() -> None:
    link = EmulatedLink(Recorder(), EmulationSpec(delay_s=1.0, limit_bytes=10 * FRAME), seed=1)
    link.send(numbered(0, 10), 0.0)
    before = ring_bytes(link)
    link.send(numbered(10, 1000), 0.0)
    assert ring_bytes(link) == before
    assert link.counted == EmulationCounters(sent=10, dropped_full=1000)


def test_a_closed_link_has_no_memory() -> None:
    link = EmulatedLink(Recorder(), replace(SPEC, reorder=0.5), seed=1)
    burst(link, 0.0)
    assert link._c.late_count > 0
    link.close()
    assert ring_bytes(link) == 0
    assert not link.in_transit
    assert link.next_time() is None


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Limit the memory of this process to little more than it has. A sanitizer limits single allocations instead."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    if "SOFTNIC_SANITIZED" not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, unlimited[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, unlimited)


def exhaust(spec: EmulationSpec) -> None:
    """Send until there is no memory, and after there is some again."""
    inner = Recorder()
    link = EmulatedLink(inner, spec, seed=1)
    batches = [numbered(first, 1000) for first in range(0, 50_000, 1000)]
    with little_memory():
        for batch in batches[:-1]:
            link.send(batch, 0.0)
    refused = link.counted.dropped_full
    assert refused > 0
    assert link.counted.sent + refused == 49_000
    drain(link, 0.0)
    counted = link.counted
    assert len(inner.sent) == counted.sent + counted.duplicated
    assert inner.numbers == sorted(inner.numbers)
    link.send(batches[-1], 1e3)
    drain(link, 1e3)
    assert link.counted.sent == counted.sent + 1000
    assert inner.numbers[-1] == 49_999


def exhaust_late() -> None:
    """Send late frames, longer than what a process without memory still has, until there is none."""
    inner = Recorder()
    spec = EmulationSpec(rate_bps=1e9, delay_s=100.0, limit_bytes=2**40, reorder=1.0)
    link = EmulatedLink(inner, spec, seed=1)
    batches = [numbered(number, 1, 2**20) for number in range(50)]
    with little_memory():
        for batch in batches:
            link.send(batch, 0.0)
    counted = link.counted
    assert counted.dropped_full > 0 or "SOFTNIC_SANITIZED" in os.environ
    assert counted == EmulationCounters(sent=50 - counted.dropped_full, dropped_full=counted.dropped_full, reordered=50)
    drain(link, 0.0)
    assert len(set(inner.numbers)) == len(inner.sent) == counted.sent


EXHAUSTING = "EmulationSpec(rate_bps=1e9, delay_s=100.0, limit_bytes=2**40"


@pytest.mark.parametrize(
    "call",
    [f"exhaust({EXHAUSTING}))", f"exhaust({EXHAUSTING}, duplicate=0.5))", "exhaust_late()"],
    ids=["in order", "duplicated", "late"],
)
def test_frames_for_which_there_is_no_memory_are_dropped_and_counted(call: str) -> None:
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1:max_allocation_size_mb=16"
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.link.test_emulation_memory import *; {call}"],
        env={**os.environ, "ASAN_OPTIONS": sanitizer},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_queue_may_be_longer_than_c_can_count() -> None:
    link = EmulatedLink(Recorder(), EmulationSpec(rate_bps=1e30), seed=1)
    assert link.tx_space(0.0) == Recorder().free
    link = EmulatedLink(Recorder(), EmulationSpec(delay_s=1.0, limit_bytes=10**30), seed=1)
    assert link.tx_space(0.0) == Recorder().free
