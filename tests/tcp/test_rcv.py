"""Reassembly and the receive window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.tcp.rcv import ReceiveState


def receiver(capacity: int = 100_000, pieces: int = 100) -> ReceiveState:
    rcv = ReceiveState(capacity, pieces)
    rcv.rcv_nxt = 1
    rcv.negotiated(7)
    rcv.advertise()
    return rcv


def taken(rcv: ReceiveState) -> bytes:
    data = b"".join(rcv.received)
    rcv.consume(len(data))
    return data


STREAM = bytes(index % 251 for index in range(5000))


def piece(start: int, end: int) -> memoryview:
    return memoryview(STREAM[start:end])


def test_in_order() -> None:
    rcv = receiver()
    rcv.put(1, piece(1, 10), False)
    rcv.put(10, piece(10, 30), False)
    assert taken(rcv) == STREAM[1:30]
    assert rcv.rcv_nxt == 30


def test_a_hole_is_filled() -> None:
    rcv = receiver()
    rcv.put(10, piece(10, 30), False)
    rcv.put(50, piece(50, 60), False)
    assert not rcv.received
    rcv.put(1, piece(1, 10), False)
    assert taken(rcv) == STREAM[1:30]
    rcv.put(25, piece(25, 55), False)
    assert taken(rcv) == STREAM[30:60]


def test_fin_waits_for_what_is_before_it() -> None:
    rcv = receiver()
    rcv.put(10, piece(10, 20), True)
    assert not rcv.eof
    rcv.put(1, piece(1, 10), False)
    assert rcv.eof
    assert rcv.rcv_nxt == 21
    assert rcv.bytes_received == 19


def test_data_behind_a_fin_is_dropped() -> None:
    rcv = receiver()
    rcv.put(10, memoryview(b""), True)
    rcv.put(1, piece(1, 50), False)
    assert taken(rcv) == STREAM[1:10]
    assert rcv.rcv_nxt == 11


def test_only_the_first_fin_counts() -> None:
    rcv = receiver()
    rcv.put(10, piece(10, 20), True)
    rcv.put(15, piece(15, 30), True)
    rcv.put(1, piece(1, 10), False)
    assert (taken(rcv), rcv.eof) == (STREAM[1:20], True)


@pytest.mark.parametrize(
    ("position", "length", "taken"),
    [
        *((100, 0, True), (100, 1, True), (50, 50, False), (50, 51, True), (99, 0, False)),
        *((199, 1, True), (200, 1, False), (200, 0, True), (201, 0, False), (201, 1, False)),
    ],
)
def test_acceptability(position: int, length: int, taken: bool) -> None:
    """Windows of 100 to 200 (RFC 9293, section 3.10.7.4); a zero window accepts only empty segments."""
    rcv = ReceiveState(100_000, 100)
    rcv.rcv_nxt, rcv.rcv_adv = 100, 200
    assert rcv.accepts(position, length) is taken
    rcv.rcv_adv = 100
    assert rcv.accepts(position, length) is (position == 100 and not length)


def test_the_number_of_pieces_is_limited() -> None:
    rcv = receiver(pieces=3)
    assert [rcv.put(10 * index, piece(10 * index, 10 * index + 1), False) for index in range(1, 5)] == [
        *(True, True, True, False)
    ]


spans = st.tuples(st.integers(1, 900), st.integers(1, 300)).map(lambda span: (span[0], min(1000, sum(span))))


@given(st.lists(spans, max_size=40))
def test_any_cuts_in_any_order_give_the_stream(segments: list[tuple[int, int]]) -> None:
    rcv, have = receiver(), set[int]()
    got = b""
    for start, end in segments:
        rcv.put(start, piece(start, end), False)
        have.update(range(start, end))
        got += taken(rcv)
        expected = next(position for position in range(1, 1002) if position not in have)
        assert rcv.rcv_nxt == expected
        assert got == STREAM[1:expected]
        kept = [set(range(s, s + len(p))) for s, p in rcv.waiting]
        assert all(bytes(p) == STREAM[s : s + len(p)] for s, p in rcv.waiting)
        assert sum(map(len, kept)) == len(set().union(*kept))
        assert set().union(*kept) == {position for position in have if position > expected}


def test_pieces_share_memory_and_are_copied() -> None:
    rcv = receiver()
    for index in range(1, 101):
        rcv.put(index, piece(index, index + 1), False)
    assert [bytes(view) for view in rcv.received] == [STREAM[1:101]]
    large = np.arange(40_000, dtype=np.uint8)
    before = large.tobytes()
    rcv.put(101, large.data, False)
    large[:] = 0
    assert [bytes(view) for view in rcv.received] == [STREAM[1:101], before]
    rcv.put(40_101, memoryview(b"behind"), False)
    rcv.consume(40_100)
    assert [bytes(view) for view in rcv.received] == [b"behind"]
    assert (rcv.buffer.size, rcv.unread) == (6, 6)


def test_a_small_part_of_a_large_buffer_is_copied() -> None:
    rcv = receiver()
    batch = memoryview(bytes(1_000_000))
    rcv.put(1, batch[:3000], False)
    rcv.put(5000, batch[:3000], False)
    assert all(payload.obj is not batch.obj for _, payload in rcv.waiting)


def test_consuming_in_parts() -> None:
    rcv = receiver()
    rcv.put(1, piece(1, 3001), False)
    rcv.put(3001, piece(3001, 3011), False)
    rcv.consume(2990)
    assert b"".join(rcv.received) == STREAM[2991:3011]
    rcv.consume(15)
    assert b"".join(rcv.received) == STREAM[3006:3011]
    with pytest.raises(ValueError, match="6 bytes read of 5"):
        rcv.consume(6)


class TestWindow:
    def test_the_window_shrinks_by_unread_bytes(self) -> None:
        rcv = receiver()
        full = rcv.rcv_wnd
        rcv.put(1, memoryview(bytes(60_000)), False)
        assert (rcv.advertise() << 7) == pytest.approx(full - 60_000, abs=128)

    def test_the_right_edge_retracts_by_less_than_a_unit_if_all_is_read(self) -> None:
        rcv = receiver()
        for position in range(1, 5001, 7):
            edge = rcv.rcv_adv
            rcv.put(position, piece(0, 7), False)
            rcv.consume(7)
            field = rcv.advertise()
            assert rcv.rcv_adv >= edge
            assert rcv.rcv_nxt + (field << 7) > edge - 128

    def test_the_right_edge_stays_within_a_unit_if_nothing_is_read(self) -> None:
        rcv = receiver()
        for position in range(1, 5001, 7):
            rcv.put(position, piece(0, 7), False)
            field = rcv.advertise()
            assert 100_001 <= rcv.rcv_nxt + (field << 7) < 100_001 + 128
            assert rcv.rcv_adv < 100_001 + 128

    def test_a_small_increase_is_not_announced(self) -> None:
        rcv = receiver(80_000)
        rcv.put(1, memoryview(bytes(rcv.rcv_wnd)), False)
        assert rcv.advertise() == 0
        rcv.consume(9_999)
        assert not rcv.wants_update()
        assert rcv.advertise() == 0
        rcv.consume(1)  # an eighth of the buffer
        assert rcv.wants_update()
        assert rcv.advertise() << 7 == pytest.approx(10_000, abs=128)

    @pytest.mark.parametrize("fin", [False, True])
    def test_no_window_update_after_a_fin(self, fin: bool) -> None:
        rcv = receiver()
        rcv.put(1, memoryview(bytes(50_000)), fin)
        rcv.consume(50_000)
        assert rcv.wants_update() is not fin

    def test_reading_a_part_of_an_overrun_leaves_the_window_closed(self) -> None:
        rcv = receiver(10_000)
        rcv.put(1, memoryview(bytes(300_000)), False)
        rcv.consume(5_000)
        assert rcv.advertise() == 0
        assert rcv.rcv_adv == rcv.rcv_nxt

    def test_one_huge_segment_may_overrun_it(self) -> None:
        rcv = receiver(10_000)
        assert rcv.put(9_000, memoryview(bytes(300_000)), False)
        rcv.put(1, memoryview(bytes(8_999)), False)
        assert rcv.unread == 308_999
        assert rcv.rcv_wnd == 0
        assert rcv.advertise() == 0
        rcv.consume(305_000)
        assert rcv.advertise() > 0
