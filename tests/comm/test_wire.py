"""Frames: whole, byte by byte, and with garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facades.comm import framing, wire

FRAMES: list[wire.Frame] = [
    wire.Hello(wire.VERSION, 4, 1, 0, 2),
    wire.Head(1, "Allreduce", 100, "float32", "SUM"),
    wire.Head(2, "Reduce_scatter", 6, "int64", "MAX", codec="bounded:10", counts=(1, 2, 3)),
    wire.Announce(7, 400, "float32", "bounded:10"),
    wire.Abort(-1, "why"),
    wire.Leave(3),
]


def test_whole_and_byte_by_byte() -> None:
    data = b"".join(map(wire.pack, FRAMES))
    assert list(wire.Reader().feed(data)) == FRAMES
    reader = wire.Reader()
    assert [frame for byte in data for frame in reader.feed(bytes([byte]))] == FRAMES


@given(st.binary(max_size=200))
def test_garbage_is_a_value_error_or_not_yet_whole(data: bytes) -> None:
    try:
        frames = list(wire.Reader().feed(data))
    except ValueError:
        return
    assert sum(len(wire.pack(frame)) for frame in frames) <= max(len(data), 1) * 2


def test_a_frame_of_any_length_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="no frame"):
        list(wire.Reader().feed((framing.MAX_FRAME + 1).to_bytes(4, "little")))


def test_a_long_reason_is_cut() -> None:
    (frame,) = wire.Reader().feed(wire.pack(wire.Abort(0, "x" * 10_000_000)))
    assert isinstance(frame, wire.Abort)
    assert frame.text.endswith("x...")


def test_padding_fills_units() -> None:
    assert [wire.padding(size) for size in (0, 1, 63, 64, 65)] == [0, 63, 1, 0, 63]


def test_a_call_is_described_as_a_person_writes_it() -> None:
    assert FRAMES[1].describe() == "Allreduce(100 x float32, op=SUM)"  # type: ignore[union-attr]
    assert wire.Head(1, "Bcast", root=2).describe() == "Bcast(root=2)"
    assert wire.Head(1, "Barrier").describe() == "Barrier()"
