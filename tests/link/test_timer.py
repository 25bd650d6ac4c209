"""The timer descriptor, against the real clock: it may never be early."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest

from softnic.link.timer import Timer


@pytest.fixture
def timer() -> Iterator[Timer]:
    made = Timer()
    yield made
    made.close()


def readable(timer: Timer, timeout: float) -> bool:
    return bool(select.select([timer], [], [], timeout)[0])


def test_fires_at_its_time_and_not_before(timer: Timer) -> None:
    at = time.monotonic() + 0.01
    timer.set(at)
    assert readable(timer, 5.0)
    assert time.monotonic() >= at


@pytest.mark.parametrize("at", [0.0, -5.0, 1e-12])
def test_a_time_that_is_over_fires_at_once(timer: Timer, at: float) -> None:
    timer.set(at)
    assert readable(timer, 5.0)


def test_is_silent_until_armed_and_when_disarmed(timer: Timer) -> None:
    assert not readable(timer, 0.0)
    timer.set(0.0)
    timer.set(None)
    assert not readable(timer, 0.0)


def test_can_be_set_again_after_it_fired(timer: Timer) -> None:
    for _ in range(3):
        timer.set(0.0)
        assert readable(timer, 5.0)
        timer.acknowledge()
        assert not readable(timer, 0.0)


def test_acknowledging_what_did_not_fire_is_harmless(timer: Timer) -> None:
    timer.set(time.monotonic() + 1000)
    timer.acknowledge()
    assert not readable(timer, 0.0)


def test_closing_twice_is_harmless() -> None:
    made = Timer()
    made.close()
    made.close()
