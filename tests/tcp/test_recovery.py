"""Proportional rate reduction: RFC 6937's examples, its end, and its reversal."""

from __future__ import annotations

import pytest

from softnic.tcp.recovery import Recovery
from softnic.tcp.reno import Reno
from softnic.tcp.scoreboard import Scoreboard
from softnic.tcp.snd import SendState
from tests.tcp.marks import mark_lost, new_ack

FRAME = 1000


def flying(frames: int) -> tuple[Recovery, Reno, Scoreboard]:
    """Return the parts of a flow with `frames` frames in flight."""
    recovery, reno = Recovery(), Reno(FRAME)
    reno.attach(recovery.memory)
    snd = SendState(0, memory=recovery.memory)
    snd.snd_nxt = frames * FRAME
    snd.scoreboard.sent(0, frames * FRAME, frames * FRAME, 0.0)
    return recovery, reno, snd.scoreboard


def losing(frames: int) -> tuple[Recovery, Reno, Scoreboard]:
    """Return the state in which the first of `frames` frames in flight is lost."""
    recovery, reno, flight = flying(frames)
    reno.cwnd = frames * FRAME
    flight.mark_head_lost(FRAME)
    recovery.begin()
    return recovery, reno, flight


def test_half_as_much_is_sent_as_arrives() -> None:
    recovery, reno, flight = losing(20)
    sent = 0
    for number in range(1, 20):
        arrived = new_ack(1.0, flight.size)
        flight.sack(number * FRAME, (number + 1) * FRAME, arrived)
        window = recovery.window(arrived.wire_bytes, False)
        while flight.pipe + FRAME <= window:
            start = flight.ranges[-1].end
            flight.sent(start, start + FRAME, FRAME, 1.0)
            recovery.sent(FRAME)
            sent += 1
    assert sent in (9, 10)
    assert flight.pipe <= reno.ssthresh == 10 * FRAME


def test_the_window_never_falls_below_the_target_for_long() -> None:
    """Most of the flight is lost: each frame delivered allows one more, up to the target."""
    recovery, _, flight = losing(20)
    mark_lost(flight, flight.ranges[1])
    arrived = new_ack(1.0, flight.size)
    flight.sack(19 * FRAME, 20 * FRAME, arrived)
    assert recovery.window(FRAME, False) == flight.pipe + FRAME
    assert recovery.window(FRAME, True) == flight.pipe + 3 * FRAME  # slow start while no more losses are found
    recovery.sent(9 * FRAME)
    assert recovery.window(FRAME, True) == flight.pipe + 2 * FRAME  # RFC 6937: DeliveredData at least


def test_excess_frames_do_not_reduce_the_flight() -> None:
    recovery, _, flight = losing(20)
    recovery.sent(3 * FRAME)
    assert recovery.window(FRAME, False) == flight.pipe


def test_the_window_is_at_least_a_frame() -> None:
    recovery, _, flight = losing(1)
    assert (flight.pipe, recovery.window(0, False)) == (0, FRAME)


def test_each_recovery_starts_its_own_counts() -> None:
    recovery, _, flight = losing(20)
    recovery.window(5 * FRAME, False)
    recovery.sent(20 * FRAME)
    recovery.begin()
    assert recovery.window(2 * FRAME, False) == flight.pipe + FRAME


def test_a_timeout_in_recovery_reduces_nothing_again() -> None:
    recovery, reno, _ = losing(20)
    reno.ssthresh = 7 * FRAME  # which cannot be computed from the flight any more
    recovery.begin_after_timeout(False)
    assert (reno.cwnd, reno.ssthresh) == (FRAME, 7 * FRAME)


def test_the_first_retransmission_ignores_the_window() -> None:
    recovery, _, _ = losing(20)
    assert recovery.must_send
    recovery.sent(FRAME)
    assert not recovery.must_send


def test_recovery_ends_when_the_whole_flight_is_acknowledged() -> None:
    recovery, _, _ = losing(20)
    assert not recovery.ends(20 * FRAME - 1)
    assert recovery.ends(20 * FRAME)
    assert recovery.is_open
    assert not recovery.ends(20 * FRAME)


@pytest.mark.parametrize(("echo", "undone"), [(499, True), (500, False), (501, False), (None, False)])
def test_an_ack_of_the_original_undoes_the_reduction(echo: int | None, undone: bool) -> None:
    recovery, reno, _ = losing(20)
    before = 20 * FRAME
    recovery.sent_again(500)
    recovery.sent_again(600)
    reno.cwnd = 1
    assert recovery.undo(echo) is undone
    assert reno.cwnd == (before if undone else 1)
    assert recovery.is_open is undone
    assert not recovery.undo(1)  # the first answer only


def test_nothing_is_undone_if_the_ack_may_be_of_an_earlier_retransmission() -> None:
    recovery, _, flight = flying(20)
    flight.sent_again(0, FRAME, FRAME, 0.5)
    mark_lost(flight, flight.ranges[1])
    recovery.begin()
    recovery.sent_again(500)
    assert not recovery.undo(499)
    assert recovery.is_fast


def test_a_second_timeout_remembers_the_window_before_the_first() -> None:
    recovery, reno, _ = flying(20)
    reno.cwnd = 50 * FRAME
    recovery.begin_after_timeout(False)
    recovery.sent_again(10)
    assert (reno.cwnd, reno.ssthresh) == (FRAME, 10 * FRAME)
    recovery.begin_after_timeout(True)
    assert reno.ssthresh == 10 * FRAME
    assert recovery.undo(5)
    assert reno.cwnd == 50 * FRAME
