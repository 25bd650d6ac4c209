"""Flows, streams and floats out of captures whose contents are known."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from softnic.capture import pcapng, reader
from softnic.capture.flows import Analysis, CapturedFlow, FlowView, unwrap
from softnic.capture.packets import CUT_OFF, ENCODED, MALFORMED, PLAIN
from softnic.capture.pcapng import Direction
from softnic.capture.report import CaptureReport
from softnic.capture.streams import StreamError, stream_bytes, stream_floats, tag_distribution
from softnic.codecs import DecodeError, get
from softnic.nic.nic import Mode
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags, Options

from .blocks import packets
from .lab import ARP, IPS, TOS, Lab, gradient

HOST_0, WIRE_0, HOST_1, WIRE_1 = range(4)


def analyse(lab: Lab) -> Analysis:
    return Analysis(reader.parse(lab.file()))


def view_at(flow: CapturedFlow, interface: int) -> FlowView:
    return next(view for view in flow.views if view.interface == interface)


def floats_at(analysis: Analysis, flow: CapturedFlow, interface: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return stream_floats(analysis, view_at(flow, interface))


# What was sent


@pytest.mark.parametrize("codec", ["bounded:10", "inceptionn:10", "inceptionn:20", "bounded:23"])
@pytest.mark.parametrize("mode", ["fill", "packet"])
def test_decoded_floats_match_what_was_sent(mode: Mode, codec: str) -> None:
    sent = np.concatenate([gradient(30_000), np.zeros(5000, np.float32), gradient(777, seed=2) * 300])
    lab = Lab(mode, codec)
    lab.connect()
    lab.send(b"some bytes first")
    lab.send(sent, tos=TOS)
    lab.send(b"and some more")
    analysis = analyse(lab)
    forth, back = analysis.flows
    decoded = get(codec).roundtrip(sent)
    assert floats_at(analysis, forth, HOST_0).tobytes() == sent.tobytes()
    assert floats_at(analysis, forth, WIRE_0).tobytes() == decoded.tobytes()
    assert floats_at(analysis, forth, WIRE_1).tobytes() == decoded.tobytes()
    assert floats_at(analysis, forth, HOST_1).tobytes() == decoded.tobytes()
    whole = b"some bytes first" + decoded.tobytes() + b"and some more"
    assert stream_bytes(analysis, view_at(forth, WIRE_0)) == whole
    assert stream_bytes(analysis, view_at(forth, HOST_1)) == whole
    assert back.main.original_bytes == 0


def test_sizes_ratio_and_table_iii_are_the_codecs_own() -> None:
    sent = gradient(16 * 500)
    lab = Lab("packet")
    lab.connect()
    lab.send(sent, tos=TOS)
    lab.send(b"x" * 100)
    analysis = analyse(lab)
    flow = analysis.flows[0]
    wire, host = view_at(flow, WIRE_0), view_at(flow, HOST_0)
    assert flow.main is wire
    counters = lab.stations[0].nic.counters
    assert wire.original_bytes == host.original_bytes == sent.nbytes + 100
    assert wire.tagged_original_bytes == counters.tx_offload_original_bytes == sent.nbytes
    assert wire.tagged_payload_bytes == counters.tx_offload_encoded_bytes
    assert wire.ratio == sent.nbytes / counters.tx_offload_encoded_bytes
    frames = analysis.packets.frame_bytes[analysis.packets.interface == WIRE_0]
    assert frames.sum() == counters.tx_wire_bytes + lab.stations[1].nic.counters.tx_wire_bytes
    assert host.ratio == 1
    distribution = tag_distribution(analysis, wire)
    magnitude = np.rint(np.abs(sent) * 512)  # q of FORMAT.md for k = 10
    assert distribution.vectors == (
        (magnitude == 0).sum(),
        ((magnitude > 0) & (magnitude < 128)).sum(),
        (magnitude >= 128).sum(),
        0,
    )
    assert distribution.words == sent.size
    assert distribution.codecs == {"bounded:10": wire.tagged_packets}
    assert distribution.undecodable_packets == 0


@pytest.mark.parametrize("codec", ["bfp:7", "truncate:16"])
def test_codecs_without_tags_have_no_distribution(codec: str) -> None:
    """Their packets decode and count as theirs, a malformed one as undecodable, and no column as full."""
    sent = gradient(16 * 500)
    lab = Lab(codec=codec)
    lab.connect()
    lab.send(sent, tos=TOS)
    analysis = analyse(lab)
    main = analysis.flows[0].main
    distribution = tag_distribution(analysis, main)
    assert (distribution.words, distribution.undecodable_packets) == (0, 0)
    assert distribution.codecs == {codec: main.tagged_packets}
    assert main.ratio == pytest.approx(3.7 if codec == "bfp:7" else 2, abs=0.1)
    expected = get(codec).roundtrip(sent)
    np.testing.assert_array_equal(stream_floats(analysis, main), expected)


def test_raw_packets_are_counted_apart() -> None:
    large = np.concatenate([gradient(5000), 1 + abs(gradient(5000))])
    lab = Lab(codec="inceptionn:10")
    lab.connect()
    lab.send(large, tos=TOS)
    analysis = analyse(lab)
    main = analysis.flows[0].main
    distribution = tag_distribution(analysis, main)
    assert main.raw_packets == lab.stations[0].nic.counters.tx_offload_raw_frames > 0
    assert distribution.raw_words > 0
    assert distribution.words == large.size


def test_packet_ids_tie_frames_to_their_segment() -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(50_000), tos=TOS)
    lab.send(gradient(10), tos=TOS)
    packets = analyse(lab).packets
    ids = {
        side: [int(one) for one in packets.packet_id[(packets.interface == side) & (packets.src == IPS[0])]]
        for side in (HOST_0, WIRE_0, WIRE_1, HOST_1)
    }
    assert len(set(ids[HOST_0])) == 4, "a SYN, an ACK, two segments with data"
    assert set(ids[HOST_0]) == set(ids[WIRE_0])
    assert all(number >> 32 == IPS[0] for number in ids[WIRE_0])
    assert len(ids[WIRE_0]) > len(ids[HOST_0]) == 7, "200 KB are four packets at the host, and many on the wire"
    assert set(ids[WIRE_1]) == set(ids[HOST_1]) == {0}


def test_segments_taken_in_part_show_what_was_taken() -> None:
    lab = Lab()
    lab.connect()
    sent = gradient(40_000)
    segment = lab.segment(0, sent.tobytes(), Flags.ACK | Flags.PSH, TOS)
    taken = lab.deliver(segment, max_frames=3)
    assert 0 < taken < sent.nbytes
    analysis = analyse(lab)
    host = view_at(analysis.flows[0], HOST_0)
    assert host.original_bytes == taken
    assert not (analysis.packets.flags[host.members] & Flags.PSH).any()


# Sent again, lost, out of order


def test_repeated_segments_count_once_in_the_stream() -> None:
    lab = Lab()
    lab.connect()
    sent = gradient(16 * 1000)
    first, second = sent[: 16 * 600], sent[16 * 600 :]
    start = lab.seq[0]
    lab.send(first, tos=TOS)
    after = lab.seq[0]
    lab.seq[0] = start + 64 * 100
    lab.deliver(lab.segment(0, first[16 * 100 :].tobytes(), tos=TOS))
    assert lab.seq[0] == after
    lab.send(second, tos=TOS)
    analysis = analyse(lab)
    for interface in (HOST_0, WIRE_0, WIRE_1):
        view = view_at(analysis.flows[0], interface)
        assert view.repeated_bytes == first[16 * 100 :].nbytes
        assert view.original_bytes == sent.nbytes + view.repeated_bytes
        decoded = sent if interface == HOST_0 else get("bounded:10").roundtrip(sent)
        assert stream_floats(analysis, view).tobytes() == decoded.tobytes()


def test_packets_out_of_order_are_put_in_order() -> None:
    lab = Lab()
    lab.connect()
    sent = gradient(16 * 400)
    start = lab.seq[0]
    for part in (2, 0, 3, 1):
        lab.seq[0] = start + part * 6400
        lab.deliver(lab.segment(0, sent[part * 1600 : (part + 1) * 1600].tobytes(), tos=TOS))
    analysis = analyse(lab)
    view = view_at(analysis.flows[0], WIRE_1)
    assert stream_floats(analysis, view).tobytes() == get("bounded:10").roundtrip(sent).tobytes()
    assert view.repeated_packets > 0, "what arrives behind a later packet brings no new end"


def test_a_hole_in_a_stream_is_an_error_that_says_where() -> None:
    lab = Lab()
    lab.connect()
    lab.send(b"a" * 100)
    lab.seq[0] += 50
    lab.send(b"b" * 100)
    analysis = analyse(lab)
    with pytest.raises(StreamError, match=r"50 bytes from byte 101 of the stream on were not captured"):
        stream_bytes(analysis, analysis.flows[0].main)


@pytest.mark.parametrize("start", [0, 2**31, 2**32 - 100])
def test_unwrapping_follows_the_stream_around_the_wrap(start: int) -> None:
    steps = np.array([0, 5, -3, 2**31 - 1, 7, -(2**31), 2**30])
    offsets = np.cumsum(steps)
    assert unwrap((start + offsets) % 2**32).tolist() == offsets.tolist()


# Connections


def test_a_connection_begins_anew_with_a_new_initial_sequence_number() -> None:
    lab = Lab()
    lab.connect()
    lab.send(b"old")
    lab.seq = [123456, 99]
    lab.connect()
    lab.send(b"new")
    analysis = analyse(lab)
    flows = [(flow.number, flow.connection, flow.src) for flow in analysis.flows]
    assert flows == [(1, 1, IPS[0]), (2, 1, IPS[1]), (3, 2, IPS[0]), (4, 2, IPS[1])]
    assert [stream_bytes(analysis, flow.main) for flow in analysis.flows] == [b"old", b"", b"new", b""]


def test_without_negotiation_tagged_floats_are_plain() -> None:
    lab = Lab()
    for sender, flags in ((0, Flags.SYN), (1, Flags.SYN | Flags.ACK), (0, Flags.ACK)):
        segment = lab.segment(sender, flags=flags)
        if sender == 0:
            segment.options = Options(mss=1460)
        lab.deliver(segment)  # the second SYN has no options, so no NIC adds its own
    sent = gradient(1000)
    lab.send(sent, tos=TOS)
    analysis = analyse(lab)
    flow = analysis.flows[0]
    assert flow.refused
    assert (analysis.headers.state == PLAIN).all()
    assert flow.main.ratio == 1
    assert floats_at(analysis, flow, WIRE_1).tobytes() == sent.tobytes()


def test_without_the_handshake_payload_headers_are_still_found() -> None:
    lab = Lab()
    lab.connect()
    lab.file()
    lab.readers = [lab.start(number) for number in (0, 1)]
    sent = gradient(3000)
    lab.send(sent, tos=TOS)
    analysis = analyse(lab)
    flow = analysis.flows[0]
    assert (flow.codecs, flow.refused) == (None, False)
    assert floats_at(analysis, flow, WIRE_0).tobytes() == get("bounded:10").roundtrip(sent).tobytes()


# What cannot be decoded


def test_a_snaplen_leaves_sizes_and_takes_floats() -> None:
    lab = Lab(snaplen=100)
    lab.connect()
    sent = gradient(3000)
    lab.send(sent, tos=TOS)
    analysis = analyse(lab)
    main = analysis.flows[0].main
    assert main.tagged_original_bytes == sent.nbytes
    assert main.tagged_payload_bytes == lab.stations[0].nic.counters.tx_offload_encoded_bytes
    assert tag_distribution(analysis, main).undecodable_packets == main.tagged_packets
    with pytest.raises(DecodeError, match="snaplen"):
        stream_floats(analysis, main)


def test_a_snaplen_below_the_payload_header_leaves_wire_sizes() -> None:
    lab = Lab(snaplen=70)
    lab.connect()
    lab.send(gradient(3000), tos=TOS)
    analysis = analyse(lab)
    main = analysis.flows[0].main
    assert (analysis.headers.state[main.members][analysis.tagged[main.members]] == CUT_OFF).all()
    assert tag_distribution(analysis, main).undecodable_packets == main.tagged_packets


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0x20), (0, 0x14), (1, 0), (3, 1), (4, 0x7F), (8, 1), (11, 0)],
    ids=["version", "flag", "codec 0", "tail", "original", "encoded", "encoded less"],
)
def test_headers_that_contradict_their_packet_are_malformed(at: int, value: int) -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(64), tos=TOS)
    data = bytearray(lab.file())
    analysis = Analysis(reader.parse(bytes(data)))
    member = next(row for row in analysis.flows[0].main.members.tolist() if analysis.tagged[row])
    assert analysis.headers.state[member] == ENCODED
    data[int(analysis.packets.payload_at[member]) + at] = value
    analysis = Analysis(reader.parse(bytes(data)))
    assert analysis.headers.state[member] == MALFORMED
    assert analysis.flows[0].main.malformed_packets == 1
    assert tag_distribution(analysis, analysis.flows[0].main).undecodable_packets == 1
    with pytest.raises(DecodeError):
        stream_floats(analysis, analysis.flows[0].main)


def test_a_body_that_no_codec_decodes_is_told_with_its_packet() -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(64), tos=TOS)
    data = bytearray(lab.file())
    analysis = Analysis(reader.parse(bytes(data)))
    member = next(row for row in analysis.flows[0].main.members.tolist() if analysis.tagged[row])
    data[int(analysis.packets.payload_at[member]) + 12] ^= 1  # which bursts are silent
    analysis = Analysis(reader.parse(bytes(data)))
    number = int(analysis.packets.row[member]) + 1
    found = CaptureReport(analysis, "x").packet(number)
    assert found is not None
    assert "not a bounded:10 encoding of 64 words" in found[0].problem


# What is no TCP


def frame(ip: bytes, ethertype: int = 0x0800) -> bytes:
    return bytes(12) + struct.pack("!H", ethertype) + ip


def ipv4(*, first: int = 0x45, total: int = 40, fragment: int = 0, protocol: int = 6, offset: int = 0x50) -> bytes:
    header = struct.pack("!BBHHHBBH8s", first, 0, total, 0, fragment, 64, protocol, 0, bytes(8))
    return header + struct.pack("!HHIIBBHHH", 1, 2, 3, 4, offset, 16, 5, 0, 0)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (ARP, "ARP"),
        (bytes(13), "cut too short"),
        (frame(b"", 0x86DD), "IPv6"),
        (frame(b"", 0x1234), "other Ethernet"),
        (frame(ipv4()[:19]), "cut too short"),
        (frame(ipv4()[:39]), "malformed IPv4"),
        (frame(ipv4(first=0x65)), "malformed IPv4"),
        (frame(ipv4(first=0x44)), "malformed IPv4"),
        (frame(ipv4(total=19)), "malformed IPv4"),
        (frame(ipv4(total=41)), "malformed IPv4"),
        (frame(ipv4(fragment=0x2000)), "IPv4 fragment"),
        (frame(ipv4(fragment=5)), "IPv4 fragment"),
        (frame(ipv4(protocol=1)), "ICMP"),
        (frame(ipv4(protocol=200)), "other IPv4"),
        (frame(ipv4(total=30)), "malformed TCP"),
        (frame(ipv4(offset=0x40)), "malformed TCP"),
        (frame(ipv4(offset=0x60)), "malformed TCP"),
        (frame(ipv4(first=0x46)), "cut too short"),
    ],
)
def test_other_packets_are_counted_by_kind(data: bytes, kind: str) -> None:
    head = pcapng.section_header("x") + pcapng.interface_description("a")
    good = frame(ipv4())
    blocks = packets(0, 0, Frames.of([data, good]), Direction.OUTBOUND)
    analysis = Analysis(reader.parse(head + blocks))
    assert dict(analysis.others) == {kind: 1}
    assert analysis.packets.row.tolist() == [1]


def test_any_change_of_a_capture_can_be_analysed() -> None:
    """Whatever stands in the frames: it is counted, decoded or told, never a crash."""
    lab = Lab()
    lab.connect()
    lab.send(gradient(2000), tos=TOS)
    lab.send(b"bytes")
    lab.other_frame(ARP)
    good = lab.file()
    for seed in range(150):
        rng = random.Random(seed)
        capture = reader.parse(good)
        data = bytearray(good)
        for row in rng.sample(range(len(capture)), len(capture) // 2):
            at = int(capture.offset[row]) + min(rng.randrange(90), int(capture.captured[row]) - 1)
            data[at] = rng.randrange(256)
        report = CaptureReport(Analysis(reader.parse(bytes(data))), "x")
        summary = report.summary()
        assert sum(summary.kinds.values()) == len(capture)
        assert sum(view.packets for flow in summary.flows for view in flow.views) == summary.kinds.get("TCP", 0)
        for number in range(1, len(capture) + 1):
            found = report.packet(number)
            assert found is None or found[0].number == number
