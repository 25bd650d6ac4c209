"""Utilisation and queue length of an emulated link whose sender honours tx_space()."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.packet.frames import Frames
from softnic.sim.clock import VirtualClock
from tests.link.doubles import Recorder, numbered

FRAME = 1514


class Source:
    """A sender with unlimited data that honours tx_space(), as a Node does: bursts of at most 64 KiB."""

    def __init__(self, link: EmulatedLink, stall: Callable[[], float]) -> None:
        self.link = link
        self.sent = 0
        self.burst = numbered(0, 43)
        self.stall = stall
        self.asleep_until = 0.0

    def advance(self, now: float) -> None:
        if now < self.asleep_until:
            return
        self.link.advance(now)
        while (frames := min(self.link.tx_space(now) // FRAME, 43)) > 0:
            self.link.send(self.burst.select(slice(frames)), now)
            self.sent += frames
        self.asleep_until = now + self.stall()

    def next_time(self) -> float | None:
        wake = self.link.next_time()
        return None if wake is None else max(wake, self.asleep_until)


class Meter(Recorder):
    """A link that counts frames instead of storing them."""

    frames = 0

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        self.frames += len(frames)


class TestUtilisation:
    """A sender that honours tx_space() keeps the link busy, with any timer resolution, and the queue short."""

    @pytest.mark.parametrize(("rate_bps", "queue_s"), [(100e6, 8e-3), (1e9, 8e-3), (10e9, 2e-3)])
    @pytest.mark.parametrize("granularity_s", [0.0, 50e-6, 500e-6])
    def test_the_link_is_busy_and_the_queue_short(self, rate_bps: float, queue_s: float, granularity_s: float) -> None:
        meter = Meter()
        link = EmulatedLink(meter, EmulationSpec(rate_bps=rate_bps), seed=1)
        source = Source(link, lambda: 0.0)
        clock = VirtualClock(granularity_s=granularity_s)
        clock.run_for([source], 0.1)
        assert meter.frames * FRAME * 8 >= 0.99 * rate_bps * 0.1
        assert (source.sent - meter.frames) * FRAME * 8 <= (queue_s + 0.5e-3) * rate_bps
        assert link.counted.dropped_full == 0

    def test_slow_turns_of_the_event_loop_do_not_reduce_utilisation(self) -> None:
        meter = Meter()
        link = EmulatedLink(meter, EmulationSpec(rate_bps=1e9), seed=1)
        random = np.random.default_rng(5)
        source = Source(link, lambda: float(random.exponential(200e-6)))
        VirtualClock(granularity_s=50e-6).run_for([source], 0.5)
        assert meter.frames * FRAME * 8 >= 0.95 * 1e9 * 0.5

    def test_the_sender_is_woken_only_for_worthwhile_bursts(self) -> None:
        """At most one wake in 100 us at any rate: neither each frame nor each bit of tx_space is one."""
        link = EmulatedLink(Meter(), EmulationSpec(rate_bps=10e9), seed=1)
        wakes: set[float] = set()

        class Counting(Source):
            def advance(self, now: float) -> None:
                wakes.add(now)
                super().advance(now)

        VirtualClock().run_for([Counting(link, lambda: 0.0)], 0.1)
        assert len(wakes) < 1.5 * 0.1 / 100e-6
