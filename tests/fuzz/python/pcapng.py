"""Capture files of any origin, read and told of as `softnic inspect` does.

A file that is broken is refused with the place where it is; anything else can be told of, flow by flow and packet by
packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from softnic.capture import pcapng
from softnic.capture.capture_file import CaptureError, CaptureFile
from softnic.capture.flows import Analysis
from softnic.capture.pcapng import Direction
from softnic.capture.reader import parse
from softnic.capture.report import CaptureReport, jsonable_floats, summarize
from softnic.capture.streams import StreamError, stream_bytes, stream_floats
from softnic.codecs import DecodeError
from softnic.packet.frames import Frames
from tests.capture import blocks
from tests.fuzz import seeds as native

_SHOWN = 8


def _read(data: bytes) -> CaptureFile | None:
    offset = 0
    try:
        return parse(data)
    except CaptureError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)
    return None


def feed(data: bytes) -> None:
    capture = _read(data)
    if capture is None:
        return
    assert all(len(capture.packet(row)) == capture.captured[row] for row in range(len(capture)))
    analysis = Analysis(capture)
    report = CaptureReport(analysis, "fuzzed")
    summary = report.summary()
    assert summary.packets == len(capture)
    assert sum(summary.kinds.values()) == len(capture)
    asdict(summary)
    for flow in analysis.flows[:_SHOWN]:
        for view in flow.views:
            report.flow(flow, view)
            report.packets(flow, view, _SHOWN)
            try:
                stream_bytes(analysis, view)
                summarize(stream_floats(analysis, view))
            except (StreamError, DecodeError):
                pass
    for number in range(1, min(len(capture), _SHOWN) + 1):
        found = report.packet(number)
        if found is not None and not isinstance(found[1], bytes):
            jsonable_floats(found[1])


def seeds() -> Iterator[bytes]:
    section = pcapng.section_header("softnic", "Linux")
    wire = pcapng.interface_description("node0:wire", "0x28=bounded:10", ip=1, mac=bytes(6))
    host = pcapng.interface_description("node0:host", snaplen=96)
    statistics = pcapng.InterfaceStatistics(0, start_ns=1, end_ns=10**9, received=3, dropped=1).block()
    yield section
    for number, batch in enumerate(native.frames(), 1):
        frames = Frames.of(batch[:3])
        packets = blocks.packets(0, 10**18 + number, frames, Direction.OUTBOUND, packet_id=number)
        packets += blocks.packets(1, 10**18, frames, Direction.INBOUND, snaplen=96)
        yield section + wire + host + packets + statistics
    yield section + wire + section + host + statistics
    yield from _of_other_tools()


def _of_other_tools() -> Iterator[bytes]:
    """Classic files, sections of either order, all kinds of packets, records that are no packets, link layers."""
    segments = [blocks.ipv4(100, flags=blocks.SYN), blocks.ipv4(101, b"hello"), blocks.ipv4(106, b"!", blocks.FIN)]
    tagged, ethernet = blocks.ipv4(107, native.payloads()[2], tos=0x28), blocks.ETHERNET
    for order, nanoseconds in (("<", False), (">", False), ("<", True), (">", True)):
        yield blocks.pcap(order, nanoseconds, [(1, 2, ethernet + one) for one in (*segments, tagged)])
    for link_type, head in ((101, b""), (0, b"\x02\0\0\0"), (113, bytes(14) + b"\x08\0"), (276, b"\x08\0" + bytes(18))):
        yield blocks.pcap("<", False, [(1, 2, head + one) for one in segments], link_type)
    for order in "<>":
        vlan = bytes(12) + b"\x88\xa8\0\5\x81\0\0\6\x08\0" + segments[1]
        parts = [blocks.section(order), blocks.interface(order, name="a"), blocks.simple_packet(order, vlan)]
        parts += [blocks.obsolete_packet(order, 0, 9, ethernet + tagged), blocks.block(order, 9, b"MESSAGE=x")]
        parts += [blocks.packet(order, 0, 9, ethernet + segments[0], blocks.option(order, 1, b"") * 20)]
        yield b"".join(parts * 2)
