"""CUBIC against the RFC's own formulas, in frames of 1000 wire bytes; HyStart++."""

from __future__ import annotations

import pytest

from softnic.stack.tcp.cubic import BETA, Cubic
from softnic.stack.tcp.hystart import HyStart
from tests.stack.test_reno import ack

RTT = 0.1


def after_a_loss(frames: int) -> Cubic:
    cubic = Cubic(1000)
    cubic.cwnd = frames * 1000
    cubic.on_loss(frames * 1000, 0.0)
    cubic.cwnd = cubic.ssthresh
    return cubic


def round_trips(cubic: Cubic, count: int, rtt: float = RTT, start: float = 0.0) -> list[float]:
    """Acknowledges a window by each of so many round trips, ten times in each; the windows, in frames."""
    windows = []
    for number in range(count):
        for part in range(10):
            now = start + (number + part / 10) * rtt
            cubic.on_ack(ack(cubic.cwnd // 10, cubic.cwnd, now=now, rtt=rtt))
        windows.append(cubic.cwnd / 1000)
    return windows


def test_a_loss_leaves_seven_tenths() -> None:
    assert after_a_loss(1000).ssthresh == 700_000


def test_the_window_is_back_after_k_seconds() -> None:
    cubic = after_a_loss(1000)
    k = (1000 * (1 - BETA) / 0.4) ** (1 / 3)  # RFC 9438, section 4.2
    windows = round_trips(cubic, round(2 * k / RTT))
    assert windows[round(k / RTT) - 1] == pytest.approx(1000, rel=0.01)
    early, late = windows[round(0.5 * k / RTT)], windows[round(1.5 * k / RTT)]
    assert early == pytest.approx(1000 - 0.4 * (0.5 * k) ** 3, rel=0.02)
    assert late == pytest.approx(1000 + 0.4 * (0.5 * k) ** 3, rel=0.02)


def test_on_a_short_path_it_grows_as_reno_would() -> None:
    cubic = after_a_loss(20)
    windows = round_trips(cubic, 30, rtt=0.001)
    alpha = 3 * (1 - BETA) / (1 + BETA)
    assert windows[10] - windows[0] == pytest.approx(10 * alpha, rel=0.15)


def test_who_has_less_than_last_time_leaves_room() -> None:
    shrinking, same = after_a_loss(1000), after_a_loss(1000)
    shrinking.cwnd = 800_000
    shrinking.on_loss(800_000, 1.0)  # it was at 1000 before: now it aims at less than 800
    shrinking.cwnd = same.cwnd = shrinking.ssthresh
    windows = round_trips(shrinking, 60)
    assert max(window for window in windows[:45]) < 800


def test_time_in_which_the_window_is_not_used_does_not_count() -> None:
    busy, idle = after_a_loss(1000), after_a_loss(1000)
    round_trips(busy, 10)
    round_trips(idle, 10)
    for number in range(100):
        idle.on_ack(ack(1000, 1000, now=1.0 + number * RTT))
    assert idle.cwnd == busy.cwnd
    assert round_trips(idle, 10, start=11.0)[-1] == pytest.approx(round_trips(busy, 10, start=1.0)[-1], rel=0.02)


def rounds(hystart: HyStart, times: list[float]) -> list[tuple[bool, int]]:
    """One result a round trip, of ten acknowledgements each with such a time."""
    found = []
    for number, rtt in enumerate(times):
        result = (False, 1)
        for part in range(10):
            result = hystart.on_ack(1000 * number + 100 * part, 1000 * (number + 1), rtt)
        found.append(result)
    return found


class TestHyStart:
    def test_a_steady_path_never_ends_slow_start(self) -> None:
        assert rounds(HyStart(), [0.02] * 50) == [(False, 1)] * 50

    def test_growing_round_trips_slow_it_down_and_end_it(self) -> None:
        found = rounds(HyStart(), [0.02, 0.02, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03])
        assert found[1] == (False, 1)
        assert found[2] == (False, 4)
        hystart = HyStart()
        ended = [
            hystart.on_ack(1000 * number + 100 * part, 1000 * (number + 1), 0.02 if number < 2 else 0.03)[0]
            for number in range(9)
            for part in range(10)
        ]
        assert 60 <= ended.index(True) <= 80  # five rounds after the third

    def test_a_mistake_is_taken_back(self) -> None:
        found = rounds(HyStart(), [0.02, 0.02, 0.03, 0.02, 0.02])
        assert [divisor for _, divisor in found] == [1, 1, 4, 1, 1]

    def test_less_than_four_milliseconds_are_noise(self) -> None:
        assert rounds(HyStart(), [0.001, 0.0045, 0.001, 0.0045]) == [(False, 1)] * 4
