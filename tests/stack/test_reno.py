"""Congestion control by itself, in frames of 1000 wire bytes."""

from __future__ import annotations

from softnic.stack.tcp.reno import Reno


def test_slow_start_doubles_with_every_round_trip() -> None:
    reno = Reno(1000)
    assert reno.cwnd == 10_000
    reno.on_ack(11_000, 10_000, 0)
    assert reno.cwnd == 20_000


def test_congestion_avoidance_adds_a_frame_with_every_round_trip() -> None:
    reno = Reno(1000)
    reno.cwnd = reno.ssthresh = 8000
    for ack in range(1, 9):
        reno.on_ack(1000 * ack, 1000, 7000)
    assert reno.cwnd == 9000


def test_slow_start_ends_at_ssthresh_in_the_middle_of_an_ack() -> None:
    reno = Reno(1000)
    reno.cwnd, reno.ssthresh = 4000, 6000
    reno.on_ack(8000, 8000, 0)
    assert reno.cwnd == 7000  # 2000 bytes of slow start, and 6000 more are one window


def test_a_window_that_is_not_used_does_not_grow() -> None:
    reno = Reno(1000)
    for ack in range(100):
        reno.on_ack(ack, 1000, 0)
    assert reno.cwnd == 10_000


def test_the_third_duplicate_starts_recovery_and_halves_the_flight() -> None:
    reno = Reno(1000)
    assert [reno.on_duplicate(5000, 15_000, 10_000) for _ in range(3)] == [False, False, True]
    assert (reno.ssthresh, reno.cwnd, reno.recover, reno.in_recovery) == (5000, 8000, 15_000, True)
    assert not reno.on_duplicate(5000, 15_000, 10_000)
    assert reno.cwnd == 9000


def test_never_below_two_segments() -> None:
    reno = Reno(1000)
    for _ in range(3):
        reno.on_duplicate(1, 3000, 3000)
    assert reno.ssthresh == 2000


def test_limited_transmit_lets_two_frames_out() -> None:
    reno = Reno(1000)
    assert reno.allowance(10_000) == 0
    reno.on_duplicate(1, 11_000, 10_000)
    assert reno.allowance(10_000) == 1000
    reno.on_duplicate(1, 11_000, 10_000)
    assert reno.allowance(10_000) == 2000


def test_a_partial_ack_retransmits_and_deflates_and_restarts_the_timer_once() -> None:
    reno = Reno(1000)
    for _ in range(3):
        reno.on_duplicate(1, 10_001, 10_000)
    assert reno.on_ack(3001, 3000, 7000) == (True, True)
    assert reno.cwnd == 8000 - 3000 + 1000
    assert reno.on_ack(4001, 1000, 6000) == (True, False)
    assert reno.in_recovery


def test_a_full_ack_ends_recovery() -> None:
    reno = Reno(1000)
    for _ in range(3):
        reno.on_duplicate(1, 10_001, 10_000)
    assert reno.on_ack(10_001, 10_000, 3000) == (False, True)
    assert (reno.cwnd, reno.in_recovery) == (4000, False)
    assert reno.ssthresh == 5000


def test_duplicates_of_what_was_sent_before_the_last_loss_are_not_believed() -> None:
    reno = Reno(1000)
    reno.on_timeout(10_001, 10_000, first=True)
    assert (reno.cwnd, reno.ssthresh) == (1000, 5000)
    assert [reno.on_duplicate(5001, 10_001, 1000) for _ in range(5)] == [False] * 5
    reno.on_ack(10_002, 5000, 3000)
    assert [reno.on_duplicate(10_002, 13_000, 3000) for _ in range(3)] == [False, False, True]


def test_a_second_timeout_leaves_ssthresh() -> None:
    reno = Reno(1000)
    reno.on_timeout(10_001, 10_000, first=True)
    reno.on_timeout(10_001, 1000, first=False)
    assert reno.ssthresh == 5000


def test_an_idle_connection_starts_again_with_the_initial_window() -> None:
    reno = Reno(1000)
    reno.cwnd = 500_000
    reno.on_idle()
    assert reno.cwnd == 10_000
