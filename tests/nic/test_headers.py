"""Headers and the options of a SYN."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.packet.headers import HEADER_BYTES, TIMESTAMP_BYTES, pack_headers, pack_options, parse_options
from softnic.packet.segment import Flags, Options, Segment

from .harness import IP_A, IP_B, MAC_A, MAC_B

OPTIONS = st.builds(
    Options,
    mss=st.none() | st.integers(0, 65535),
    window_scale=st.none() | st.integers(0, 14),
    sack_permitted=st.booleans(),
    codecs=st.none() | st.integers(0, 65535),
)
STAMPS = st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


@given(OPTIONS, STAMPS)
def test_options_survive_the_way(options: Options, timestamps: tuple[int, int] | None) -> None:
    packed = pack_options(options, timestamps)
    assert len(packed) % 4 == 0
    assert len(packed) <= 40
    assert parse_options(packed) == options


def test_the_nic_option_is_formats() -> None:
    packed = pack_options(Options(codecs=0b111), None)
    assert packed == bytes.fromhex("fe 09 534e4943 01 0007 010101")


@pytest.mark.parametrize(
    "data",
    [
        "0203ff",  # MSS of another length
        "0305 0000 00",
        "0403 00",
        "fe08 534e4943 0100",  # our kind, too short
        "fe09 534e4944 01 0007",  # another experiment
        "fe09 534e4943 02 0007",  # another version
        "fd09 534e4943 01 0007",  # the other experimental kind
        "1302",  # unknown
        "00 0204 05b4",  # behind the end of the list
    ],
)
def test_options_that_are_not_ours_are_passed_over(data: str) -> None:
    assert parse_options(bytes.fromhex(data)) == Options()
    behind = bytes.fromhex(data) + bytes.fromhex("0204 05b4")
    assert parse_options(behind).mss == (None if data.startswith("00") else 1460)


def test_a_window_scale_beyond_14_counts_as_14() -> None:
    assert parse_options(bytes([3, 3, 200])).window_scale == 14


def test_headers_hold_what_the_segment_says() -> None:
    rng = random.Random(5)
    segment = Segment(
        *(IP_A, IP_B, 1234, 80, rng.getrandbits(32), rng.getrandbits(32), int(Flags.ACK), 4321, 0x28),
        timestamps=(rng.getrandbits(32), rng.getrandbits(32)),
    )
    head = pack_headers(segment, MAC_B, MAC_A, 99)
    assert len(head) == HEADER_BYTES + TIMESTAMP_BYTES
    assert head[:14] == MAC_B + MAC_A + b"\x08\x00"
    assert struct.unpack_from("!BBHHHBBHII", head, 14) == (0x45, 0x28, 0, 99, 0x4000, 64, 6, 0, IP_A, IP_B)
    fields = (1234, 80, segment.seq, segment.ack, 0x80, Flags.ACK, 4321, 0, 0)
    assert struct.unpack_from("!HHIIBBHHH", head, 34) == fields
    assert struct.unpack_from("!HBBII", head, 54) == (0x0101, 8, 10, *(segment.timestamps or ()))
    segment.timestamps = None
    assert len(pack_headers(segment, MAC_B, MAC_A, 99)) == HEADER_BYTES


@pytest.mark.parametrize("rest", ["02", "0200", "0201", "0205", "02ff05b4", "fe0a534e49430100"])
def test_options_that_end_early_or_never_are_read_so_far(rest: str) -> None:
    """A raw socket can put any options into a SYN, and nothing has validated them before."""
    assert parse_options(bytes.fromhex("01030307" + rest)) == Options(window_scale=7)
