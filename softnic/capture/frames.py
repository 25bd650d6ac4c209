"""Shows host segments as Ethernet frames, for captures between TCP and NIC.

These frames never existed: a super-segment has no header of its own and may be longer than an IPv4 packet. It gets the
header that an ordinary NIC's driver would show, with valid lengths, sequence numbers and checksums, and is cut at
multiples of 64 bytes if too long. MACs are derived from the addresses, as softnic nodes do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from softnic._native import ffi, lib
from softnic.packet.ethernet import HEADER_LENGTH, mac_of
from softnic.packet.frames import HEADROOM, Frames
from softnic.packet.headers import pack_headers
from softnic.packet.segment import Flags, Segment

_MAX_IPV4 = 65535
_CUT = 64
_ENDING = int(Flags.PSH | Flags.FIN)


def host_frames(segment: Segment, consumed: int, packet_id: int = 0) -> Frames:
    """Return the first `consumed` payload bytes of a segment as frames; PSH and FIN only if that is the whole
    segment."""
    payload = segment.payload[:consumed]
    partial = len(payload) < len(segment.payload)
    shown = replace(
        segment,
        flags=segment.flags & ~_ENDING if partial else segment.flags,
        options=replace(segment.options, codecs=None) if segment.options is not None else None,
    )
    header = pack_headers(shown, mac_of(segment.dst), mac_of(segment.src), packet_id & 0xFFFF)
    room = (_MAX_IPV4 + HEADER_LENGTH - len(header)) // _CUT * _CUT
    count = max(1, -(-len(payload) // room))
    data = np.empty(count * (HEADROOM + len(header)) + len(payload) + _CUT, dtype=np.uint8)
    offsets, lengths = np.empty(count, dtype=np.uint32), np.empty(count, dtype=np.uint32)
    plan = ffi.new("sn_cut_plan *")
    plan.header_length, plan.max_payload, plan.max_frames = len(header), room, count
    plan.codec = -1
    result = ffi.new("sn_cut_result *")
    status = lib.sn_cut(
        plan,
        ffi.from_buffer("uint8_t[]", header),
        ffi.from_buffer("uint8_t[]", payload),
        len(payload),
        ffi.from_buffer("uint8_t[]", data),
        len(data),
        ffi.from_buffer("uint32_t[]", offsets),
        ffi.from_buffer("uint32_t[]", lengths),
        result,
    )
    if status or result.consumed != len(payload):
        raise AssertionError("a host segment does not fit into the frames made for it")
    return Frames(data, offsets[: result.frames], lengths[: result.frames], packet_id)
