"""RACK and tail loss probes: which segments are marked lost, and when.

Records of 1000 bytes are sent 1 ms apart; the round-trip time is 10 ms.
"""

from __future__ import annotations

import pytest

from softnic.tcp.rack import MinimumRtt, Rack
from softnic.tcp.scoreboard import LOST, Scoreboard
from tests.tcp.marks import new_ack

SMSS = 1000


def flying(count: int) -> tuple[Scoreboard, Rack]:
    flight = Scoreboard()
    for number in range(count):
        flight.sent(1000 * number, 1000 * (number + 1), SMSS, number * 0.001)
    return flight, Rack()


def sack(flight: Scoreboard, rack: Rack, start: int, end: int, now: float) -> None:
    arrived = new_ack(now, flight.size)
    flight.sack(start, end, arrived)
    rack.update(arrived, None)


def lost(flight: Scoreboard) -> list[int]:
    return [record.start for record in flight.ranges if record.state == LOST]


def detect(flight: Scoreboard, rack: Rack, now: float, recovering: bool = False) -> float:
    return rack.detect(flight, rack.window(flight, recovering, SMSS, 0.01), now)


def test_a_segment_is_lost_when_three_later_ones_have_arrived() -> None:
    flight, rack = flying(6)
    for number in (1, 2):
        sack(flight, rack, 1000 * number, 1000 * (number + 1), 0.010 + number * 0.001)
        detect(flight, rack, 0.010 + number * 0.001)
        assert lost(flight) == []
    sack(flight, rack, 3000, 4000, 0.013)
    detect(flight, rack, 0.013)
    assert lost(flight) == [0]


def test_with_fewer_than_three_the_reordering_window_is_a_quarter_of_a_round_trip() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 2000, 0.011)
    until = detect(flight, rack, 0.011)
    assert until == pytest.approx(0.0 + 0.010 + 0.0025)
    detect(flight, rack, until)
    assert lost(flight) == [0]


def test_the_reordering_window_is_zero_in_recovery() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 2000, 0.011)
    detect(flight, rack, 0.011, recovering=True)
    assert lost(flight) == [0]


def test_the_reordering_timer_is_set_for_the_last_late_segment() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 3000, 4000, 0.013)
    assert detect(flight, rack, 0.012) == pytest.approx(0.002 + 0.010 + 0.0025)


def test_a_late_arrival_does_not_move_the_latest_arrival_back() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 4000, 5000, 0.014)
    sack(flight, rack, 1000, 2000, 0.015)
    assert (rack.sent_at, rack.end) == (0.004, 5000)


def test_the_minimum_round_trip_time_expires() -> None:
    minimum = MinimumRtt()
    for now, rtt, least in ((0.0, 5, 5), (50.0, 3, 3), (61.0, 7, 3), (110.0, 6, 3), (122.0, 9, 6), (300.0, 10, 10)):
        minimum.sample(rtt, now)
        assert minimum.least == least


def test_segments_sent_after_the_latest_arrival_are_not_lost() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 4000, 0.013)
    detect(flight, rack, 0.5, recovering=True)
    assert lost(flight) == [0]


def test_sequence_decides_between_segments_sent_at_the_same_time() -> None:
    flight, rack = Scoreboard(), Rack()
    flight.sent(0, 10_000, 10 * SMSS, 0.0)
    sack(flight, rack, 4000, 8000, 0.010)
    detect(flight, rack, 0.010)
    assert lost(flight) == [0]
    assert flight.ranges[0].end == 4000


def test_the_reordering_window_is_used_once_reordering_was_seen() -> None:
    flight, rack = flying(10)
    sack(flight, rack, 1000, 2000, 0.011)
    sack(flight, rack, 0, 1000, 0.0115)  # late, and never sent twice
    assert rack.reordering_seen
    sack(flight, rack, 3000, 7000, 0.016)
    until = detect(flight, rack, 0.012)
    assert lost(flight) == []
    assert until > 0.012


def test_duplicates_make_the_window_longer_once_a_round_trip() -> None:
    flight, rack = flying(10)
    sack(flight, rack, 1000, 2000, 0.011)
    sack(flight, rack, 0, 1000, 0.0115)
    short = rack.window(flight, False, SMSS, 1.0)
    rack.duplicate(0, 10_000)
    rack.duplicate(500, 10_000)
    assert rack.window(flight, False, SMSS, 1.0) == pytest.approx(2 * short)
    rack.duplicate(10_000, 20_000)
    assert rack.window(flight, False, SMSS, 1.0) == pytest.approx(3 * short)
    assert rack.window(flight, False, SMSS, 0.001) == 0.001  # a round trip at most
    for _ in range(15):
        rack.recovered()
    assert rack.window(flight, False, SMSS, 1.0) == pytest.approx(3 * short)
    rack.recovered()
    assert rack.window(flight, False, SMSS, 1.0) == pytest.approx(short)


def test_a_lost_retransmission_is_found() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 4000, 0.013)
    detect(flight, rack, 0.013)
    flight.sent_again(0, 1000, SMSS, 0.013)
    detect(flight, rack, 0.015, recovering=True)
    assert lost(flight) == []
    flight.sent(6000, 7000, SMSS, 0.014)
    sack(flight, rack, 6000, 7000, 0.024)
    detect(flight, rack, 0.024, recovering=True)
    assert lost(flight) == [0, 4000, 5000]


def test_an_ack_too_early_for_a_retransmission_is_of_the_original() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 4000, 0.013)
    flight.sent_again(0, 1000, SMSS, 0.014)
    before = rack.sent_at
    arrived = new_ack(0.015, flight.size)
    flight.acknowledge(1000, arrived)
    rack.update(arrived, None)
    assert rack.sent_at == before


def test_an_ack_with_an_older_echo_is_of_the_original() -> None:
    flight, rack = flying(6)
    sack(flight, rack, 1000, 4000, 0.013)
    flight.sent_again(0, 1000, SMSS, 0.014)
    before = rack.sent_at
    arrived = new_ack(0.026, flight.size)
    flight.acknowledge(1000, arrived)
    rack.update(arrived, 0.026)
    assert rack.sent_at == before


def test_a_timeout_marks_the_first_segment_lost_however_late_it_was_sent() -> None:
    flight, rack = flying(2)
    flight.sent_again(0, 1000, SMSS, 0.199)
    rack.rtt = 0.01
    rack.probed(2000, True)
    rack.timed_out(flight, 0.2, 0.0)
    assert lost(flight) == [0, 1000]
    assert rack.probe_end is None


def test_a_timeout_marks_segments_as_old_as_the_first_lost() -> None:
    flight, rack = flying(4)
    sack(flight, rack, 1000, 2000, 0.011)
    flight.sent(4000, 5000, SMSS, 0.205)
    rack.timed_out(flight, 0.210, 0.0)
    assert lost(flight) == [0, 2000, 3000]


def test_a_timeout_with_the_first_segment_reported_discards_all_reports() -> None:
    flight, rack = flying(4)
    sack(flight, rack, 0, 2000, 0.011)
    rack.timed_out(flight, 0.210, 0.0)
    assert flight.sacked == 0
    assert 0 in lost(flight)


class TestProbe:
    def test_the_probe_timeout_is_two_round_trips_with_a_minimum(self) -> None:
        flight, rack = flying(3)
        assert rack.probe_after(flight, SMSS, 0.05) == pytest.approx(0.1)
        assert rack.probe_after(flight, SMSS, 0.0001) == 0.01
        assert rack.probe_after(flight, SMSS, 0.0) == 1.0  # nothing was measured yet

    def test_the_probe_timeout_of_a_lone_segment_includes_the_delayed_ack(self) -> None:
        flight, rack = flying(1)
        assert rack.probe_after(flight, SMSS, 0.05) == pytest.approx(0.3)

    def test_one_probe_at_a_time_and_none_in_recovery(self) -> None:
        flight, rack = flying(3)
        rack.probed(3000, True)
        assert rack.probe_after(flight, SMSS, 0.05) == float("inf")
        flight, rack = flying(3)
        sack(flight, rack, 1000, 2000, 0.01)
        assert rack.probe_after(flight, SMSS, 0.05) == float("inf")

    @pytest.mark.parametrize(
        ("repeats", "dsack", "repaired"), [(True, False, True), (True, True, False), (False, False, False)]
    )
    def test_the_reply_to_a_probe(self, repeats: bool, dsack: bool, repaired: bool) -> None:
        _, rack = flying(3)
        rack.probed(3000, repeats)
        assert not rack.probe_answered(2000)
        if dsack:
            rack.duplicate(3000, 3000)
        assert rack.probe_answered(3000) is repaired
        assert rack.probe_end is None
