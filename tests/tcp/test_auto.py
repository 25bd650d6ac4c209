"""Congestion control by the path: which algorithm is used, and what stays when it changes."""

from __future__ import annotations

import pytest

from softnic.tcp.algorithms import ALGORITHMS, name_in_use
from softnic.tcp.bbr import Mode
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Pump, Wire


def exchange(lab: Lab, ends: tuple[Connection, Connection], count: int = 10) -> None:
    """Sends some frames, this many times, each time when the last ones have come."""
    source, sink = ends
    for _ in range(count):
        wanted = sink.rcv.bytes_received + source.send(bytes(5000))
        assert lab.run(lambda wanted=wanted: sink.rcv.bytes_received >= wanted)  # type: ignore[misc]
        sink.recv(5000)
    lab.run(limit_s=2 * lab.wire.delay_s)


def in_use(connection: Connection) -> str:
    return name_in_use(connection.congestion)


@pytest.mark.parametrize(("delay_s", "name"), [(0.0001, "cubic"), (0.0024, "cubic"), (0.0026, "bbr"), (0.05, "bbr")])
def test_the_round_trip_decides(delay_s: float, name: str) -> None:
    assert TcpConfig().congestion == "auto"
    lab = Lab(Wire(delay_s=delay_s))
    ends = lab.pair()
    assert in_use(ends[0]) == "auto: cubic"
    exchange(lab, ends)
    assert in_use(ends[0]) == f"auto: {name}"
    assert ends[0].info(lab.now).congestion == f"auto: {name}"


def test_an_answer_that_is_slow_does_not_make_a_path_long() -> None:
    """The handshake was fast: the peer, which delays its answer, has a short way."""
    lab = Lab(Wire(delay_s=0.001))
    ends = lab.pair()
    lab.wire.delay_s = 0.05
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"


def test_a_path_that_has_changed_is_known_after_two_minutes() -> None:
    lab = Lab(Wire(delay_s=0.001))
    ends = lab.pair()
    exchange(lab, ends)
    lab.wire.delay_s = 0.02
    for _ in range(13):
        lab.run(limit_s=10.0)
        exchange(lab, ends)
    assert in_use(ends[0]) == "auto: bbr"
    lab.wire.delay_s = 0.001
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"


def test_the_window_stays_and_bbr_begins_anew() -> None:
    lab = Lab(Wire(delay_s=0.02))
    ends = lab.pair()
    ends[0].send(bytes(5000))
    lab.run(limit_s=0.03)
    before = flow(ends[0]).cwnd
    assert in_use(ends[0]) == "auto: cubic"
    lab.run(limit_s=0.02)
    assert in_use(ends[0]) == "auto: bbr"
    assert 0 <= flow(ends[0]).cwnd - before <= 5000 + 4 * 66
    bbr = ALGORITHMS["bbr"](1514, ends[0].congestion)
    bbr.copy_fields(ends[0].congestion)
    assert (bbr.mode, bbr.least_rtt) == (Mode.STARTUP, pytest.approx(0.04))  # type: ignore[attr-defined]


def lose(connection: Connection, srtt: float, count: int = 1) -> None:
    """Recovers from losses at this round trip, while the minimum is 4 ms."""
    connection.rack.minimum.now = 0.004
    for _ in range(count):
        connection.rtt.srtt = srtt
        connection.recovery.begin()


@pytest.mark.parametrize(("srtt", "name"), [(0.0049, "bbr"), (0.0051, "cubic")])
def test_losses_without_a_queue_are_not_congestion(srtt: float, name: str) -> None:
    lab = Lab(Wire(delay_s=0.002))
    ends = lab.pair()
    lose(ends[0], srtt, count=7)
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"
    lose(ends[0], srtt)
    exchange(lab, ends)
    assert in_use(ends[0]) == f"auto: {name}"


def test_a_loss_with_a_queue_counts_from_the_beginning() -> None:
    lab = Lab(Wire(delay_s=0.002))
    ends = lab.pair()
    for _ in range(3):
        lose(ends[0], 0.004, count=7)
        lose(ends[0], 0.008)
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"


def test_losses_are_congestion_again_after_a_minute_s_pause() -> None:
    lab = Lab(Wire(delay_s=0.002))
    ends = lab.pair()
    lose(ends[0], 0.004, count=8)
    exchange(lab, ends)
    lab.run(limit_s=50.0)
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: bbr"
    lab.run(limit_s=70.0)
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"


def test_paths_that_are_not_paced_stay_with_cubic() -> None:
    lab = Lab(Wire(delay_s=0.0009))
    ends = lab.pair()
    for _ in range(20):
        ends[0].rtt.srtt = 0.0018
        ends[0].recovery.begin()
    exchange(lab, ends)
    assert in_use(ends[0]) == "auto: cubic"


def test_a_short_path_with_random_losses_is_used_by_bbr() -> None:
    """4 ms there and back, 0.5 % lost: CUBIC has some fifteen frames in flight."""
    took = {}
    for name in ("cubic", "auto"):
        lab = Lab(Wire(delay_s=0.002, loss=0.005), config=TcpConfig(congestion=name))
        pump = Pump(*lab.pair(), bytes(8_000_000))
        began = lab.now
        assert lab.run(pump)
        took[name] = lab.now - began
    assert in_use(pump.source) == "auto: bbr"
    assert took["auto"] < took["cubic"] / 2


def test_other_algorithms_stay_what_they_are() -> None:
    for name in ("cubic", "reno", "bbr"):
        lab = Lab(Wire(delay_s=0.02))
        ends = lab.pair()
        ends[0].set_congestion(name)
        exchange(lab, ends)
        assert in_use(ends[0]) == name
