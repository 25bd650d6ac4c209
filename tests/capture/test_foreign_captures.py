"""Captures of other tools: every link layer, and the packet numbers, segments and connections that tshark finds."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from softnic.capture.flows import Analysis, connections_of
from softnic.capture.packets import decode
from softnic.capture.reader import parse
from softnic.capture.streams import stream_bytes

from .blocks import (
    ACK,
    ETHERNET,
    FIN,
    PSH,
    SYN,
    block,
    frame,
    interface,
    ipv4,
    obsolete_packet,
    packet,
    pcap,
    section,
    simple_packet,
)
from .conftest import Tshark

HELLO = ipv4(100, b"hello")
MAC = bytes(12)
SLL = struct.pack("!HHH8s", 0, 1, 6, bytes(8))
SLL2 = struct.pack("!HIHBB8s", 0, 1, 1, 0, 6, bytes(8))
LINK_LAYERS = {
    "Ethernet": (1, MAC + b"\x08\x00" + HELLO),
    "802.1Q": (1, MAC + b"\x81\x00\x00\x05\x08\x00" + HELLO),
    "QinQ": (1, MAC + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00" + HELLO),
    "QinQ of old": (1, MAC + b"\x91\x00\x00\x05\x81\x00\x00\x06\x08\x00" + HELLO),
    "raw 12": (12, HELLO),
    "raw 14": (14, HELLO),
    "raw 101": (101, HELLO),
    "IPv4": (228, HELLO),
    "SLL": (113, SLL + b"\x08\x00" + HELLO),
    "SLL with a tag": (113, SLL + b"\x81\x00\x00\x05\x08\x00" + HELLO),
    "SLL2": (276, b"\x08\x00" + SLL2 + HELLO),
    "SLL2 with a tag": (276, b"\x81\x00" + SLL2 + b"\x00\x05\x08\x00" + HELLO),
    "loopback, little": (0, struct.pack("<I", 2) + HELLO),
    "loopback, big": (0, struct.pack(">I", 2) + HELLO),
    "OpenBSD's loopback": (108, struct.pack(">I", 2) + HELLO),
}


def of_link_type(link_type: int, *packets: bytes) -> Analysis:
    return Analysis(parse(pcap("<", False, [(1, 0, each) for each in packets], link_type)))


@pytest.mark.parametrize("name", LINK_LAYERS)
def test_link_layers_are_passed_over(name: str) -> None:
    link_type, data = LINK_LAYERS[name]
    analysis = of_link_type(link_type, data)
    assert analysis.others == {}
    (flow,) = analysis.flows
    assert (flow.src, flow.sport, flow.dst, flow.dport) == (0x0A4D0001, 40000, 0x0A4D0002, 29478)
    assert stream_bytes(analysis, flow.main) == b"hello"
    assert flow.main.frame_bytes == len(data)


@pytest.mark.parametrize("name", LINK_LAYERS)
def test_every_start_of_a_packet_is_counted_by_kind(name: str) -> None:
    """Cut anywhere by a snaplen, it is a TCP packet or a packet of another kind, and nothing is read beyond it."""
    link_type, data = LINK_LAYERS[name]
    for kept in range(len(data)):
        record = struct.pack("<IIII", 1, 0, kept, len(data)) + data[:kept]
        analysis = Analysis(parse(pcap("<", False, [], link_type) + record))
        seen = len(analysis.packets)
        assert seen + sum(analysis.others.values()) == 1
        assert seen == (kept >= len(data) - 5), "with both headers"


@pytest.mark.parametrize(
    ("link_type", "data", "kind"),
    [
        (147, HELLO, "other link type"),
        (1, MAC + b"\x81\x00\x00\x05\x86\xdd", "IPv6"),
        (1, MAC + b"\x81\x00\x00", "VLAN"),
        (1, MAC + b"\x88\xa8\x00\x05" * 17 + b"\x08\x00" + HELLO, "VLAN"),
        (101, b"\x60" + bytes(60), "IPv6"),
        (229, b"\x60" + bytes(60), "IPv6"),
        (101, b"\x10" + bytes(60), "other Ethernet"),
        (101, b"", "cut too short"),
        (0, struct.pack("<I", 30) + bytes(60), "other Ethernet"),
        (113, SLL + b"\x08\x06" + bytes(28), "ARP"),
        (276, b"\x08\x06" + SLL2 + bytes(28), "ARP"),
    ],
)
def test_what_has_no_ipv4_is_counted_by_kind(link_type: int, data: bytes, kind: str) -> None:
    analysis = of_link_type(link_type, data)
    assert (len(analysis.packets), dict(analysis.others)) == (0, {kind: 1})


def test_sixteen_tags_are_passed_over() -> None:
    analysis = of_link_type(1, MAC + b"\x88\xa8\x00\x05" * 16 + b"\x08\x00" + HELLO)
    assert stream_bytes(analysis, analysis.flows[0].main) == b"hello"


@pytest.mark.parametrize("bytes_beyond", [0, 65536])
def test_a_total_length_of_zero_is_that_of_the_frame(bytes_beyond: int) -> None:
    """A host leaves it to its NIC (TSO), and the packet may be longer than IPv4's largest."""
    payload = b"x" * (1000 + bytes_beyond)
    analysis = of_link_type(1, ETHERNET + ipv4(100, payload, total=0))
    assert analysis.packets.payload.tolist() == [len(payload)]
    assert stream_bytes(analysis, analysis.flows[0].main) == payload


def test_a_frame_longer_than_any_kernel_makes_has_no_length() -> None:
    longest = (1 << 18) - 40
    for size, kinds in ((longest, {}), (longest + 1, {"malformed IPv4": 1})):
        assert dict(of_link_type(101, ipv4(100, bytes(size), total=0)).others) == kinds


# tshark

FIELDS = ("frame.number", "frame.time_epoch", "tcp.seq_raw", "tcp.len", "tcp.stream")
NO_ANALYSIS = ("-o", "tcp.analyze_sequence_numbers:FALSE")


def as_tshark(data: bytes) -> list[list[str]]:
    """The TCP packets as tshark shows them: packet number, time, sequence number, payload, connection from 0."""
    analysis = Analysis(parse(data))
    connection = {member: flow.connection for flow in analysis.flows for one in flow.views for member in one.members}
    packets = analysis.packets
    return [
        [
            str(int(packets.row[row]) + 1),
            f"{int(packets.time_ns[row]) // 10**9}.{int(packets.time_ns[row]) % 10**9:09}",
            *(str(int(packets.seq[row])), str(int(packets.payload[row])), str(connection[row] - 1)),
        ]
        for row in range(len(packets))
    ]


def test_numbers_in_blocks_of_every_kind_are_those_of_tshark(tmp_path: Path, tshark: Tshark) -> None:
    """Sections of both orders, link layers, simple and obsolete packets, records that are none, many options."""
    parts = []
    for order, options in (("<", 3), (">", 70)):
        comments = struct.pack(order + "HH4s", 1, 4, b"text") * options + bytes(4)
        parts += [section(order), *(interface(order, link_type=kind) for kind, _ in LINK_LAYERS.values())]
        parts += [block(order, 9, b"__REALTIME_TIMESTAMP=1700000000000000\nMESSAGE=x\n")]
        for number, (_, data) in enumerate(LINK_LAYERS.values()):
            parts += [packet(order, number, 10**6 * number + 1, data, comments), block(order, 7, b"unknown")]
            parts += [obsolete_packet(order, number, 10**6 * number + 2, data, comments)]
        parts += [simple_packet(order, frame(number)) for number in (200, 300)]
        parts += [packet(order, 0, 10**8, frame(400)), block(order, 0xBAD, struct.pack(order + "I", 32473) + b"text")]
        parts += [packet(order, 0, 10**8, ETHERNET + ipv4(500, b"x" * 300, total=0))]
    path = tmp_path / "x.pcapng"
    path.write_bytes(b"".join(parts))
    theirs = tshark(path, *FIELDS, where="tcp", options=NO_ANALYSIS)
    ours = as_tshark(path.read_bytes())
    simple = [row for row in theirs if not row[1]]
    assert len(simple) == 4, "which have no time there"
    assert [[one[0], *one[2:]] for one in ours] == [[one[0], *one[2:]] for one in theirs]
    assert [one[1] for one, other in zip(ours, theirs, strict=True) if other[1]] == [one[1] for one in theirs if one[1]]
    every = tshark(path, "frame.number")
    assert len(every) == len(parse(path.read_bytes()))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_a_classic_file_is_that_of_tshark(tmp_path: Path, tshark: Tshark, order: str, nanoseconds: bool) -> None:
    arp = MAC + b"\x08\x06" + bytes(28)
    packets = [(5, 123_456, frame(1, b"a")), (6, 7, arp), (6, 999_999, frame(2, b"bc", sender=1)), (7, 1, frame(2))]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap(order, nanoseconds, packets))
    assert as_tshark(path.read_bytes()) == tshark(path, *FIELDS, where="tcp", options=NO_ANALYSIS)


OPENING = [frame(100, flags=SYN), frame(500, flags=SYN | ACK, ack=101, sender=1), frame(101, ack=501)]
REOPENING = [frame(900, flags=SYN), frame(50, flags=SYN | ACK, ack=901, sender=1), frame(901, b"new", ack=51)]
CONNECTIONS = {
    "again": [*OPENING, frame(101, b"old", ack=501), *REOPENING],
    "begun before the capture": [frame(2000, b"old"), frame(2003), frame(7, b"answer", sender=1), *REOPENING],
    "SYN sent again": [OPENING[0], OPENING[0], OPENING[1], OPENING[1], OPENING[2], OPENING[0], frame(101, b"x")],
    "no answer, another attempt": [OPENING[0], OPENING[0], REOPENING[0], *REOPENING],
    "both at once": [frame(100, flags=SYN), frame(500, flags=SYN, sender=1), frame(100, flags=SYN | ACK, ack=501)],
    "thrice": [*OPENING, *REOPENING, *(frame(3000 + n, b"x"[:n], SYN if n == 0 else ACK) for n in (0, 1))],
}


@pytest.mark.parametrize("name", CONNECTIONS)
def test_ports_used_again_are_another_connection_as_in_tshark(name: str, tmp_path: Path, tshark: Tshark) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap("<", True, [(n, 0, data) for n, data in enumerate(CONNECTIONS[name])]))
    assert as_tshark(path.read_bytes()) == tshark(path, *FIELDS, where="tcp", options=NO_ANALYSIS)


def connections(*frames: bytes) -> list[int]:
    """The connection of each packet."""
    return [int(row[-1]) for row in as_tshark(pcap("<", True, [(n, 0, data) for n, data in enumerate(frames)]))]


def test_connections_without_tshark() -> None:
    """The table above, and what tshark takes differently: the last packets of the other side before a SYN."""
    expected = [[0] * 4 + [1] * 3, [0] * 3 + [1] * 3, [0] * 7, [0] * 2 + [1] * 4, [0] * 3, [0] * 3 + [1] * 3 + [2] * 2]
    assert [connections(*frames) for frames in CONNECTIONS.values()] == expected
    assert connections(frame(7, b"late", sender=1), *REOPENING) == [0, 1, 1, 1]
    answers = [frame(500, flags=SYN | ACK, ack=101, sender=1), frame(501, b"a", sender=1)]
    assert connections(*answers, *answers) == [0] * 4
    later = [frame(600, flags=SYN | ACK, ack=301, sender=1), frame(601, b"b", sender=1)]
    assert connections(*answers, *later) == [0, 0, 1, 1], "of one side alone"
    assert connections(OPENING[1], frame(101, b"x"), OPENING[0]) == [0] * 3, "a SYN that came late"
    other_answer = frame(555, flags=SYN | ACK, ack=101, sender=1)
    assert connections(*OPENING, other_answer) == [0] * 4, "it answers the same SYN"
    other_way = frame(777, flags=SYN, sender=1)
    assert connections(*OPENING[:2], other_way) == [0, 0, 1], "the other side had another number"
    wrapped = frame(9, flags=SYN | ACK, ack=0, sender=1)
    assert connections(frame(2**32 - 1, flags=SYN), frame(0), wrapped) == [0] * 3


def test_two_sections_are_one_capture() -> None:
    """As `cat first.pcapng second.pcapng` makes it."""
    head = section("<") + interface("<", name="eth0")
    first = head + packet("<", 0, 1, frame(100, b"one ")) + packet("<", 0, 2, frame(104, b"two "))
    second = head + packet("<", 0, 3, frame(108, b"three", ACK | PSH)) + packet("<", 0, 4, frame(113, flags=FIN | ACK))
    analysis = Analysis(parse(first + second))
    (flow,) = analysis.flows
    assert stream_bytes(analysis, flow.main) == b"one two three"
    assert len(flow.views) == 1


def cost_of_flows(count: int) -> float:
    """CPU seconds for `count` pairs of endpoints that connect twice each."""
    syns = [frame(seq, flags=SYN, ports=(number % 60000 + 1, 9)) for number in range(count) for seq in (1, 2)]
    capture = parse(pcap("<", True, [(0, 0, data) for data in syns]))
    packets, _ = decode(capture)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        assert connections_of(packets).tolist() == list(range(2 * count))
        best = min(best, time.process_time() - start)
    return best


def test_connections_that_begin_again_cost_what_they_are() -> None:
    """Eight times the connections cost about eight times the time, not 64 times."""
    assert cost_of_flows(16_000) < 24 * cost_of_flows(2_000)
