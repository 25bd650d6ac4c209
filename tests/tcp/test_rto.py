"""The retransmission timeout of RFC 6298, sections 2 and 5, computed with the RFC's formulas."""

from __future__ import annotations

import pytest

from softnic.tcp.rto import RetransmissionTimeout


def timeout() -> RetransmissionTimeout:
    return RetransmissionTimeout(1.0, 0.2, 60.0)


def test_one_second_before_the_first_sample() -> None:
    assert timeout().rto == 1.0


def test_the_first_sample() -> None:
    rtt = timeout()
    rtt.sample(0.5)
    assert (rtt.srtt, rtt.rttvar) == (0.5, 0.25)
    assert rtt.rto == 0.5 + 4 * 0.25


def test_later_samples_are_smoothed() -> None:
    rtt = timeout()
    rtt.sample(0.5)
    rtt.sample(0.7)
    assert rtt.rttvar == pytest.approx(0.75 * 0.25 + 0.25 * 0.2)
    assert rtt.srtt == pytest.approx(0.875 * 0.5 + 0.125 * 0.7)


def test_never_below_the_minimum() -> None:
    rtt = timeout()
    for _ in range(50):
        rtt.sample(0.0001)
    assert rtt.rto == 0.2


def test_the_variance_term_is_at_least_a_clock_tick() -> None:
    """The clock's granularity, however little round trips vary (RFC 6298, section 2.3)."""
    rtt = RetransmissionTimeout(1.0, 0.0, 60.0)
    for _ in range(100):
        rtt.sample(0.05)
    assert rtt.rto == pytest.approx(0.051)


def test_the_maximum_holds_before_the_first_sample() -> None:
    assert RetransmissionTimeout(1.0, 0.2, 0.5).rto == 0.5


def test_backoff_doubles_up_to_the_maximum() -> None:
    rtt = timeout()
    rtt.sample(0.5)
    for _ in range(3):
        rtt.back_off()
    assert rtt.rto == 1.5 * 8
    for _ in range(10_000):
        rtt.back_off()
    assert rtt.rto == 60.0
    rtt.answered()
    assert rtt.rto == 1.5
