"""What a call costs, told by clocks of every grain."""

from __future__ import annotations

import pytest

from softnic.measure.timing import alternate, ratio, seconds_a_call


class Ticking:
    """A clock that moves by whole ticks only, as CPU time does on kernels that sample it."""

    def __init__(self, tick_s: float) -> None:
        self.tick_s, self.ran_s = tick_s, 0.0

    def __call__(self) -> float:
        return self.ran_s // self.tick_s * self.tick_s

    def work(self, seconds: float) -> None:
        self.ran_s += seconds


@pytest.mark.parametrize("slice_s", [0, 0.05])
@pytest.mark.parametrize("call_s", [2e-6, 3e-4, 0.02, 0.3])
def test_a_call_shorter_than_a_tick_has_a_cost(call_s: float, slice_s: float) -> None:
    clock = Ticking(0.01)
    cost = seconds_a_call(lambda: clock.work(call_s), slice_s, clock)
    assert call_s / 2 <= cost <= max(0.01, 2 * call_s)


def test_a_fine_clock_tells_the_cost_of_a_call() -> None:
    clock = Ticking(1e-9)
    assert seconds_a_call(lambda: clock.work(1e-4), 0.05, clock) == pytest.approx(1e-4)


def test_works_told_in_turn_by_ticks_have_a_ratio() -> None:
    clock = Ticking(0.01)
    taken = alternate({"one": lambda: clock.work(5e-6), "four": lambda: clock.work(2e-5)}, 3, 0.05, clock)
    assert ratio(taken["four"], taken["one"]) == pytest.approx(4, rel=0.5)
