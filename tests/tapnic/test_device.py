"""The C functions for TAP devices: reading, merging and writing packets, and rejecting malformed ones."""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.packet.headers import pack_headers
from softnic.packet.ipv4 import checksum
from softnic.packet.segment import Segment
from softnic.tapnic.device import BUFFER_BYTES, MAX_PACKETS, TapDevice

SEGMENT = Segment(0x0A000001, 0x0A000002, 1, 2, 3, 4, 0x10, 5)
HEADER = pack_headers(replace(SEGMENT, flags=0x18), b"\2" * 6, b"\4" * 6, 0)
DATA = np.random.default_rng(1).bytes(100_000)


TCP, OTHER = lib.SN_KIND_TCP, lib.SN_KIND_OTHER
Seen = tuple[Any, bytes, bytes]
"""A packet with its headers and its payload (the whole frame if it is not TCP)."""


def read(*packets: bytes) -> list[Seen]:
    """Read packets that wait together at the device."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for packet in packets:
            ours.send(packet)
        with theirs:
            seen, more = read_waiting(theirs.fileno())
        assert not more
        assert sum(packet.packets for packet, _, _ in seen) == len(packets)
        return seen


def read_waiting(fd: int) -> tuple[list[Seen], bool]:
    """Read the packets that wait at a device, and whether more may."""
    headers, buffer = bytearray(MAX_PACKETS * lib.SN_TAP_SLOT), bytearray(BUFFER_BYTES)
    packets, more = ffi.new("sn_tap_packet[]", MAX_PACKETS), ffi.new("int *")
    into = (ffi.from_buffer("uint8_t[]", headers), ffi.from_buffer("uint8_t[]", buffer), BUFFER_BYTES)
    found = lib.sn_tap_read(fd, *into, packets, MAX_PACKETS, more)
    seen = []
    for index in range(max(found, 0)):
        each = ffi.new("sn_tap_packet *", packets[index])
        header = bytes(headers[each.header : each.header + each.header_length])
        seen.append((each, header, bytes(buffer[each.offset : each.offset + each.length])))
    return seen, bool(more[0])


def segment(seq: int, payload: bytes = b"", cut: int = 0, **fields: Any) -> bytes:
    """Return a TCP segment as the kernel hands it over, to be cut into frames of `cut` bytes."""
    head = pack_headers(replace(SEGMENT, seq=seq, **fields), b"\2" * 6, b"\4" * 6, seq & 0xFFFF)
    frame = head[:16] + struct.pack("!H", len(head) - 14 + len(payload)) + head[18:] + payload
    return struct.pack("=BBHHHH", 1, cut > 0, len(head), cut, 34, 16) + frame


def runs(*packets: bytes) -> list[tuple[int, int]]:
    """Return the number of packets and bytes of each merged run."""
    return [(packet.packets, packet.length) for packet, _, _ in read(*packets)]


def write(header: bytes, data: bytes, pieces: list[tuple[int, int]], segment: int) -> tuple[int, list[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        listed = ffi.new("sn_payload_ref[]", [(offset, length, length) for offset, length in pieces])
        written = ffi.new("uint32_t *")
        arguments = (header, len(header), ffi.from_buffer("uint8_t[]", data), len(data), listed, len(pieces))
        result = lib.sn_tap_write(theirs.fileno(), *arguments, segment, written)
        return result, [ours.recv(1 << 17) for _ in range(written[0])]


def test_pieces_are_joined_into_the_fewest_packets() -> None:
    result, packets = write(HEADER, DATA, [(0, 60_000), (60_000, 40_000)], 1000)
    assert result == 0
    assert [len(packet) for packet in packets] == [64 + 65_000, 64 + 35_000]
    assert b"".join(packet[64:] for packet in packets) == DATA
    assert [struct.unpack_from("!I", packet, 48)[0] for packet in packets] == [3, 65_003]
    assert [packet[57] for packet in packets] == [0x10, 0x18]
    assert packets[0][:10] == struct.pack("=BBHHHH", 1, 1, 54, 1000, 34, 16)


def test_pieces_keep_their_bytes() -> None:
    result, [packet] = write(HEADER, DATA, [(0, 1200), (1200, 1300), (2500, 700)], 0)
    assert result == 0
    assert packet[:10] == struct.pack("=BBHHHH", 1, 1, 54, 1300, 34, 16)


def test_a_packet_without_payload_is_written() -> None:
    result, [packet] = write(HEADER, b"", [(0, 0)], 1000)
    assert result == 0
    assert packet[:10] == struct.pack("=BBHHHH", 1, 0, 54, 0, 34, 16)
    assert packet[24:26] == HEADER[14:16]


def test_pieces_outside_the_buffer_and_broken_headers_are_refused() -> None:
    for header, pieces, segment in (
        (HEADER, [(0, 11)], 1000),
        (HEADER, [(11, 0)], 1000),
        (HEADER, [(5, 0xFFFFFFFF)], 1000),
        (HEADER[:53], [(0, 10)], 1000),
        (HEADER + bytes(4), [(0, 10)], 1000),
        (HEADER[:14] + b"\x46" + HEADER[15:], [(0, 10)], 1000),
        (HEADER, [(0, 10)], 65536),
    ):
        assert write(header, bytes(10), pieces, segment) == (-errno.EINVAL, [])


def test_a_checksum_that_was_left_to_the_card_is_completed() -> None:
    datagram = struct.pack("!HHHH", 1, 2, 12, 0x1234) + b"data"
    frame = b"\2" * 6 + b"\4" * 6 + b"\x86\xdd" + bytes(40) + datagram
    [(packet, _, came)] = read(struct.pack("=BBHHHH", 1, 0, 0, 0, 54, 6) + frame)
    assert (packet.kind, len(came)) == (OTHER, len(frame))
    assert came[:60] == frame[:60]
    assert came[60:62] == checksum(datagram).to_bytes(2, "big")  # which holds the sum of the pseudo header


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"timestamps": (7, 8)},
        {"timestamps": (7, 8), "sacks": ((10, 20), (30, 40), (50, 60))},
        {"sacks": ((10, 20),)},
    ],
)
@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 1448])
def test_headers_and_payload_are_separated_with_any_options(options: dict[str, Any], size: int) -> None:
    """Two packets, because the reader expects each header to be as long as the previous one."""
    packets = [segment(1, DATA[:size], **options), segment(90_000, DATA[50:62], **options)]
    for packet, (found, header, payload) in zip(packets, read(*packets), strict=True):
        assert found.kind == TCP
        assert header + payload == packet[10:]
        assert found.length == len(payload)


def test_contiguous_super_segments_are_merged() -> None:
    stamps = [(7, 8), (8, 8), (9, 9), (9, 9)]
    sizes = [60_000, 30_000, 3_000, 900]
    starts = [1, 60_001, 90_001, 93_001]
    packets = [
        segment(start, DATA[start - 1 : start - 1 + size], 1000 if size > 1000 else 0, timestamps=stamp, flags=flags)
        for start, size, stamp, flags in zip(starts, sizes, stamps, (0x10, 0x18, 0x10, 0x19), strict=True)
    ]
    [(packet, header, payload)] = read(*packets)
    assert payload == DATA[:93_900]
    assert (packet.seq, packet.packets, packet.flags, packet.segment) == (1, 4, 0x19, 1000)
    assert header[:47] == packets[0][10:57]
    assert header[47:50] == bytes([0x19]) + packets[0][58:60]
    assert header[54:] == packets[0][64:76]


@pytest.mark.parametrize(
    ("fields", "cut"),
    [
        ({"ack": 5}, 1000),
        ({"window": 6}, 1000),
        ({"tos": 0x28}, 1000),
        ({"flags": 0x30}, 1000),
        ({"dport": 3}, 1000),
        ({"dst": 0x0A000003}, 1000),
        ({"timestamps": (1, 1)}, 1000),
        ({"seq": 3001}, 1000),
        ({}, 500),
        ({}, 0),
    ],
)
def test_segments_with_different_headers_are_not_merged(fields: dict[str, Any], cut: int) -> None:
    """The difference is the flow, a sequence number, a flag, or the size to cut to."""
    second = segment(**{"seq": 2001, "payload": DATA[:2000], "cut": cut, **fields})
    assert runs(segment(1, DATA[:2000], 1000), second) == [(1, 2000), (1, 2000)]


def test_small_segments_stay_as_their_sender_cut_them() -> None:
    assert runs(segment(1, DATA[:100]), segment(101, DATA[:100])) == [(1, 100), (1, 100)]


def test_bare_acks_are_merged_into_the_last() -> None:
    [(packet, header, _)] = read(segment(1, ack=4, timestamps=(7, 8)), segment(1, ack=9, window=6, timestamps=(8, 9)))
    assert (packet.packets, packet.ack, packet.window) == (2, 9, 6)
    assert header == segment(1, ack=9, window=6, timestamps=(8, 9))[10:]


@pytest.mark.parametrize(
    "fields",
    [
        {"ack": 4},
        {"ack": 3},
        {"ack": 4, "window": 6},
        {"ack": 9, "flags": 0x50},
        {"ack": 9, "seq": 2},
        {"ack": 9, "sacks": ((20, 30),)},
    ],
)
def test_duplicate_acks_and_acks_with_sack_are_kept(fields: dict[str, Any]) -> None:
    """They report a loss, by being duplicates or by SACK blocks."""
    second = segment(**{"seq": 1, **fields})
    assert runs(segment(1, ack=4), second) == [(1, 0), (1, 0)]


@given(st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=120), st.integers(0, 60)), max_size=3))
def test_reading_any_bytes_stays_within_the_buffer(packets: list[tuple[bytes, bytes, int]]) -> None:
    frames = [HEADER[:of_header] + rest for _, rest, of_header in packets]
    seen = read(*(vnet.ljust(10, b"\0") + frame for (vnet, _, _), frame in zip(packets, frames, strict=True)))
    assert sum(packet.packets for packet, _, _ in seen) == len(packets)
    for packet, header, payload in seen:
        assert len(header) == packet.header_length
        assert len(payload) == packet.length
        assert packet.packets > 1 or any(frame.startswith(header) for frame in frames)


def test_a_removed_device_delivers_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tap = TapDevice(theirs.detach())
    ours.close()
    assert read_waiting(tap.fileno()) == ([], False)
    tap.write(HEADER)
    assert (tap.counted.written, tap.counted.dropped_write) == (0, 1)
    tap.close()
