"""The virtual clock: it jumps between events, and says when nothing can happen any more."""

from __future__ import annotations

import math

import pytest

from softnic.link.memory import MemoryNetwork
from softnic.packet.frames import Frames
from softnic.sim.clock import Stalled, VirtualClock


class Ticker:
    """An actor that acts every `period` seconds, `count` times, and keeps the times."""

    def __init__(self, period: float, count: int) -> None:
        self.period = period
        self.count = count
        self.times: list[float] = []
        self.due = period

    def advance(self, now: float) -> None:
        if self.count and now >= self.due:
            self.times.append(now)
            self.due += self.period
            self.count -= 1

    def next_time(self) -> float | None:
        return self.due if self.count else None


def test_jumps_from_event_to_event() -> None:
    clock = VirtualClock(10.0)
    ticker = Ticker(11.0, 3)
    clock.run([ticker], lambda: len(ticker.times) == 3)
    assert ticker.times == [11.0, 22.0, 33.0]
    assert clock.now == 33.0


def test_is_done_at_once_when_the_condition_holds() -> None:
    clock = VirtualClock(1.0)
    clock.run([Ticker(5.0, 1)], lambda: True)
    assert clock.now == 1.0


def test_says_when_nothing_is_left_to_happen() -> None:
    clock = VirtualClock()
    with pytest.raises(Stalled, match="nothing is left"):
        clock.run([Ticker(1.0, 2)], lambda: False)
    assert clock.now == 2.0


def test_says_when_the_limit_is_over() -> None:
    clock = VirtualClock()
    with pytest.raises(Stalled, match="after 5 virtual seconds"):
        clock.run([Ticker(1.0, 100)], lambda: False, limit_s=5)
    assert clock.now == 5.0


def test_says_when_time_stands_still() -> None:
    class Nagger:
        def advance(self, now: float) -> None:
            pass

        def next_time(self) -> float | None:
            return 0.0

    with pytest.raises(Stalled, match="time stands still"):
        VirtualClock().run([Nagger()], lambda: False)


def test_run_for_ends_exactly_then() -> None:
    clock = VirtualClock()
    ticker = Ticker(1.0, 100)
    clock.run_for([ticker], 2.5)
    assert (clock.now, ticker.times) == (2.5, [1.0, 2.0])
    clock.run_for([], 1.0)
    assert clock.now == 3.5


def test_a_coarse_clock_wakes_at_multiples() -> None:
    clock = VirtualClock(granularity_s=0.25)
    ticker = Ticker(0.3, 3)
    clock.run([ticker], lambda: len(ticker.times) == 3)
    assert ticker.times == [0.5, 0.75, 1.0]


def test_events_happen_in_order_and_before_actors() -> None:
    clock = VirtualClock()
    happened: list[tuple[float, str]] = []
    ticker = Ticker(2.0, 1)
    clock.at(2.0, lambda: happened.append((clock.now, f"b, {len(ticker.times)} ticks")))
    clock.at(1.0, lambda: clock.at(1.0, lambda: happened.append((clock.now, "a"))))
    clock.run([ticker], lambda: not clock.events_pending)
    assert happened == [(1.0, "a"), (2.0, "b, 0 ticks")]
    assert ticker.times == [2.0]


def test_actors_act_only_when_they_are_due() -> None:
    class Counting:
        def __init__(self, due: float | None) -> None:
            self.due = due
            self.calls = 0

        def advance(self, now: float) -> None:  # noqa: ARG002
            self.calls += 1

        def next_time(self) -> float | None:
            return self.due

    never, always, ticker = Counting(math.inf), Counting(None), Ticker(1.0, 3)
    VirtualClock().run([never, always, ticker], lambda: len(ticker.times) == 3)
    assert never.calls == 0
    assert always.calls >= 3


def test_what_a_port_holds_is_due_at_once() -> None:
    network = MemoryNetwork()
    a, b = network.port(), network.port()
    clock = VirtualClock(3.0)

    class Reader:
        def __init__(self) -> None:
            self.got: list[tuple[float, bytes]] = []

        def advance(self, now: float) -> None:
            while (frames := b.receive(now)) is not None:
                self.got += [(now, data) for data in frames]

        def next_time(self) -> float | None:
            return b.next_time()

    reader = Reader()
    frame = b"\xff" * 6 + bytes([2, 0, 0, 0, 0, 1]) + b"data"
    a.send(Frames.of([frame]), clock.now)
    clock.run([reader, a], lambda: bool(reader.got))
    assert reader.got == [(3.0, frame)]
