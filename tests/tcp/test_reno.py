"""Reno, and the part common to all congestion control algorithms, in frames of 1000 wire bytes."""

from __future__ import annotations

import pytest

from softnic.tcp.algorithms import ALGORITHMS
from softnic.tcp.congestion import Congestion
from softnic.tcp.reno import Reno
from softnic.tcp.scoreboard import Ack
from tests.tcp.flows import flow
from tests.tcp.marks import new_ack
from tests.tcp.script import ACK, MSS, Script


def ack(arrived: int, flight: int, una: int = 0, *, now: float = 1.0, rtt: float = 0.01) -> Ack:
    told = new_ack(now, flight)
    told.wire_bytes, told.pipe = arrived, flight - arrived
    told.una, told.nxt = una, una + flight
    told.rtt = told.srtt = rtt
    told.delivered = una
    return told


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_slow_start_doubles_with_every_round_trip(name: str) -> None:
    window = ALGORITHMS[name](1000)
    assert window.cwnd == 10_000
    window.on_ack(ack(10_000, 10_000))
    assert window.cwnd == 20_000


def test_congestion_avoidance_adds_a_frame_with_every_round_trip() -> None:
    reno = Reno(1000)
    reno.cwnd = reno.ssthresh = 8000
    for _ in range(8):
        reno.on_ack(ack(1000, 8000))
    assert reno.cwnd == 9000


def test_slow_start_ends_at_ssthresh_in_the_middle_of_an_ack() -> None:
    reno = Reno(1000)
    reno.cwnd, reno.ssthresh = 4000, 6000
    reno.on_ack(ack(8000, 8000))
    assert reno.cwnd == 7000  # 2000 bytes of slow start, and 6000 more are one window


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_an_unused_window_does_not_grow(name: str) -> None:
    window = ALGORITHMS[name](1000)
    for number in range(100):
        window.on_ack(ack(1000, 1000, number))
    assert window.cwnd == 10_000
    window.ssthresh = window.cwnd
    for number in range(100):
        window.on_ack(ack(1000, 1000, number, now=number))
    assert window.cwnd == 10_000


@pytest.mark.parametrize(("flight", "grows"), [(3999, False), (4000, True)])
def test_a_half_used_window_grows_in_slow_start(flight: int, grows: bool) -> None:
    reno = Reno(1000)
    reno.cwnd, reno.ssthresh = 8000, 20_000
    reno.on_ack(ack(1000, flight))
    assert (reno.cwnd > 8000) is grows


def test_the_remainder_of_an_acknowledgement_counts_for_the_next_frame() -> None:
    reno = Reno(1000)
    reno.cwnd = reno.ssthresh = 8000
    reno.on_ack(ack(12_000, 12_000))
    assert reno.cwnd == 9000
    reno.on_ack(ack(5000, 9000))
    assert reno.cwnd == 10_000


def test_a_loss_halves_the_flight() -> None:
    reno = Reno(1000)
    reno.on_loss(12_000)
    assert reno.ssthresh == 6000
    reno.on_loss(3000)
    assert reno.ssthresh == 2000  # never below two segments


def test_a_timeout_sets_the_window_to_one_frame_and_keeps_ssthresh_if_repeated() -> None:
    reno = Reno(1000)
    reno.on_timeout(10_000, True)
    assert (reno.cwnd, reno.ssthresh) == (1000, 5000)
    reno.on_timeout(1000, False)
    assert (reno.cwnd, reno.ssthresh) == (1000, 5000)


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_ssthresh_is_at_least_two_frames(name: str) -> None:
    window = ALGORITHMS[name](1000)
    window.on_loss(1000)
    assert window.ssthresh == 2000


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_an_idle_connection_starts_again_with_the_initial_window(name: str) -> None:
    window = ALGORITHMS[name](1000)
    window.cwnd = 500_000
    window.on_idle(1.0)
    assert window.cwnd == 10_000


def test_a_reduction_can_be_undone() -> None:
    for algorithm in ALGORITHMS.values():
        window: Congestion = algorithm(1000)
        window.on_ack(ack(10_000, 10_000))
        before = algorithm(1000)
        before.copy_fields(window)
        had = window.cwnd, window.ssthresh
        window.on_timeout(20_000, True)
        assert window.cwnd == 1000
        window.restore(before)
        assert (window.cwnd, window.ssthresh) == had


@pytest.mark.parametrize(("idle_s", "left"), [(0.19, 500_000), (0.3, 10 * (MSS + 54))])
def test_a_connection_is_idle_after_a_timeout_without_sending(idle_s: float, left: int) -> None:
    script = Script()
    connection = script.established()
    connection.send(b"x")
    script.sent()
    script.receive(ACK, 1, 2)
    flow(connection).cwnd = 500_000
    script.wait(idle_s)
    connection.send(b"x")
    script.sent()
    assert flow(connection).cwnd == left


def test_a_connection_with_data_in_flight_is_not_idle() -> None:
    script = Script()
    connection = script.established()
    flow(connection).cwnd = 500_000
    connection.send(bytes(2 * MSS))
    script.sent()
    connection.last_sent_at -= 10
    connection.send(bytes(MSS))
    assert len(script.sent()) == 1
    assert flow(connection).cwnd >= 500_000


def test_another_algorithm_continues_with_the_window() -> None:
    reno = Reno(1000)
    reno.cwnd = reno.ssthresh = 77_000
    for name in ("cubic", "reno"):
        other = ALGORITHMS[name](1000, reno)
        assert (other.cwnd, other.ssthresh) == (77_000, 77_000)
    connection = Script().established()
    flow(connection).cwnd = 77_000
    connection.set_congestion("reno")
    assert (flow(connection).congestion_name, flow(connection).cwnd) == ("reno", 77_000)
