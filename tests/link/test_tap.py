"""What the C takes and refuses at a TAP device; `tests/nic/test_kernel.py` has what crosses it."""

from __future__ import annotations

import errno
import socket
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.link.tap import OTHER, Packet, Tap
from softnic.stack.headers import pack_headers
from softnic.stack.segment import Segment

HEADER = pack_headers(Segment(0x0A000001, 0x0A000002, 1, 2, 3, 4, 0x18, 5), b"\2" * 6, b"\4" * 6, 0)


def read(packet: bytes) -> list[Packet]:
    """What a NIC makes of one packet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        theirs.setblocking(False)
        tap = Tap(theirs.detach())
        ours.send(packet)
        found = tap.read()
        assert not tap.read()
        assert not tap.readable
        tap.close()
        return found


def write(header: bytes, data: bytes, pieces: list[tuple[int, int]], segment: int) -> tuple[int, list[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        listed = ffi.new("sn_piece[]", [(offset, length, length) for offset, length in pieces])
        written = ffi.new("uint32_t *")
        arguments = (header, len(header), ffi.from_buffer("uint8_t[]", data), len(data), listed, len(pieces))
        result = lib.sn_tap_write(theirs.fileno(), *arguments, segment, written)
        return result, [ours.recv(1 << 17) for _ in range(written[0])]


def test_pieces_become_as_few_packets_as_can_be() -> None:
    data = np.random.default_rng(1).bytes(100_000)
    result, packets = write(HEADER, data, [(0, 60_000), (60_000, 40_000)], 1000)
    assert result == 0
    assert [len(packet) for packet in packets] == [64 + 65_000, 64 + 35_000]
    assert b"".join(packet[64:] for packet in packets) == data
    assert [struct.unpack_from("!I", packet, 48)[0] for packet in packets] == [3, 65_003]
    assert [packet[57] for packet in packets] == [0x10, 0x18]
    assert packets[0][:10] == struct.pack("=BBHHHH", 1, 1, 54, 1000, 34, 16)


def test_a_packet_without_payload_is_one() -> None:
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
        (HEADER, [(0, 10)], 0),
    ):
        assert write(header, bytes(10), pieces, segment) == (-errno.EINVAL, [])


def test_a_checksum_that_was_left_to_the_card_is_completed() -> None:
    datagram = struct.pack("!HHHH", 1, 2, 12, 0x1234) + b"data"
    frame = b"\2" * 6 + b"\4" * 6 + b"\x86\xdd" + bytes(40) + datagram
    [packet] = read(struct.pack("=BBHHHH", 1, 0, 0, 0, 54, 6) + frame)
    assert (packet.kind, packet.length) == (OTHER, len(frame))


@given(st.binary(max_size=10), st.binary(max_size=120), st.integers(0, 60))
def test_any_bytes_are_read_within_their_bounds(vnet: bytes, rest: bytes, of_header: int) -> None:
    frame = HEADER[:of_header] + rest
    for packet in read(vnet.ljust(10, b"\0") + frame):
        assert packet.offset == 10
        assert packet.length == len(frame)
        assert packet.header_length + packet.payload <= packet.length


def test_a_device_that_is_gone_is_silent() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tap = Tap(theirs.detach())
    ours.close()
    assert tap.read() == []
    tap.write_frame(bytes(60))
    assert tap.counted.dropped_write == 1
    tap.close()
