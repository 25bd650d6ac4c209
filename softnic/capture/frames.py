"""Host segments as Ethernet frames, so that a capture shows what TCP handed its NIC and what it got from it.

Such a frame never existed: a super-segment has no header of its own and may be longer than an IPv4 packet. It is
given the header that an ordinary NIC's driver would show, with valid lengths, sequence numbers and checksums, and
cut at multiples of 64 bytes where it is too long. Addresses that a segment does not carry follow from its nodes'
IPs (softnic nodes name their MACs that way).
"""

from __future__ import annotations

import struct

import numpy as np

from softnic._native import ffi, lib
from softnic.stack.frames import HEADROOM, Frames
from softnic.stack.segment import Options, Segment

_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBHII")
_TCP = struct.Struct("!HHIIBBHHH")
_ETHERTYPE_IPV4 = 0x0800
_DONT_FRAGMENT = 0x4000
_TTL = 64
_PROTOCOL_TCP = 6
_MAX_IPV4 = 65535
_CUT = 64
_MAC_PREFIX = b"\x02SN"


def node_mac(ip: int) -> bytes:
    """The MAC of the softnic node with this address."""
    return _MAC_PREFIX + (ip & 0xFFFFFF).to_bytes(3, "big")


def host_frames(segment: Segment, taken: int, packet_id: int = 0) -> Frames:
    """The first `taken` payload bytes of a segment as frames; PSH and FIN only if that is all of them."""
    payload = segment.payload[:taken]
    partial = len(payload) < len(segment.payload)
    header = _header(segment, segment.flags & ~0x09 if partial else segment.flags, packet_id)
    room = (_MAX_IPV4 + _ETHERNET.size - len(header)) // _CUT * _CUT
    count = max(1, -(-len(payload) // room))
    data = np.empty(count * (HEADROOM + len(header)) + len(payload) + _CUT, dtype=np.uint8)
    offsets, lengths = np.empty(count, dtype=np.uint32), np.empty(count, dtype=np.uint32)
    plan = ffi.new("sn_cut_plan *")
    plan.header_length, plan.room, plan.max_frames = len(header), room, count
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
    if status or result.taken != len(payload):
        raise AssertionError("a host segment does not fit into the frames made for it")
    return Frames(data, offsets[: result.frames], lengths[: result.frames], packet_id)


def _header(segment: Segment, flags: int, packet_id: int) -> bytes:
    options = _options(segment.options, segment.timestamps)
    ethernet = _ETHERNET.pack(node_mac(segment.dst), node_mac(segment.src), _ETHERTYPE_IPV4)
    ip = _IPV4.pack(
        0x45, segment.tos, 0, packet_id & 0xFFFF, _DONT_FRAGMENT, _TTL, _PROTOCOL_TCP, 0, segment.src, segment.dst
    )
    data_offset = (_TCP.size + len(options)) // 4 << 4
    tcp = _TCP.pack(
        segment.sport, segment.dport, segment.seq, segment.ack, data_offset, flags & 0xFF, segment.window, 0, 0
    )
    return ethernet + ip + tcp + options


def _options(options: Options | None, timestamps: tuple[int, int] | None) -> bytes:
    """TCP options as TCP sees them: the NIC's own is on the wire side only."""
    parts = []
    if options is not None and options.mss is not None:
        parts.append(struct.pack("!BBH", 2, 4, options.mss))
    if options is not None and options.sack_permitted:
        parts.append(b"\x04\x02")
    if timestamps is not None:
        parts.append(struct.pack("!BBII", 8, 10, *timestamps))
    if options is not None and options.window_scale is not None:
        parts.append(struct.pack("!BBB", 3, 3, options.window_scale))
    coded = b"".join(parts)
    return coded + b"\x01" * (-len(coded) & 3)
