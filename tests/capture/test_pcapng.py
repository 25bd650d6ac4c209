"""pcapng: what we write, others read; what others write, we read; what is broken is refused with its offset."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.facades.capture import CaptureError, Direction, pcapng, reader
from tests.facades.packet import Frames

from .conftest import Tshark

TIME = 1_700_000_000_123_456_789
ARP = bytes.fromhex("ffffffffffff02534e4d00010806000108000604000102534e4d00010a4d0001000000000000" + "0a4d0002")


def file_of(*batches: bytes, interfaces: int = 2) -> bytes:
    points = [
        pcapng.interface_description(f"node{n}:wire", f"number {n}", ip=0x0A4D0001 + n, mac=b"\x02SNM\0" + bytes([n]))
        for n in range(interfaces)
    ]
    return b"".join((pcapng.section_header("softnic", "Linux"), *points, *batches))


# What we write


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 2**62),
            st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5),
            st.sampled_from(Direction),
            st.one_of(st.just(0), st.integers(1, 2**64 - 1)),
            st.one_of(st.just(0), st.integers(1, 100)),
        ),
        max_size=6,
    )
)
@settings(deadline=None)
def test_what_is_written_is_read(
    batches: list[tuple[int, int, list[bytes], Direction, int, int]],
) -> None:
    blocks = [
        pcapng.packets(interface, time, Frames.of(frames), direction, packet_id=number, snaplen=snaplen)
        for interface, time, frames, direction, number, snaplen in batches
    ]
    capture = reader.parse(file_of(*blocks))
    rows = [
        (interface, time, frame[: snaplen or None], len(frame), direction, number)
        for interface, time, frames, direction, number, snaplen in batches
        for frame in frames
    ]
    assert rows == [
        (
            capture.interface[row],
            capture.time_ns[row],
            capture.packet(row),
            capture.length[row],
            capture.direction[row],
            capture.packet_id[row],
        )
        for row in range(len(capture))
    ]


def test_interfaces_and_statistics_are_read() -> None:
    statistics = pcapng.interface_statistics(1, start_ns=TIME, end_ns=TIME + 10**9, received=2**40, dropped=7)
    capture = reader.parse(file_of(statistics))
    assert capture.application == "softnic"
    assert [interface.name for interface in capture.interfaces] == ["node0:wire", "node1:wire"]
    assert [interface.description for interface in capture.interfaces] == ["number 0", "number 1"]
    assert [(interface.received, interface.dropped) for interface in capture.interfaces] == [(None, None), (2**40, 7)]


def test_scapy_reads_the_same(tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    frames = [bytes(range(60 + n)) for n in range(9)]
    path = tmp_path / "x.pcapng"
    path.write_bytes(file_of(pcapng.packets(1, TIME, Frames.of(frames), Direction.INBOUND, packet_id=5)))
    with RawPcapNgReader(str(path)) as packets:
        assert [bytes(data) for data, _ in packets] == frames


def test_tshark_reads_the_same(tmp_path: Path, tshark: Tshark) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        file_of(
            pcapng.packets(0, TIME, Frames.of([ARP, ARP]), Direction.OUTBOUND, packet_id=2**40 + 9),
            pcapng.packets(1, TIME + 1, Frames.of([ARP]), Direction.INBOUND, snaplen=40),
            pcapng.interface_statistics(0, start_ns=TIME, end_ns=TIME + 1, received=2, dropped=0),
        )
    )
    fields = ("frame.interface_name", "frame.time_epoch", "frame.packet_id", "frame.packet_flags_direction")
    assert tshark(path, *fields, "frame.len", "frame.cap_len") == [
        ["node0:wire", "1700000000.123456789", str(2**40 + 9), "0x00000002", "42", "42"],
        ["node0:wire", "1700000000.123456789", str(2**40 + 9), "0x00000002", "42", "42"],
        ["node1:wire", "1700000000.123456790", "", "0x00000001", "42", "40"],
    ]
    assert tshark(path, "frame.number", where="_ws.malformed and not frame.cap_len < frame.len") == []


# What others write


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) & 3)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def section(order: str) -> bytes:
    return block(order, pcapng.SECTION_HEADER, struct.pack(order + "IHHq", pcapng.BYTE_ORDER_MAGIC, 1, 0, -1))


def interface(order: str, options: bytes = b"") -> bytes:
    return block(order, pcapng.INTERFACE_DESCRIPTION, struct.pack(order + "HHI", 1, 0, 0) + options)


def packet(order: str, number: int, ticks: int, data: bytes, options: bytes = b"") -> bytes:
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(order, pcapng.ENHANCED_PACKET, head + data + bytes(-len(data) & 3) + options)


@pytest.mark.parametrize("order", ["<", ">"])
def test_either_byte_order_any_option(order: str) -> None:
    comment = struct.pack(order + "HH5s3x", 1, 5, b"hello")
    flags = struct.pack(order + "HHI", 2, 4, 0x1FE)
    number = struct.pack(order + "HHQ", 5, 8, 2**60 + 3)
    end = bytes(4)
    unknown = block(order, 0x0BAD, b"passed over")
    capture = reader.parse(
        section(order)
        + interface(order)
        + unknown
        + packet(order, 0, 1_000_001, b"abcde", comment + flags + number + end)
        + packet(order, 0, 2, b"", comment)
        + packet(order, 0, 3, b"xyz")
    )
    assert [capture.packet(row) for row in range(3)] == [b"abcde", b"", b"xyz"]
    assert capture.time_ns.tolist() == [1_000_001_000, 2000, 3000]
    assert capture.direction.tolist() == [2, 0, 0]
    assert capture.packet_id.tolist() == [2**60 + 3, 0, 0]


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time_ns"),
    [
        (9, 0, TIME, TIME),
        (6, 0, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (0, 0, 1_700_000_000, 1_700_000_000_000_000_000),
        (12, 0, 5_000, 5),
        (127, 0, 5_000, 0),
        (0x80 | 10, 0, 1024 * 3 + 512, 3_500_000_000),
        (0x80 | 30, 0, 2**62, 4_294_967_296_000_000_000),
        (0x80 | 12, 0, 2**62, 9_200_000_000_000_000_000),  # a time that no clock shows is only bounded
        (9, -5, 7_000_000_000, 2_000_000_000),
    ],
)
def test_time_resolutions(resolution: int, offset: int, ticks: int, time_ns: int) -> None:
    options = struct.pack("<HHB3xHHqHH", 9, 1, resolution, 14, 8, offset, 0, 0)
    capture = reader.parse(section("<") + interface("<", options) + packet("<", 0, ticks, b"x"))
    assert capture.time_ns.tolist() == [time_ns]


def test_sections_number_their_own_interfaces() -> None:
    one = section("<") + interface("<") + packet("<", 0, 1, b"a")
    other = section(">") + interface(">") + interface(">") + packet(">", 1, 1, b"b") + packet(">", 0, 1, b"c")
    capture = reader.parse(one + other)
    assert capture.interface.tolist() == [0, 2, 1]
    assert [capture.packet(row) for row in range(3)] == [b"a", b"b", b"c"]


def test_a_file_without_packets_is_a_capture() -> None:
    assert len(reader.parse(section("<"))) == 0


# What is broken

HEAD = section("<") + interface("<")


@pytest.mark.parametrize(
    ("data", "offset", "problem"),
    [
        (b"GIF89a" + bytes(40), 0, "not a pcapng file"),
        (b"\x0a\x0d\x0d\x0a", 0, "not a pcapng file"),
        (struct.pack("<I", 0xA1B2C3D4) + bytes(40), 0, "classic pcap"),
        (struct.pack("<III", pcapng.SECTION_HEADER, 28, 7) + bytes(16), 8, "magic 0x00000007"),
        (block("<", pcapng.SECTION_HEADER, struct.pack("<IHHq", pcapng.BYTE_ORDER_MAGIC, 2, 1, -1)), 12, "version 2.1"),
        (HEAD + struct.pack("<III", 6, 13, 13), len(HEAD), "length of 13 bytes"),
        (HEAD + struct.pack("<III", 6, 0, 0), len(HEAD), "length of 0 bytes"),
        (HEAD + struct.pack("<III", 6, 400, 0), len(HEAD), "cut short"),
        (HEAD + struct.pack("<III", 9, 12, 16), len(HEAD), "two lengths differ"),
        (HEAD + b"\0\0\0", len(HEAD), "3 bytes too many"),
        (HEAD + block("<", 6, bytes(16)), len(HEAD), "without room for its fields"),
        (HEAD + packet("<", 1, 0, b"x"), len(HEAD), "interface that is not described"),
        (HEAD + block("<", 6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + b"abcd"), len(HEAD), "longer than its block"),
        (HEAD + packet("<", 0, 0, b"", struct.pack("<HH", 2, 9)), len(HEAD) + 28, "option longer than its block"),
        (HEAD + packet("<", 0, 0, b"", struct.pack("<HH", 7, 0) * 70), len(HEAD) + 28 + 256, "more than 64 options"),
        (section("<") + block("<", 1, b"\1\0\0\0"), 28, "interface description of 16 bytes"),
        (section("<") + interface("<", struct.pack("<HH", 2, 900)), 44, "option of 900 bytes"),
        (section("<") + interface("<", struct.pack("<HHI", 9, 4, 0)), 28, "malformed time option"),
        (HEAD + block("<", 5, bytes(8)), len(HEAD), "statistics block of 20 bytes"),
        (HEAD + block("<", 5, struct.pack("<III", 4, 0, 0)), len(HEAD), "not described"),
    ],
)
def test_broken_files_are_refused_with_the_offset(data: bytes, offset: int, problem: str) -> None:
    with pytest.raises(CaptureError, match=problem) as caught:
        reader.parse(data)
    assert caught.value.offset == offset
    assert str(caught.value).endswith(f"at byte offset {offset}")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(CaptureError, match="the file is empty"):
        reader.read(path)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_change_of_a_file_does_more_than_an_error(data: st.DataObject) -> None:
    """Bytes changed, cut off or inserted anywhere: read or refused, and nothing else."""
    good = bytearray(
        file_of(
            pcapng.packets(0, TIME, Frames.of([ARP, b"abc"]), Direction.OUTBOUND, packet_id=9),
            pcapng.interface_statistics(0, start_ns=TIME, end_ns=TIME, received=2, dropped=0),
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        how = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if how == "change":
            good[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del good[max(at, 1) :]
        else:
            good[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    offset, capture = outcome(bytes(good))
    assert 0 <= offset <= len(good)
    assert all(len(capture.packet(row)) == capture.captured[row] for row in range(len(capture)))


def outcome(data: bytes) -> tuple[int, reader.CaptureFile]:
    """Where a file is broken, or what is in it."""
    try:
        return 0, reader.parse(data)
    except CaptureError as error:
        return error.offset, reader.parse(section("<"))
