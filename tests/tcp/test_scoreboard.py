"""The scoreboard: wire bytes acknowledged, reported, lost and retransmitted, in whole records and in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from softnic.tcp.scoreboard import LOST, OUT, SACKED, Ack, Scoreboard
from tests.tcp.marks import mark_lost, new_ack


def acknowledge(flight: Scoreboard, una: int) -> Ack:
    arrived = new_ack(0.0, flight.size)
    flight.acknowledge(una, arrived)
    return arrived


def sack(flight: Scoreboard, start: int, end: int) -> Ack:
    arrived = new_ack(0.0, flight.size)
    flight.sack(start, end, arrived)
    return arrived


def shape(flight: Scoreboard) -> list[tuple[int, int, int]]:
    return [(record.start, record.end, record.state) for record in flight.ranges]


def test_an_acknowledged_record_is_returned_with_its_time() -> None:
    flight = Scoreboard()
    flight.sent(1, 300_001, 1500, 5.0)
    flight.sent(300_001, 301_449, 1514, 6.0)
    arrived = acknowledge(flight, 300_001)
    assert arrived.has_newest
    assert (arrived.wire_bytes, arrived.newest.sent_at, arrived.never_retransmitted) == (1500, 5.0, True)
    assert flight.pipe == 1514
    assert acknowledge(flight, 301_449).wire_bytes == 1514
    assert not flight


def test_an_ack_inside_a_record_counts_its_part() -> None:
    flight = Scoreboard()
    flight.sent(0, 1000, 100, 5.0)
    assert acknowledge(flight, 250).wire_bytes == 25
    assert acknowledge(flight, 1000).wire_bytes == 75


def test_a_retransmitted_record_is_marked() -> None:
    flight = Scoreboard()
    flight.sent(0, 1000, 1000, 5.0)
    flight.sent(1000, 2000, 1000, 5.1)
    flight.sent_again(0, 1000, 1000, 5.2)
    arrived = acknowledge(flight, 2000)
    assert arrived.has_newest
    assert (arrived.never_retransmitted, arrived.newest.sent_at) == (False, 5.2)


def test_blocks_split_records_and_are_merged() -> None:
    flight = Scoreboard()
    flight.sent(0, 1000, 100, 5.0)
    flight.sent(1000, 2000, 100, 6.0)
    assert sack(flight, 500, 1000).wire_bytes == 50
    assert sack(flight, 500, 1500).wire_bytes == 50
    assert shape(flight) == [(0, 500, OUT), (500, 1500, SACKED), (1500, 2000, OUT)]
    assert (flight.pipe, flight.sacked, flight.highest) == (100, 100, 1500)
    assert sack(flight, 600, 1400).wire_bytes == 0
    assert acknowledge(flight, 1500).wire_bytes == 50  # bytes reported before are not counted again
    assert (flight.pipe, flight.sacked) == (50, 0)


def test_a_late_arrival_that_was_not_retransmitted_is_reordering() -> None:
    flight = Scoreboard()
    flight.sent(0, 3000, 300, 5.0)
    assert not sack(flight, 2000, 3000).reordered
    assert sack(flight, 1000, 2000).reordered
    assert acknowledge(flight, 3000).reordered


def test_lost_bytes_are_not_in_flight_until_retransmitted() -> None:
    flight = Scoreboard()
    flight.sent(0, 3000, 300, 5.0)
    sack(flight, 1000, 1100)
    mark_lost(flight, flight.ranges[0])
    assert flight.first_lost() == (0, 1000)
    assert (flight.pipe, flight.lost, flight.sacked, flight.size) == (190, 100, 10, 300)
    flight.sent_again(0, 400, 60, 6.0)
    assert flight.first_lost() == (400, 1000)
    assert (flight.pipe, flight.lost) == (250, 60)
    flight.undo_lost_marks()
    assert (flight.pipe, flight.lost, flight.first_lost()) == (310, 0, None)


def test_lost_neighbours_are_one_range() -> None:
    flight = Scoreboard()
    for start in range(0, 5000, 1000):
        flight.sent(start, start + 1000, 100, 5.0)
    for record in flight.ranges[1:4]:
        mark_lost(flight, record)
    assert flight.first_lost() == (1000, 4000)


def test_reneging() -> None:
    flight = Scoreboard()
    flight.sent(0, 2000, 200, 5.0)
    sack(flight, 0, 1000)
    flight.on_sack_reneging()
    assert (flight.pipe, flight.sacked) == (200, 0)
    assert not acknowledge(flight, 1000).never_retransmitted


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5000), st.integers(66, 3000)),
        st.tuples(st.just("sack"), st.integers(0, 30_000), st.integers(1, 9000)),
        st.tuples(st.just("ack"), st.integers(0, 9000), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("again"), st.integers(1, 5000), st.integers(66, 3000)),
    ),
    max_size=60,
)


@given(steps)
def test_every_wire_byte_is_in_one_sum_and_arrives_once(script: list[tuple[str, int, int]]) -> None:
    flight, una, nxt, sent, come = Scoreboard(), 0, 0, 0, 0
    reported: set[int] = set()
    for now, (step, first, second) in enumerate(script):
        if step == "send":
            flight.sent(nxt, nxt + first, second, now)
            nxt, sent = nxt + first, sent + second
        elif step == "sack":
            come += sack(flight, una + first, una + first + second).wire_bytes
            reported |= set(range(max(una, una + first), min(nxt, una + first + second)))
        elif step == "ack":
            una = min(nxt, una + first)
            come += acknowledge(flight, una).wire_bytes
        elif step == "lose" and first < len(flight.ranges) and flight.ranges[first].state == OUT:
            mark_lost(flight, flight.ranges[first])
        elif step == "again" and (lost := flight.first_lost()) is not None:
            end = min(lost[1], lost[0] + first)
            before = flight.size
            flight.sent_again(lost[0], end, second, now)
            sent += flight.size - before
        assert come + flight.pipe + flight.lost == sent
        for state, total in ((OUT, flight.pipe), (SACKED, flight.sacked), (LOST, flight.lost)):
            assert total == sum(record.wire_bytes for record in flight.ranges if record.state == state)
        edges = [edge for record in flight.ranges for edge in (record.start, record.end)]
        assert edges == sorted(edges)
        assert not edges or (edges[0], edges[-1]) == (una, nxt)
        assert {p for r in flight.ranges if r.state == SACKED for p in range(r.start, r.end)} == {
            p for p in reported if p >= una
        }
