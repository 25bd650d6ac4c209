"""Wire bytes of what is acknowledged, in whole records and in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from softnic.stack.tcp.flight import Flight


def test_a_record_leaves_whole_with_its_time() -> None:
    flight = Flight()
    flight.sent(1, 300_001, 1500, 5.0, once=True)
    flight.sent(300_001, 301_449, 1514, 6.0, once=True)
    assert flight.acknowledged(300_001) == (1500, 5.0)
    assert flight.wire_bytes == 1514
    assert flight.acknowledged(301_449) == (1514, 6.0)
    assert not flight


def test_an_ack_inside_a_record_takes_its_share() -> None:
    flight = Flight()
    flight.sent(0, 1000, 100, 5.0, once=True)
    assert flight.acknowledged(250) == (25, 5.0)
    assert flight.acknowledged(1000) == (75, 5.0)


def test_no_time_where_a_retransmission_makes_it_ambiguous() -> None:
    flight = Flight()
    flight.sent(0, 1000, 1000, 5.0, once=True)
    flight.sent(1000, 2000, 1000, 5.1, once=True)
    flight.sent_again(1000)
    assert flight.acknowledged(2000) == (2000, None)
    flight.sent(2000, 3000, 1000, 6.0, once=False)
    assert flight.acknowledged(3000) == (1000, None)


@given(st.lists(st.tuples(st.integers(1, 300_000), st.integers(66, 200_000)), max_size=20), st.data())
def test_every_wire_byte_leaves_once(records: list[tuple[int, int]], data: st.DataObject) -> None:
    flight, end, total = Flight(), 0, 0
    for length, wire in records:
        flight.sent(end, end + length, wire, 0.0, once=True)
        end, total = end + length, total + wire
    left = 0
    for ack in [*sorted(data.draw(st.lists(st.integers(0, end), max_size=20))), end]:
        left += flight.acknowledged(ack)[0]
        assert flight.wire_bytes == total - left
    assert left == total
