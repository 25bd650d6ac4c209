"""A kernel's packets as they are passed to a capture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softnic.packet.headers import pack_headers
from softnic.packet.segment import Flags, Options, Segment
from softnic.tapnic.segments import segment_of

SEGMENT = Segment(0x0A000001, 0x0A000002, 1, 2, 3, 4, int(Flags.ACK), 5, 0x28)


@pytest.mark.parametrize(
    "segment",
    [
        SEGMENT,
        replace(SEGMENT, timestamps=(7, 8)),
        replace(SEGMENT, timestamps=(7, 8), sacks=((10, 20), (30, 40))),
        replace(SEGMENT, sacks=((10, 20),)),
        replace(SEGMENT, flags=int(Flags.SYN), timestamps=(7, 0), options=Options(1460, 7, True)),
    ],
)
def test_a_segment_has_the_values_of_its_headers(segment: Segment) -> None:
    header = bytearray(pack_headers(segment, b"\2" * 6, b"\4" * 6, 0))
    assert segment_of(header, segment.payload) == segment


@pytest.mark.parametrize("options", ["0505", "08", "0500", "050a0000", "000508", "080a00000001", "01010101"])
def test_malformed_options_are_skipped(options: str) -> None:
    header = bytearray(pack_headers(SEGMENT, b"\2" * 6, b"\4" * 6, 0)) + bytes.fromhex(options)
    assert segment_of(header, SEGMENT.payload) == SEGMENT
