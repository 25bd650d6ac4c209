"""Capture files of any origin, read and told of as `softnic inspect` does.

A file that is broken is refused with the place where it is; anything else can be told of, flow by flow and packet by
packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from softnic.codecs import DecodeError
from tests.facades.capture import (
    Analysis,
    CaptureError,
    CaptureFile,
    CaptureReport,
    Direction,
    StreamError,
    jsonable_floats,
    parse,
    pcapng,
    stream_bytes,
    stream_floats,
    summarize,
)
from tests.facades.packet import Frames
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
    statistics = pcapng.interface_statistics(0, start_ns=1, end_ns=10**9, received=3, dropped=1)
    yield section
    for number, batch in enumerate(native.frames(), 1):
        frames = Frames.of(batch[:3])
        packets = pcapng.packets(0, 10**18 + number, frames, Direction.OUTBOUND, packet_id=number)
        packets += pcapng.packets(1, 10**18, frames, Direction.INBOUND, snaplen=96)
        yield section + wire + host + packets + statistics
    yield section + wire + section + host + statistics
