"""CUBIC, compared with the RFC's formulas in frames of 1000 wire bytes, and HyStart++."""

from __future__ import annotations

import pytest

from softnic.tcp.cubic import Cubic
from softnic.tcp.hystart import HyStart
from tests.tcp.test_reno import ack

RTT = 0.1
BETA = 0.7
"""RFC 9438, section 4.6."""


def after_a_loss(frames: int) -> Cubic:
    cubic = Cubic(1000)
    cubic.cwnd = frames * 1000
    cubic.on_loss(frames * 1000)
    cubic.cwnd = cubic.ssthresh
    return cubic


def round_trips(cubic: Cubic, count: int, rtt: float = RTT, start: float = 0.0) -> list[float]:
    """Acknowledges one window per round trip, in ten ACKs each; returns the windows, in frames."""
    windows = []
    for number in range(count):
        for part in range(10):
            now = start + (number + part / 10) * rtt
            cubic.on_ack(ack(cubic.cwnd // 10, cubic.cwnd, now=now, rtt=rtt))
        windows.append(cubic.cwnd / 1000)
    return windows


def test_a_loss_reduces_the_window_to_seven_tenths() -> None:
    assert after_a_loss(1000).ssthresh == 700_000


def test_the_window_recovers_after_k_seconds() -> None:
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


def test_above_the_previous_maximum_it_grows_as_reno() -> None:
    windows = round_trips(after_a_loss(20), 30, rtt=0.001)
    assert windows[28] - windows[18] == pytest.approx(10, rel=0.1)


def test_a_window_of_acknowledgements_leads_to_the_target_of_a_round_trip_later() -> None:
    """RFC 9438, section 4.4."""
    cubic = after_a_loss(1000)
    k = (1000 * (1 - BETA) / 0.4) ** (1 / 3)
    cubic.on_ack(ack(1000, cubic.cwnd, now=0.0, rtt=RTT))
    cubic.on_ack(ack(cubic.cwnd, cubic.cwnd, now=1.0, rtt=RTT))
    assert cubic.cwnd / 1000 == pytest.approx(1000 + 0.4 * (1.0 + RTT - k) ** 3, rel=1e-4)


def test_growth_is_limited_to_half_a_window_per_round_trip() -> None:
    cubic = after_a_loss(1000)
    cubic.on_ack(ack(1000, cubic.cwnd, now=0.0))
    before = cubic.cwnd
    cubic.on_ack(ack(before, before, now=100.0))
    assert cubic.cwnd == pytest.approx(1.5 * before, abs=2)


@pytest.mark.parametrize(("frames", "rtt"), [(20, 0.001), (1000, RTT)])
def test_acknowledgements_never_shrink_the_window(frames: int, rtt: float) -> None:
    """ACKs never shrink the window, neither in the Reno-friendly region nor elsewhere."""
    cubic = after_a_loss(frames)
    round_trips(cubic, 3, rtt)
    cubic.cwnd = frames * 990
    cubic.on_ack(ack(10_000, cubic.cwnd, now=3 * rtt, rtt=rtt))
    assert cubic.cwnd >= frames * 990


@pytest.mark.parametrize(("cwnd", "flight", "left"), [(1000, 500, 350), (1000, 2000, 700)])
def test_the_reduction_starts_from_the_flight_limited_by_the_window(cwnd: int, flight: int, left: int) -> None:
    cubic = Cubic(1000)
    cubic.cwnd = cwnd * 1000
    cubic.on_loss(flight * 1000)
    assert cubic.ssthresh == left * 1000


def test_without_a_loss_it_starts_from_the_current_window() -> None:
    """Where HyStart++ has ended slow start (RFC 9438, section 4.10)."""
    cubic = Cubic(1000)
    cubic.cwnd = cubic.ssthresh = 100_000
    assert round_trips(cubic, 20, rtt=0.5)[-1] == pytest.approx(100 + 0.4 * 10**3, rel=0.1)


def test_fast_convergence() -> None:
    """After a loss at a smaller window, the target is below that window (RFC 9438, section 4.7)."""
    cubic = after_a_loss(1000)
    had = round_trips(cubic, 20)[-1]
    assert had < 1000
    cubic.on_loss(cubic.cwnd)
    cubic.cwnd = cubic.ssthresh
    aim = had * (1 + BETA) / 2
    k = ((aim - had * BETA) / 0.4) ** (1 / 3)
    windows = round_trips(cubic, 2 * round(k / RTT), start=2.0)
    assert windows[round(k / RTT) - 1] == pytest.approx(aim, rel=0.01)
    assert windows[round(0.5 * k / RTT)] == pytest.approx(aim - 0.4 * (0.5 * k) ** 3, rel=0.02)


def test_time_with_an_unused_window_does_not_count() -> None:
    busy, idle = after_a_loss(1000), after_a_loss(1000)
    round_trips(busy, 10)
    round_trips(idle, 10)
    for number in range(100):
        idle.on_ack(ack(1000, 1000, now=1.0 + number * RTT))
    assert idle.cwnd == busy.cwnd
    assert round_trips(idle, 10, start=11.0)[-1] == pytest.approx(round_trips(busy, 10, start=1.0)[-1], rel=0.02)


def rounds(hystart: HyStart, times: list[float]) -> list[int]:
    """Return the divisor of growth after each round trip of ten acknowledgements with that round-trip time."""
    found = []
    for number, rtt in enumerate(times):
        result = 1
        for part in range(10):
            result = hystart.on_ack(1000 * number + 100 * part, 1000 * (number + 1), rtt)
        found.append(result)
    return found


class TestHyStart:
    def test_a_steady_path_never_ends_slow_start(self) -> None:
        assert rounds(HyStart(), [0.02] * 50) == [1] * 50

    def test_growing_round_trip_times_start_conservative_slow_start_and_end_it(self) -> None:
        found = rounds(HyStart(), [0.02, 0.02, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03])
        assert found[1] == 1
        assert found[2] == 4
        hystart = HyStart()
        ended = [
            hystart.on_ack(1000 * number + 100 * part, 1000 * (number + 1), 0.02 if number < 2 else 0.03)
            for number in range(9)
            for part in range(10)
        ]
        assert 60 <= ended.index(0) <= 80  # five rounds after the third

    def test_conservative_slow_start_is_left_when_round_trip_times_fall(self) -> None:
        found = rounds(HyStart(), [0.02, 0.02, 0.03, 0.02, 0.02])
        assert found == [1, 1, 4, 1, 1]

    def test_conservative_rounds_are_counted_anew_when_it_starts_again(self) -> None:
        hystart = HyStart()
        rounds(hystart, [0.02, 0.02, *[0.03] * 4, 0.02, 0.02])
        found = [hystart.on_ack(8000 + 100 * part, 9000 + part // 10 * 1000, 0.03) for part in range(45)]
        assert found[-1] == 4
        assert 0 not in found

    @pytest.mark.parametrize(("before", "threshold"), [(0.008, 0.004), (0.064, 0.008), (0.4, 0.016)])
    def test_the_threshold_of_delay_increase(self, before: float, threshold: float) -> None:
        """The threshold is an eighth of the round trip, from 4 to 16 ms (RFC 9406, section 4.2)."""
        for factor, divisor in ((0.95, 1), (1.05, 4)):
            found = rounds(HyStart(), [before, before, before + factor * threshold])
            assert found[-1] == divisor

    def test_a_round_needs_eight_samples(self) -> None:
        hystart = HyStart()
        rounds(hystart, [0.02, 0.02])
        assert [hystart.on_ack(2000 + part, 3000, 0.03) for part in range(10)] == [1] * 8 + [4] * 2

    def test_the_window_grows_slower_in_conservative_slow_start(self) -> None:
        cubic, una, growth = Cubic(1000), 0, []
        for number in range(9):
            before = cubic.cwnd
            for _ in range(10):
                una += before // 10
                told = ack(before // 10, before, una, rtt=0.02 if number < 2 else 0.03)
                told.nxt = una + before
                cubic.on_ack(told)
            growth.append(cubic.cwnd / before)
        assert growth[1] == pytest.approx(2, rel=0.01)
        assert growth[4] == pytest.approx(1.25, rel=0.01)
        assert cubic.ssthresh < 1 << 30
        assert growth[8] < 1.25

    def test_slow_start_restarts_after_a_pause(self) -> None:
        """Conservative slow start, and what its rounds measured, do not outlive a pause (RFC 9406, section 4.3)."""
        cubic, una = Cubic(1000), 0
        for number in range(7):  # to the last of five conservative rounds
            before = cubic.cwnd
            for _ in range(10):
                una += before // 10
                told = ack(before // 10, before, una, rtt=0.02 if number < 2 else 0.03)
                told.nxt = una + before
                cubic.on_ack(told)
        assert cubic.cwnd < 1.3 * before
        cubic.on_idle(1.0)
        for _ in range(6):
            before = cubic.cwnd
            una += before
            told = ack(before, before, una, rtt=0.03)
            told.nxt = una + before
            cubic.on_ack(told)
            assert cubic.cwnd == 2 * before

    def test_delay_increases_below_four_milliseconds_are_ignored(self) -> None:
        assert rounds(HyStart(), [0.001, 0.0045, 0.001, 0.0045]) == [1] * 4
