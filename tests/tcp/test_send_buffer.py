"""Bytes, tags and cuts of the send buffer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.send_buffer import SendBuffer

FLOATS = Tag(0x28)


def write(buffer: SendBuffer, data: bytes) -> None:
    space = buffer.write_space()
    space[: len(data)] = data
    buffer.wrote(len(data))


def tagged(capacity: int = 100_000, written: int = 0) -> SendBuffer:
    buffer = SendBuffer(capacity)
    buffer.tag(FLOATS, 1, True)
    write(buffer, bytes(written))
    return buffer


def test_bytes_are_returned_as_written() -> None:
    buffer = SendBuffer(100)
    write(buffer, b"hello")
    write(buffer, b" there")
    assert bytes(buffer.view(1, 12)) == b"hello there"
    assert bytes(buffer.view(7, 12)) == b"there"


def test_a_full_buffer_has_no_space_until_bytes_are_released() -> None:
    buffer = SendBuffer(100)
    write(buffer, bytes(100))
    assert len(buffer.write_space()) == 0
    buffer.release(41)
    assert len(buffer.write_space()) == 40


def test_writing_more_than_the_space_is_an_error() -> None:
    buffer = SendBuffer(100)
    buffer.write_space()
    with pytest.raises(ValueError, match="never free"):
        buffer.wrote(101)


@given(st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=60))
def test_a_stream_goes_through_memory_of_any_size(steps: list[tuple[int, int]]) -> None:
    buffer, stream, counter = SendBuffer(64), bytearray(b"?"), 0
    for written, released in steps:
        space = buffer.write_space()
        assert len(space) <= buffer.free
        assert bool(space) == (buffer.free > 0)
        count = min(written, len(space))
        data = bytes((counter + index) % 251 for index in range(count))
        counter += count
        space[:count] = data
        buffer.wrote(count)
        stream += data
        buffer.release(min(buffer.start + released, buffer.end))
        assert bytes(buffer.view(buffer.start, buffer.end)) == stream[buffer.start : buffer.end]


class TestTags:
    def test_no_segment_crosses_a_tag(self) -> None:
        buffer = SendBuffer(1000)
        write(buffer, bytes(10))
        buffer.tag(FLOATS, 11, True)
        write(buffer, bytes(100))
        buffer.tag(PLAIN, 111, False)
        write(buffer, bytes(10))
        assert [buffer.reach(start, 1000, False) for start in (1, 11, 111)] == [11, 111, 121]
        assert [buffer.tag_range(start).tag for start in (1, 10, 11, 110, 111)] == [PLAIN, PLAIN, FLOATS, FLOATS, PLAIN]

    def test_setting_the_same_tag_again_begins_no_range(self) -> None:
        buffer = tagged(written=100)
        buffer.tag(FLOATS, 101, True)
        write(buffer, bytes(28))
        assert buffer.reach(1, 1000, False) == 129

    def test_a_tag_may_be_set_ahead_of_the_written_bytes(self) -> None:
        buffer = SendBuffer(1000)
        buffer.tag(FLOATS, 21, True)
        write(buffer, bytes(20))
        assert buffer.reach(1, 1000, False) == 21
        write(buffer, bytes(8))
        assert buffer.reach(1, 1000, False) == 21
        assert buffer.reach(21, 1000, False) == 29

    def test_a_tag_without_bytes_is_replaced(self) -> None:
        buffer = SendBuffer(1000)
        write(buffer, bytes(10))
        buffer.tag(FLOATS, 11, True)
        buffer.tag(Tag(0x28, "raw"), 11, True)
        write(buffer, bytes(4))
        assert buffer.tag_range(11).tag == Tag(0x28, "raw")

    def test_written_bytes_keep_their_tag(self) -> None:
        buffer = SendBuffer(1000)
        write(buffer, bytes(10))
        with pytest.raises(ValueError, match="already written"):
            buffer.tag(FLOATS, 10, True)
        buffer.tag(FLOATS, 50, True)
        with pytest.raises(ValueError, match="tagged"):
            buffer.tag(PLAIN, 49, False)

    def test_released_tags_are_forgotten_except_the_current(self) -> None:
        buffer = SendBuffer(1000)
        for index in range(20):
            buffer.tag(FLOATS if index % 2 else PLAIN, buffer.end, bool(index % 2))
            write(buffer, bytes(8))
        buffer.release(161)
        assert buffer.last_tag == FLOATS
        assert buffer.tags_count == 1


class TestCuts:
    def test_a_limit_cuts_at_a_multiple_of_64_from_the_start_of_the_range(self) -> None:
        buffer = SendBuffer(1000)
        write(buffer, bytes(5))
        buffer.tag(FLOATS, 6, True)
        write(buffer, bytes(300))
        assert buffer.reach(6, 6 + 200, False) == 6 + 192
        assert buffer.reach(6 + 192, 6 + 200, False) == 6 + 192

    def test_the_last_data_is_cut_to_whole_words(self) -> None:
        assert tagged(written=103).reach(1, 1000, False) == 101

    def test_an_incomplete_word_is_sent_before_a_fin(self) -> None:
        assert tagged(written=103).reach(1, 1000, True) == 104

    def test_an_incomplete_word_is_sent_at_the_end_of_its_range(self) -> None:
        buffer = tagged(written=103)
        buffer.tag(PLAIN, 104, False)
        assert buffer.reach(1, 1000, False) == 104

    def test_an_irregular_cut_is_repeated(self) -> None:
        buffer = tagged(written=100)
        buffer.cut_at(101)
        write(buffer, bytes(400))
        assert buffer.reach(1, 1000, False) == 101
        assert buffer.reach(65, 1000, False) == 101
        assert buffer.reach(101, 101 + 200, False) == 1 + 256  # on the range's own multiples again
        assert buffer.tag_range(101).origin == 1

    def test_regular_cuts_are_not_remembered(self) -> None:
        buffer = tagged(written=128)
        buffer.cut_at(65)
        buffer.cut_at(129)
        write(buffer, bytes(128))
        assert buffer.reach(1, 1000, False) == 257

    def test_a_segment_starts_at_a_possible_cut(self) -> None:
        buffer = tagged(written=300)
        buffer.cut_at(101)
        assert [buffer.segment_start(position) for position in (1, 50, 65, 90, 101, 110, 129, 140)] == [
            *(1, 1, 65, 65, 101, 101, 129, 129)
        ]

    def test_an_ack_inside_a_coding_block_keeps_the_block(self) -> None:
        buffer = tagged(written=300)
        buffer.release(90)
        assert buffer.start == 65
        buffer.release(90)
        assert buffer.start == 65
