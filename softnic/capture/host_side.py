"""Records segments that Python sends and receives, as frames between TCP and NIC (native/nic/capture.h)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softnic._native import ffi, lib
from softnic.capture.pcapng import Direction
from softnic.packet.ethernet import mac_of
from softnic.packet.headers import pack_headers
from softnic.packet.segment import Flags, Segment

_ENDING = int(Flags.PSH | Flags.FIN)


def record_segment(c: Any, segment: Segment, consumed: int, direction: Direction, packet_id: int, now: float) -> None:
    """Record the first `consumed` payload bytes of a segment with an `sn_capture`.

    PSH and FIN are shown only if that is the whole segment. `packet_id` is its number, 0 for one that has arrived.
    """
    payload = segment.payload[:consumed]
    partial = len(payload) < len(segment.payload)
    shown = replace(
        segment,
        flags=segment.flags & ~_ENDING if partial else segment.flags,
        options=replace(segment.options, codecs=None) if segment.options is not None else None,
    )
    header = pack_headers(shown, mac_of(segment.dst), mac_of(segment.src), packet_id & 0xFFFF)
    source = ffi.from_buffer("uint8_t[]", payload)
    if lib.sn_capture_segment(c, header, len(header), source, len(payload), direction, packet_id, now):
        raise AssertionError(f"no segment has {len(header)} bytes of headers")
