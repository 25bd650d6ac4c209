"""pcapng: what we write, others read; what others write, we read; what is broken is refused with its offset."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.capture import pcapng, reader
from softnic.capture.capture_file import NO_LINK, CaptureError, CaptureFile
from softnic.capture.pcapng import Direction
from softnic.packet.frames import Frames

from .blocks import block, interface, obsolete_packet, option, packet, packets, pcap, section, simple_packet
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
        packets(interface, time, Frames.of(frames), direction, packet_id=number, snaplen=snaplen)
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
    statistics = pcapng.InterfaceStatistics(1, start_ns=TIME, end_ns=TIME + 10**9, received=2**40, dropped=7).block()
    capture = reader.parse(file_of(statistics))
    assert capture.application == "softnic"
    assert [interface.name for interface in capture.interfaces] == ["node0:wire", "node1:wire"]
    assert [interface.description for interface in capture.interfaces] == ["number 0", "number 1"]
    assert [(interface.received, interface.dropped) for interface in capture.interfaces] == [(None, None), (2**40, 7)]


def test_scapy_reads_the_same(tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    frames = [bytes(range(60 + n)) for n in range(9)]
    path = tmp_path / "x.pcapng"
    path.write_bytes(file_of(packets(1, TIME, Frames.of(frames), Direction.INBOUND, packet_id=5)))
    with RawPcapNgReader(str(path)) as found:
        assert [bytes(data) for data, _ in found] == frames


def test_tshark_reads_the_same(tmp_path: Path, tshark: Tshark) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        file_of(
            packets(0, TIME, Frames.of([ARP, ARP]), Direction.OUTBOUND, packet_id=2**40 + 9),
            packets(1, TIME + 1, Frames.of([ARP]), Direction.INBOUND, snaplen=40),
            pcapng.InterfaceStatistics(0, start_ns=TIME, end_ns=TIME + 1, received=2, dropped=0).block(),
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


@pytest.mark.parametrize("order", ["<", ">"])
def test_either_byte_order_any_option(order: str) -> None:
    comment = struct.pack(order + "HH5s3x", 1, 5, b"hello")
    flags = struct.pack(order + "HHI", 2, 4, 0x1FE)
    number = struct.pack(order + "HHQ", 5, 8, 2**60 + 3)
    end = bytes(4)
    unknown = block(order, 7, b"passed over")
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
    """Those of a later section that are described alike are the same vantage points."""
    one = section("<") + interface("<") + packet("<", 0, 1, b"a")
    other = section(">") + interface(">") + interface(">") + packet(">", 1, 1, b"b") + packet(">", 0, 1, b"c")
    capture = reader.parse(one + other)
    assert capture.interface.tolist() == [0, 1, 0]
    assert [capture.packet(row) for row in range(3)] == [b"a", b"b", b"c"]


def test_what_sections_say_of_one_vantage_point_is_added() -> None:
    """Each has its own resolution and statistics; names, descriptions and link types tell interfaces apart."""
    fine = option("<", pcapng.IF_TSRESOL, b"\x09")
    counts = option("<", pcapng.ISB_IFRECV, struct.pack("<Q", 5)) + option("<", pcapng.ISB_IFDROP, struct.pack("<Q", 2))
    statistics = block("<", pcapng.INTERFACE_STATISTICS, struct.pack("<III", 0, 0, 0) + counts)
    one = section("<") + interface("<", name="a") + packet("<", 0, 7, b"1") + statistics + statistics
    two = section("<") + interface("<", fine, name="a") + packet("<", 0, 7, b"2") + statistics
    two += interface("<", name="a") + packet("<", 1, 7, b"3")
    three = section("<") + interface("<", name="a", link_type=101) + packet("<", 0, 7, b"4")
    described = option("<", pcapng.IF_DESCRIPTION, b"wire")
    three += interface("<", described, name="a") + packet("<", 1, 7, b"5")
    capture = reader.parse(one + two + three)
    assert capture.interface.tolist() == [0, 0, 1, 2, 3]
    assert capture.time_ns.tolist() == [7000, 7, 7000, 7000, 7000]
    assert [(each.received, each.dropped) for each in capture.interfaces] == [(10, 4), *[(None, None)] * 3]


@pytest.mark.parametrize("order", ["<", ">"])
def test_simple_and_obsolete_packets_and_records_have_rows(order: str) -> None:
    """A packet without a time has that before it; the first ones have that of the first packet with one."""
    flags = option(order, pcapng.EPB_FLAGS, struct.pack(order + "I", 2))
    capture = reader.parse(
        section(order)
        + interface(order, snaplen=6)
        + interface(order)
        + simple_packet(order, b"abc")
        + packet(order, 1, 5, b"de")
        + block(order, 9, b"MESSAGE=x\n\n\n")
        + obsolete_packet(order, 1, 2**32 + 6, b"fghi", flags)
        + simple_packet(order, b"123456", 99)
        + block(order, 8, b"no row")
    )
    assert [capture.packet(row) for row in range(5)] == [b"abc", b"de", b"MESSAGE=x\n\n\n", b"fghi", b"123456"]
    assert capture.time_ns.tolist() == [5000, 5000, 5000, 4294967302000, 4294967302000]
    assert capture.interface.tolist() == [0, 1, 2, 1, 0]
    assert capture.captured.tolist() == [3, 2, 12, 4, 6]
    assert capture.length.tolist() == [3, 2, 12, 4, 99]
    assert capture.direction.tolist() == [0, 0, 0, 2, 0]
    assert [each.link_type for each in capture.interfaces] == [1, 1, NO_LINK]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("count", [0, 14, 15, 16, 17, 64, 65, 1000])
def test_a_packet_has_any_number_of_options(order: str, count: int) -> None:
    comments = option(order, 1, b"c") * count
    flags = option(order, pcapng.EPB_FLAGS, struct.pack(order + "I", 5))
    number = option(order, pcapng.EPB_PACKETID, struct.pack(order + "Q", 2**60 + 3))
    last = packet(order, 0, 1, b"abcde", comments + flags + number + bytes(4) + number)
    head = section(order) + interface(order, option(order, 1, b"comment") * count, name="last")
    capture = reader.parse(head + packet(order, 0, 1, b"x") + last)
    assert (capture.direction.tolist(), capture.packet_id.tolist()) == ([0, 1], [0, 2**60 + 3])
    assert capture.interfaces[0].name == "last"


def test_a_file_without_packets_is_a_capture() -> None:
    assert len(reader.parse(section("<"))) == 0


# What is broken

HEAD = section("<") + interface("<")


@pytest.mark.parametrize(
    ("data", "offset", "problem"),
    [
        (b"GIF89a" + bytes(40), 0, "not a pcapng or pcap file"),
        (b"\x0a\x0d\x0d\x0a", 0, "not a pcapng or pcap file"),
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
        (
            HEAD + packet("<", 0, 0, b"", struct.pack("<HH", 7, 0) * 70 + struct.pack("<HH", 2, 9)),
            *(len(HEAD) + 28 + 280, "option of 9 bytes, longer than its block"),
        ),
        (HEAD + block("<", 3, b""), len(HEAD), "without room for its fields"),
        (HEAD + simple_packet("<", b"abcd", 9), len(HEAD), "longer than its block"),
        (section("<") + simple_packet("<", b"abcd"), 28, "interface that is not described"),
        (HEAD + block("<", 2, bytes(16)), len(HEAD), "without room for its fields"),
        (HEAD + obsolete_packet("<", 1, 0, b"x"), len(HEAD), "interface that is not described"),
        (HEAD + section("<") + packet("<", 0, 0, b"x"), len(HEAD) + 28, "interface that is not described"),
        (HEAD + section(">")[:20], len(HEAD), "no section header"),
        (pcap("<", False, [])[:23], 0, "file header of 23 bytes"),
        (struct.pack("<IHH", 0xA1B2C3D4, 3, 4) + bytes(16), 4, "version 3.4"),
        (pcap("<", False, [(1, 2, b"abc"), (1, 2, b"abc")])[:-1], 43, "3 bytes where the file has 2 left"),
        (pcap(">", True, [(1, 2, b"abc")]) + bytes(15), 43, "15 bytes too many after the last packet"),
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


# Classic pcap


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_a_classic_file_is_read(order: str, nanoseconds: bool) -> None:
    data = pcap(order, nanoseconds, [(1_700_000_000, 123_456, b"abc"), (2**32 - 1, 999_999, b""), (3, 4, b"12345")])
    cut = struct.pack(order + "IIII", 5, 6, 2, 2000) + b"xy"
    capture = reader.parse(data + cut)
    unit = 1 if nanoseconds else 1000
    assert [capture.packet(row) for row in range(4)] == [b"abc", b"", b"12345", b"xy"]
    times = [(1_700_000_000, 123_456), (2**32 - 1, 999_999), (3, 4), (5, 6)]
    assert capture.time_ns.tolist() == [seconds * 10**9 + part * unit for seconds, part in times]
    assert capture.length.tolist() == [3, 0, 5, 2000]
    assert [(each.name, each.link_type) for each in capture.interfaces] == [("interface 0", 1)]
    assert len(reader.parse(data[:24])) == 0


def test_bits_about_check_sequences_are_no_link_type() -> None:
    data = pcap("<", False, [], link_type=0x48000000 | 113)
    assert reader.parse(data).interfaces[0].link_type == 113


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(CaptureError, match="the file is empty"):
        reader.read(path)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_change_of_a_file_does_more_than_an_error(data: st.DataObject) -> None:
    """Bytes changed, cut off or inserted anywhere: read or refused, and nothing else."""
    modern = file_of(
        packets(0, TIME, Frames.of([ARP, b"abc"]), Direction.OUTBOUND, packet_id=9),
        pcapng.InterfaceStatistics(0, start_ns=TIME, end_ns=TIME, received=2, dropped=0).block(),
        simple_packet("<", ARP) + obsolete_packet("<", 1, TIME, b"abc") + block("<", 9, b"x=y"),
    )
    classic = pcap(">", True, [(1, 2, ARP), (3, 4, b"abc")])
    good = bytearray(data.draw(st.sampled_from([modern, classic, modern + section(">") + interface(">")])))
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


def outcome(data: bytes) -> tuple[int, CaptureFile]:
    """Where a file is broken, or what is in it."""
    try:
        return 0, reader.parse(data)
    except CaptureError as error:
        return error.offset, reader.parse(section("<"))
