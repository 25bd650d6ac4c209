"""Frames: whole, byte by byte, and with garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives import framing
from softnic.comm import messages

FRAMES: list[messages.Frame] = [
    messages.Hello(messages.VERSION, 4, 1, 0, 2),
    messages.Waiting(1, "Allreduce"),
    messages.Announce(7, 400, "float32", "bounded:10"),
    messages.Announce(7, 4, "uint8", "", memoryview(b"data")),
    messages.Announce(7, 400, "float32", number=5),
    messages.Taken(5),
    messages.Credit(4),
    messages.Abort(-1, "why"),
    messages.Leave(3),
]


def test_whole_and_byte_by_byte() -> None:
    data = b"".join(map(messages.pack, FRAMES))
    assert list(messages.Reader().feed(data)) == FRAMES
    reader = messages.Reader()
    assert [frame for byte in data for frame in reader.feed(bytes([byte]))] == FRAMES


@given(st.binary(max_size=200))
def test_garbage_is_a_value_error_or_not_yet_whole(data: bytes) -> None:
    try:
        frames = list(messages.Reader().feed(data))
    except ValueError:
        return
    assert sum(len(messages.pack(frame)) for frame in frames) <= max(len(data), 1) * 2


def test_a_frame_of_any_length_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="not a frame"):
        list(messages.Reader().feed((framing.MAX_FRAME + 1).to_bytes(4, "little")))


def test_a_long_reason_is_cut() -> None:
    (frame,) = messages.Reader().feed(messages.pack(messages.Abort(0, "x" * 10_000_000)))
    assert isinstance(frame, messages.Abort)
    assert frame.text.endswith("x...")
