"""Headers that C compares: in any cut, before and after this rank's own requests, and what only Python can read."""

from __future__ import annotations

import socket as stdlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.collectives.header_queue import MAX_EARLY_BYTES, HeaderQueue
from softnic.collectives.messages import CollectiveHeader, EngineAbort, EngineMessage, header_of, pack
from softnic.collectives.step_engine import StepEngine  # fmt: skip
from softnic.collectives.steps import EngineOp
from softnic.ipc.work_queue import WorkRequest
from tests.comm.engine_nics import SocketStream

HEADER = header_of(WorkRequest(1, "Iallreduce", "allreduce", "ring", "float32", (3, 3), (1, 0), (2, 64), "SUM"))


class Receiver:
    """A rank that receives headers from one other rank."""

    def __init__(self, streams: tuple[SocketStream, SocketStream]) -> None:
        self.engine = StepEngine()
        self._stream = streams[0]
        self.data = self.engine.queue(1, streams[1])
        self.headers: HeaderQueue = self.engine.headers(streams[0], self.data, 4)
        self.seen: list[EngineMessage] = []
        """By Python."""

    def post(self, header: CollectiveHeader, takes_part: bool = True) -> None:
        self.engine.c.posted = header.number
        if takes_part:
            op = EngineOp(header.number, header.call, 1, 1)
            self.engine.add(op)
            self.headers.expect(op.expected_headers([pack(header)]))

    def receive(self, data: bytes) -> None:
        if data:
            self._stream.arrive(data)
        self.seen += self.headers.receive()


@contextmanager
def receiver() -> Iterator[Receiver]:
    ends = [end for _ in range(2) for end in stdlib.socketpair()]
    streams = SocketStream(ends[0]), SocketStream(ends[2])
    try:
        yield Receiver(streams)
    finally:
        for stream in streams:
            stream.release()
        for end in ends:
            end.close()


def numbered(number: int) -> CollectiveHeader:
    return msgspec.structs.replace(HEADER, number=number)


@settings(deadline=None)
@given(st.data())
def test_headers_match_however_they_are_cut_and_whoever_is_first(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    first = data.draw(st.sampled_from((1, 120, 250, 65_530, 2**32 - 3)))
    numbers = range(first, first + count)
    stream = b"".join(pack(numbered(number)) for number in numbers)
    ends = [len(b"".join(pack(numbered(number)) for number in numbers[: index + 1])) for index in range(count)]
    with receiver() as rank:
        rank.engine.c.posted = first - 1
        posted = arrived = 0
        while posted < count or arrived < len(stream):
            if posted < count and (arrived == len(stream) or data.draw(st.booleans())):
                rank.post(numbered(numbers[posted]))
                posted += 1
                rank.receive(b"")
            else:
                size = data.draw(st.integers(1, len(stream) - arrived))
                rank.receive(stream[arrived : arrived + size])
                arrived += size
            whole = sum(end <= arrived for end in ends)
            assert rank.data.matched == (first - 1 + min(posted, whole) if min(posted, whole) else 0)
        assert rank.seen == []
        assert rank.headers.expected == 0


@settings(deadline=None)
@given(st.integers(0, 5), st.data())
def test_an_abort_behind_early_headers_is_seen_at_once(early: int, data: st.DataObject) -> None:
    sent: list[EngineMessage] = [*(numbered(1 + index) for index in range(early)), EngineAbort(1, "lost")]
    stream = b"".join(map(pack, sent))
    with receiver() as rank:
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            rank.receive(stream[:size])
            stream = stream[size:]
        assert rank.seen == sent


@pytest.mark.parametrize("is_early", [False, True])
def test_another_header_than_the_expected_one_is_decoded(is_early: bool) -> None:
    other = msgspec.structs.replace(HEADER, dtype="float64")
    with receiver() as rank:
        if is_early:
            rank.receive(pack(other))
        rank.post(HEADER)
        rank.receive(b"" if is_early else pack(other))
        assert rank.seen == [other]
        assert rank.headers.expected == HEADER.number


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("number", [1, 127, 128, 255, 256, 65_535, 65_536, 2**32])
def test_a_header_of_what_this_rank_takes_no_part_in_is_decoded(number: int, is_early: bool) -> None:
    header = numbered(number)
    with receiver() as rank:
        rank.engine.c.posted = number - 1
        if is_early:
            rank.receive(pack(header))
            assert rank.seen == []
        rank.post(header, takes_part=False)
        rank.receive(b"" if is_early else pack(header))
        assert rank.seen == [header]


@given(st.binary(min_size=6, max_size=100).filter(lambda data: data[4:6] != pack(HEADER)[4:6]))
def test_what_is_no_header_is_python_s(garbage: bytes) -> None:
    with receiver() as rank:
        try:
            rank.receive(garbage)
        except ValueError:
            return
        assert rank.headers.c.in_python


def test_python_reads_what_is_too_long_to_be_kept_and_c_goes_on_behind_it() -> None:
    long, next_one = msgspec.structs.replace(HEADER, call="x" * 10_000), numbered(2)
    with receiver() as rank:
        rank.post(long)
        data = pack(long)
        rank.receive(data[:9_000])
        assert rank.seen == []
        rank.receive(data[9_000:])
        assert rank.seen == [long]
        rank.headers.match()
        rank.headers.settle()
        rank.post(next_one)
        rank.receive(pack(next_one))
        assert rank.seen == [long]
        assert rank.data.matched == 2


@pytest.mark.parametrize("text", [0, 300, 8000])
def test_headers_far_ahead_are_held_to_a_number_of_bytes(text: int) -> None:
    sent = [msgspec.structs.replace(numbered(1 + index), op="x" * text) for index in range(2_000_000 // (100 + text))]
    packed = [pack(header) for header in sent]
    with receiver() as rank:
        rank.receive(b"".join(packed))
        early, got = rank.headers.early, list(rank.seen)
        while len(got) < len(sent):
            early.extend(header for header in rank.headers.receive() if isinstance(header, CollectiveHeader))
            assert len(early) > 0
            assert list(rank.headers.receive()) == [] or sum(map(len, packed[: len(early)])) < MAX_EARLY_BYTES
            got += early
            early.clear()
        assert got == sent


def test_a_header_longer_than_any_honest_one_is_refused_by_its_length() -> None:
    with receiver() as rank:
        rank.receive(pack(msgspec.structs.replace(HEADER, op="x" * 16_000)))
        assert len(rank.seen) == 1
        with pytest.raises(ValueError, match="not a frame of a NIC"):
            rank.receive((17_000).to_bytes(4, "little") + pack(HEADER)[4:9])
