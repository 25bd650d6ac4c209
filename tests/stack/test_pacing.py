"""Pacing: bursts of a millisecond, longer where a timer came late, never because nothing was sent."""

from __future__ import annotations

import pytest

from softnic.stack.tcp.pacing import BURST_S, CREDIT_S, Pacer

RATE = 1e8
SMSS = 1000


def test_bursts_keep_the_rate() -> None:
    pacer, now, sent = Pacer(), 10.0, 0
    pacer.rate = RATE
    for _ in range(100):
        while (frames := pacer.burst(SMSS, now)) > 0:
            pacer.sent(frames * SMSS, now)
            sent += frames * SMSS
        now = pacer.free_at
    assert sent / (now - 10.0) == pytest.approx(RATE, rel=0.03)


def test_a_late_timer_makes_a_burst_longer_and_a_pause_does_not() -> None:
    pacer = Pacer()
    pacer.rate = RATE
    assert pacer.burst(SMSS, 10.0) == RATE * BURST_S // SMSS
    pacer.woken(0.004)
    assert pacer.burst(SMSS, 10.0) == pytest.approx(RATE * (BURST_S + 0.004) / SMSS, abs=1)
    pacer.woken(5.0)
    assert pacer.burst(SMSS, 10.0) == pytest.approx(RATE * (BURST_S + CREDIT_S) / SMSS, abs=1)
    pacer.sent(SMSS, 10.0)
    assert pacer.burst(SMSS, 20.0) == RATE * BURST_S // SMSS


def test_no_rate_no_pace() -> None:
    pacer = Pacer()
    pacer.sent(10**9, 1.0)
    assert pacer.burst(SMSS, 1.0) > 10**6
