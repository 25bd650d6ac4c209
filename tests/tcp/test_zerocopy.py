"""Bytes lent to the send buffer are not copied, and are sent as if written."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.packet.segment import Tag
from softnic.tcp.send_buffer import SendBuffer
from softnic.tcp.zerocopy import address_of
from tests.tcp.flows import flow
from tests.tcp.lab import TAGGED, Lab, Wire
from tests.tcp.test_send_buffer import tagged, write

MEMORY = Random(1).randbytes(1 << 16)
VIEW = memoryview(MEMORY)


def test_a_loan_is_a_view_and_takes_no_room() -> None:
    buffer = SendBuffer(100)
    write(buffer, b"hello")
    buffer.send_zerocopy(VIEW, 1000, 5000)
    assert (buffer.end, buffer.free) == (5006, 95)
    view = buffer.view(6, 5006)
    assert address_of(view) == address_of(VIEW) + 1000
    assert view == VIEW[1000:6000]
    assert bytes(buffer.view(1, 6)) == b"hello"


def test_no_segment_crosses_from_one_memory_into_another() -> None:
    buffer = SendBuffer(100)
    write(buffer, b"hello")
    buffer.send_zerocopy(VIEW, 0, 5000)
    write(buffer, b"there")
    assert [buffer.extent(position, False)[1:] for position in (1, 6, 5005, 5006)] == [
        (6, True),
        (5006, True),
        (5006, True),
        (5011, False),
    ]
    assert buffer.reach(6, 1000, False) == 1000
    assert buffer.reach(1, 1000, False) == 6


def test_what_goes_on_in_another_memory_is_of_that() -> None:
    buffer, other = SendBuffer(100), memoryview(bytes(8192))
    buffer.send_zerocopy(VIEW, 0, 4096)
    buffer.send_zerocopy(other, 4096, 4096)
    assert buffer.view(1, 4097) == VIEW[:4096]
    assert buffer.view(4097, 8193) == other[4096:]


def test_neighbours_in_one_memory_are_one_run() -> None:
    buffer = SendBuffer(100)
    for start in range(0, 4096, 1024):
        buffer.send_zerocopy(VIEW, start, 1024)
    assert buffer.extent(1, False)[1:] == (4097, False)
    assert buffer.view(1, 4097) == VIEW[:4096]
    buffer.send_zerocopy(VIEW, 8192, 1024)
    assert buffer.extent(1, False)[1:] == (4097, True)


def test_what_is_acknowledged_is_the_lenders_again() -> None:
    buffer = SendBuffer(100)
    buffer.send_zerocopy(VIEW, 0, 1000)
    buffer.send_zerocopy(VIEW, 2000, 1000)
    for upto, returned in ((1, 0), (501, 500), (1001, 1000), (1002, 1001), (2001, 2000)):
        buffer.release(upto)
        assert (buffer.zerocopy.completed_bytes, buffer.zerocopy.outstanding) == (returned, 2000 - returned)
        if upto <= 1000:
            assert buffer.view(upto, 1001) == VIEW[upto - 1 : 1000]
        assert buffer.view(max(upto, 1001), 2001) == VIEW[max(upto, 1001) + 999 : 3000]


def test_a_recall_copies_the_rest() -> None:
    own = bytearray(range(200)) * 10
    buffer = SendBuffer(3000)
    buffer.send_zerocopy(memoryview(own), 0, 2000)
    buffer.release(501)
    buffer.zerocopy.copy_out()
    kept = bytes(own)
    own[:] = bytes(2000)
    assert (buffer.zerocopy.completed_bytes, buffer.zerocopy.outstanding, buffer.free) == (2000, 0, 1500)
    assert bytes(buffer.view(501, 2001)) == kept[500:2000]
    write(buffer, b"more")
    buffer.release(2001)
    assert bytes(buffer.view(2001, 2005)) == b"more"


@pytest.mark.parametrize(("tos", "copied"), [(0, 1000), (TAGGED, 1024)])
def test_of_a_long_loan_only_what_is_recalled_is_copied(tos: int, copied: int) -> None:
    own = bytearray(MEMORY) * 4
    buffer = SendBuffer(3000)
    buffer.tag(Tag(tos), 1, tos != 0)
    buffer.send_zerocopy(memoryview(own), 0, len(own))
    buffer.zerocopy.copy_out(1000)
    own[:copied] = bytes(copied)
    assert (buffer.zerocopy.completed_bytes, buffer.zerocopy.copied_out) == (copied, copied)
    assert buffer.zerocopy.outstanding == len(own) - copied
    assert bytes(buffer.view(1, copied + 1)) == MEMORY[:copied]
    assert address_of(buffer.view(copied + 1, len(own) + 1)) == address_of(own) + copied
    buffer.release(copied + 101)
    buffer.zerocopy.copy_out(len(own) - copied - 150)  # what would be left is too short for a run
    assert (buffer.zerocopy.completed_bytes, buffer.zerocopy.outstanding) == (len(own), 0)
    assert bytes(buffer.view(copied + 101, len(own) + 1)) == own[copied + 100 :]


def test_tagged_loans_begin_and_end_where_segments_may() -> None:
    buffer = tagged(written=100)
    assert buffer.zerocopy_len(6400) == 0
    for size in (64, 6400):
        with pytest.raises(ValueError, match="cut a tagged range"):
            buffer.send_zerocopy(VIEW, 0, size)
    write(buffer, bytes(28))
    assert (buffer.zerocopy_len(6400), buffer.zerocopy_len(6465), buffer.zerocopy_len(63)) == (6400, 6464, 0)
    with pytest.raises(ValueError, match="cut a tagged range"):
        buffer.send_zerocopy(VIEW, 0, 65)
    buffer.send_zerocopy(VIEW, 0, 6400)
    assert (buffer.segment_start(200), buffer.segment_start(128 + 1 + 6399)) == (193, 6465)
    assert SendBuffer(10).zerocopy_len(63) == 63


@given(st.lists(st.tuples(st.sampled_from("wlr"), st.integers(0, 200)), max_size=80), st.integers(0, 1 << 32))
def test_any_mixture_is_one_stream(steps: list[tuple[str, int]], seed: int) -> None:
    buffer, stream, random = SendBuffer(256), bytearray(b"?"), Random(seed)
    lent = 0
    for kind, size in steps:
        if kind == "w":
            data = random.randbytes(min(size, len(buffer.write_space())))
            write(buffer, data)
            stream += data
        elif kind == "l" and size:
            start = random.randrange(len(MEMORY) - size)
            buffer.send_zerocopy(VIEW, start, size)
            stream += MEMORY[start : start + size]
            lent += size
        else:
            buffer.release(min(buffer.end, buffer.start + size))
        if size % 17 == 3:
            buffer.zerocopy.copy_out()
        assert buffer.zerocopy.completed_bytes + buffer.zerocopy.outstanding == lent
        position = buffer.start
        while position < buffer.end:
            _, end, _ = buffer.extent(position, False)
            assert bytes(buffer.view(position, end)) == stream[position:end]
            position = end
    assert buffer.end == len(stream)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tos", [0, TAGGED])
def test_loans_arrive_over_a_bad_network_and_come_back(seed: int, tos: int) -> None:
    lab = Lab(Wire(loss=0.03, duplicate=0.02, reorder=0.05, ratio=4 if tos else 1), seed)
    client, server = lab.pair()
    client.tag(Tag(tos))
    random, stream, got = Random(seed), bytearray(), bytearray()
    for _ in range(12):
        size = random.randrange(1, 400) * 64
        start = random.randrange(len(MEMORY) - size)
        if random.random() < 0.6:
            assert client.send_zerocopy(VIEW, start, size)
        else:
            assert client.send(VIEW[start : start + size]) == size
        stream += MEMORY[start : start + size]

    def arrived() -> bool:
        got.extend(server.recv(1 << 20))
        return len(got) == len(stream) and not flow(client).send_buffer.zerocopy.outstanding

    assert lab.run(arrived)
    assert got == stream
    client.shutdown_write()
    assert not client.send_zerocopy(VIEW, 0, 64)
