"""Streams put together of segments: holes anywhere are errors, keep-alives are no data, first bytes win."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softnic.capture.flows import Analysis
from softnic.capture.reader import parse
from softnic.capture.streams import StreamError, stream_bytes, stream_of
from softnic.codecs import DecodeError, get
from softnic.codecs.payload import PayloadHeader

from .blocks import ACK, ETHERNET, FIN, RST, SYN, frame, ipv4, pcap


def analysed(*frames: bytes) -> Analysis:
    return Analysis(parse(pcap("<", True, [(number, 0, data) for number, data in enumerate(frames)])))


def stream(*frames: bytes) -> bytes:
    """The stream of the first flow."""
    analysis = analysed(*frames)
    return stream_bytes(analysis, analysis.flows[0].main)


def hole(*frames: bytes) -> tuple[int, int]:
    """Where the first hole is, and how long."""
    with pytest.raises(StreamError) as caught:
        stream(*frames)
    found = re.fullmatch(r"(\d+) bytes from byte (-?\d+) of the stream on were not captured", str(caught.value))
    assert found is not None
    return int(found[2]), int(found[1])


SYN_100, FIN_111 = frame(100, flags=SYN), frame(111, flags=FIN | ACK)


# Where a stream begins and ends


@pytest.mark.parametrize(
    ("frames", "at", "size"),
    [
        ([SYN_100, frame(106, b"world"), FIN_111], 1, 5),
        ([SYN_100, frame(101, b"hello"), FIN_111], 6, 5),
        ([SYN_100, frame(101, b"hello"), frame(107, b"orld"), FIN_111], 6, 1),
        ([SYN_100, FIN_111], 1, 10),
        ([SYN_100, frame(106)], 1, 5),
        ([SYN_100, frame(101, b"hello"), frame(111)], 6, 5),
        ([frame(101), frame(106, b"world")], 0, 5),
        ([frame(101), frame(106)], 0, 5),
        ([frame(101, b"hello"), frame(111, b"!", FIN | ACK)], 5, 5),
        ([frame(101, b"hello"), frame(111)], 5, 5),
        ([frame(106, b"world"), FIN_111, frame(101, b"hell")], -1, 1),
        ([frame(2**32 - 3, flags=SYN), frame(3, b"x")], 1, 5),
    ],
)
def test_a_hole_at_either_end_is_an_error(frames: list[bytes], at: int, size: int) -> None:
    assert hole(*frames) == (at, size)


@pytest.mark.parametrize(
    ("frames", "content"),
    [
        ([SYN_100, frame(101, b"hello"), frame(106, b"world"), FIN_111, frame(112)], b"helloworld"),
        ([SYN_100, frame(101, b"hello"), frame(106, b"world", FIN | ACK), frame(112)], b"helloworld"),
        ([frame(106, b"world"), frame(101, b"hello")], b"helloworld"),
        ([frame(100), frame(101, b"hello"), frame(105), frame(107)], b"hello"),  # keep-alives, and after a FIN
        ([frame(101, b"hello"), frame(900, flags=RST)], b"hello"),
        ([frame(900, flags=RST | ACK), frame(101, b"hello")], b"hello"),
        ([SYN_100, frame(101, b"hello"), frame(50, flags=RST)], b"hello"),
        ([SYN_100], b""),
        ([SYN_100, SYN_100, frame(101)], b""),
        ([frame(7), frame(7), frame(8)], b""),
        ([frame(7), frame(6)], b""),
        ([frame(100, b"early", SYN), frame(106, b"world")], b"earlyworld"),
        ([frame(101, b"hello"), frame(90)], b"hello"),
        ([frame(7, flags=FIN | ACK), frame(8)], b""),
    ],
)
def test_a_stream_is_whole(frames: list[bytes], content: bytes) -> None:
    assert stream(*frames) == content


# Keep-alives

GARBAGE = frame(100, b"\0")


@pytest.mark.parametrize(
    "before",
    [
        [SYN_100, GARBAGE],
        [SYN_100, frame(101), GARBAGE, GARBAGE],
        [frame(101), GARBAGE],
        [SYN_100, GARBAGE, frame(101)],
    ],
)
def test_the_byte_of_a_keep_alive_is_no_data(before: list[bytes]) -> None:
    later = [frame(101, b"hello"), frame(105, b"\xff"), frame(106, b"world")]
    analysis = analysed(*before, *later)
    made = stream_of(analysis, analysis.flows[0].main)
    assert (made.data.tobytes(), made.conflicts) == (b"helloworld", 0)


def test_a_byte_that_came_late_is_data_where_no_other_packet_has_it() -> None:
    """An acknowledgement may overtake it, and then it looks like a keep-alive."""
    assert stream(SYN_100, frame(101, b"hell"), frame(106), frame(105, b"o"), frame(106, b"world")) == b"helloworld"


def test_only_one_byte_before_the_next_is_a_keep_alive() -> None:
    assert stream(SYN_100, frame(101), frame(101, b"h"), frame(102, b"ello")) == b"hello"
    assert stream(frame(101), frame(99, b"xy"), frame(101, b"hello")) == b"xyhello"
    assert stream(frame(102), frame(100, b"x"), frame(101, b"yz")) == b"xyz"
    assert stream(frame(101), frame(100, b"x", FIN | ACK), frame(101)) == b"x"


def test_repeated_packets_are_those_without_a_new_byte() -> None:
    frames = [SYN_100, GARBAGE, frame(101, b"hello"), frame(101, b"hell"), frame(103, b"llowo"), frame(100, b"e", SYN)]
    (flow,) = analysed(*frames).flows
    assert flow.main.repeated.tolist() == [False, True, False, True, False, True]


# First bytes win


def sent(spans: list[tuple[int, int]]) -> list[bytes]:
    """Segments of (start, length), each of one byte value of its own."""
    return [frame(101 + start, bytes([number + 1]) * length) for number, (start, length) in enumerate(spans)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(2, 9)), min_size=1, max_size=8))
@example([(0, 4), (0, 8)])
@example([(4, 4), (0, 12), (2, 6)])
@settings(deadline=None)
def test_the_first_copy_of_each_byte_is_taken(spans: list[tuple[int, int]]) -> None:
    expected: dict[int, int] = {}
    conflicting = set()
    for number, (start, length) in enumerate(spans):
        for place in range(start, start + length):
            if expected.setdefault(place, number + 1) != number + 1:
                conflicting.add(place)
    analysis = analysed(SYN_100, *sent(spans))
    missing = [place for place in range(max(expected) + 1) if place not in expected]
    if missing:
        assert hole(SYN_100, *sent(spans))[0] == missing[0] + 1
    else:
        made = stream_of(analysis, analysis.flows[0].main)
        assert made.data.tolist() == [expected[place] for place in sorted(expected)]
        assert made.conflicts == len(conflicting)


def tagged(seq: int, floats: np.ndarray, codec: str = "bounded:10", tail: bytes = b"") -> bytes:
    body = get(codec).encode(floats) + tail
    payload = PayloadHeader(get(codec), floats.nbytes + len(tail), len(body)).pack() + body
    packet = bytearray(ipv4(seq, payload))
    packet[1] = 0x28
    return ETHERNET + bytes(packet)


def test_floats_stay_whole_whoever_was_first() -> None:
    """Copies that were cut or encoded differently decode to other floats; tails and untagged bytes are no floats."""
    floats = np.linspace(0.1, 1, 24, dtype=np.float32)
    rough = get("truncate:16").roundtrip(floats)
    fine = get("truncate:24").roundtrip(floats)
    frames = [
        frame(101, b"abc"),
        tagged(104 + 32, floats[8:16], "truncate:16"),
        tagged(104, floats, "truncate:24", b"xyz"),
        tagged(104, floats[:12], "truncate:16"),
        frame(104 + 99, b"end!"),
    ]
    analysis = analysed(*frames)
    made = stream_of(analysis, analysis.flows[0].main)
    expected = np.concatenate([fine[:8], rough[8:16], fine[16:]])
    assert made.floats.tobytes() == expected.tobytes()
    assert made.data.tobytes() == b"abc" + expected.tobytes() + b"xyzend!"
    assert 0 < made.conflicts <= 16 * 4


def test_a_tail_between_two_tagged_ranges_is_no_float() -> None:
    floats = np.linspace(0.1, 1, 24, dtype=np.float32)
    frames = [
        frame(101),
        tagged(101, floats[:8], "truncate:24", b"xyz"),
        tagged(101 + 35, floats[8:], "truncate:24"),
    ]
    analysis = analysed(*frames)
    made, expected = stream_of(analysis, analysis.flows[0].main), get("truncate:24").roundtrip(floats)
    assert made.floats.tobytes() == expected.tobytes()
    assert made.data.tobytes() == expected[:8].tobytes() + b"xyz" + expected[8:].tobytes()


def test_a_packet_that_the_snaplen_cut_is_passed_over_where_another_has_its_bytes() -> None:
    floats = np.linspace(0.1, 1, 24, dtype=np.float32)
    whole = tagged(101, floats, "truncate:24")
    frames = [whole[:70], frame(101 + 96, b"end!")[:56], whole, frame(101 + 96, b"end!"), whole[:70]]
    capture = parse(pcap("<", True, [(number, 0, data) for number, data in enumerate(frames)]))
    capture.length = np.array([len(whole), 58, len(whole), 58, len(whole)])
    analysis = Analysis(capture)
    made = stream_of(analysis, analysis.flows[0].main)
    assert made.data.tobytes() == get("truncate:24").roundtrip(floats).tobytes() + b"end!"
    capture.captured[2] = 70
    analysis = Analysis(capture)
    with pytest.raises(DecodeError, match="snaplen"):
        stream_of(analysis, analysis.flows[0].main)


def test_packets_whose_headers_alone_are_there_cost_no_memory() -> None:
    """A few bytes each stand for 16 MB, all together for more than any memory has."""
    floats = np.zeros(4_000_000, np.float32)
    head, size = tagged(101, floats), floats.nbytes
    heads = [head[:38] + struct.pack("!I", (101 + number * size) % 2**32) + head[42:66] for number in range(200_000)]
    capture = parse(pcap("<", True, [(number, 0, data) for number, data in enumerate(heads)]))
    capture.length = np.full(len(heads), len(head))
    analysis = Analysis(capture)
    with pytest.raises(DecodeError, match="snaplen"):
        stream_of(analysis, analysis.flows[0].main)


def test_a_copy_that_does_not_decode_does_no_harm_and_a_first_one_does() -> None:
    floats = np.linspace(0.1, 1, 16, dtype=np.float32)
    whole, broken = tagged(101, floats), bytearray(tagged(101, floats))
    broken[54 + 12] ^= 1
    assert stream(whole, bytes(broken)) == get("bounded:10").roundtrip(floats).tobytes()
    with pytest.raises(ValueError, match="not a bounded:10 encoding"):
        stream(bytes(broken), whole)
