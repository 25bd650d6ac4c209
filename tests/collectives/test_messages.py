"""Frames between executors: whole, byte by byte, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives.framing import MAX_FRAME, MAX_TEXT
from softnic.collectives.messages import (
    CollectiveHeader,
    EngineAbort,
    EngineMessage,
    EngineMessageReader,
    header_of,
    pack,
)
from softnic.ipc.work_queue import WorkRequest

POST = WorkRequest(
    7, "Iallreduce_comp", "allreduce", "ring", "float32", (3, 3, 2), (1, 0), (2, 64), "SUM", -1, "bounded:10"
)
HEAD = header_of(POST)
heads = st.builds(
    CollectiveHeader,
    st.integers(0, 2**63 - 1),
    st.text(max_size=10),
    st.text(max_size=10),
    st.text(max_size=10),
    st.text(max_size=10),
    st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    st.text(max_size=10),
    st.integers(-1, 100),
    st.text(max_size=10),
)
frames = st.one_of(heads, st.builds(EngineAbort, st.integers(-1, 100), st.text(max_size=50)))


def test_a_head_says_all_but_the_memory() -> None:
    assert HEAD.describe() == "Iallreduce_comp(8 x float32, op=SUM, codec=bounded:10, algorithm=ring)"
    gather = header_of(WorkRequest(1, "Iallgather", "allgather", "ring", "int8", (3, 4), (1, 0), (1, 0)))
    assert gather.describe() == "Iallgather(7 x int8, counts=[3, 4])"
    bcast = header_of(WorkRequest(1, "Ibcast", "bcast", "ring", "int8", (3,), (1, 0), (1, 0), root=2))
    assert bcast.describe() == "Ibcast(3 x int8, root=2)"


@given(st.lists(frames, max_size=6), st.data())
def test_frames_however_they_arrive(sent: list[EngineMessage], data: st.DataObject) -> None:
    stream = b"".join(map(pack, sent))
    reader = EngineMessageReader(4)
    got: list[EngineMessage] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert got == sent


@given(st.binary(max_size=200))
def test_garbage_is_an_error_or_waits_for_more(garbage: bytes) -> None:
    reader = EngineMessageReader(4)
    try:
        for frame in reader.feed(garbage):
            assert isinstance(frame, CollectiveHeader | EngineAbort)
    except ValueError:
        return


@given(frames, st.data())
def test_damaged_frames(frame: EngineMessage, data: st.DataObject) -> None:
    packed = bytearray(pack(frame))
    packed[data.draw(st.integers(4, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert all(
            isinstance(got, CollectiveHeader | EngineAbort) for got in EngineMessageReader(4).feed(bytes(packed))
        )
    except ValueError:
        return


def test_a_frame_too_long_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="not a frame"):
        list(EngineMessageReader(4).feed((MAX_FRAME + 1).to_bytes(4, "little")))


def test_last_words_are_short() -> None:
    [frame] = EngineMessageReader(4).feed(pack(EngineAbort(1, "x" * 10 * MAX_TEXT)))
    assert isinstance(frame, EngineAbort)
    assert len(frame.text) == MAX_TEXT + 3
