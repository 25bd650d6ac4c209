"""Capture files byte by byte, as other tools write them: blocks of pcapng, records of pcap, and segments in frames."""

from __future__ import annotations

import struct

from softnic.capture import pcapng
from softnic.capture.pcapng import Direction
from softnic.packet.frames import Frames

ENDS = (0x0A4D0001, 0x0A4D0002)
PORTS = (40000, 29478)
"""Wireshark has no dissector for them."""
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
ETHERNET = bytes(12) + b"\x08\0"
_PACKET = struct.Struct("<IIIIIII")
_PLAIN_END = struct.Struct("<HHIII")
_NUMBERED_END = struct.Struct("<HHIHHQII")


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) & 3)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def section(order: str) -> bytes:
    return block(order, pcapng.SECTION_HEADER, struct.pack(order + "IHHq", pcapng.BYTE_ORDER_MAGIC, 1, 0, -1))


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) & 3)


def interface(order: str, options: bytes = b"", *, link_type: int = 1, snaplen: int = 0, name: str = "") -> bytes:
    options += option(order, pcapng.IF_NAME, name.encode()) if name else b""
    return block(order, pcapng.INTERFACE_DESCRIPTION, struct.pack(order + "HHI", link_type, 0, snaplen) + options)


def packet(order: str, number: int, ticks: int, data: bytes, options: bytes = b"") -> bytes:
    """An enhanced packet block."""
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(order, pcapng.ENHANCED_PACKET, head + data + bytes(-len(data) & 3) + options)


def packets(
    interface: int, timestamp_ns: int, frames: Frames, direction: Direction, *, packet_id: int = 0, snaplen: int = 0
) -> bytes:
    """Return what native/nic/capture_ring.c writes: an enhanced packet block per frame, all of one time and direction.

    `packet_id` 0: none.
    """
    high, low = timestamp_ns >> 32 & 0xFFFFFFFF, timestamp_ns & 0xFFFFFFFF
    end_size = _NUMBERED_END.size if packet_id else _PLAIN_END.size
    limit = snaplen or pcapng.MAX_SNAPLEN
    data = frames.data.data
    parts: list[bytes | memoryview] = []
    for offset, length in zip(frames.offsets.tolist(), frames.lengths.tolist(), strict=True):
        kept = min(length, limit)
        total = _PACKET.size + kept + (-kept & 3) + end_size
        parts.append(_PACKET.pack(pcapng.ENHANCED_PACKET, total, interface, high, low, kept, length))
        parts.append(data[offset : offset + kept])
        if kept & 3:
            parts.append(bytes(-kept & 3))
        if packet_id:
            parts.append(
                _NUMBERED_END.pack(pcapng.EPB_FLAGS, 4, direction, pcapng.EPB_PACKETID, 8, packet_id, 0, total)
            )
        else:
            parts.append(_PLAIN_END.pack(pcapng.EPB_FLAGS, 4, direction, 0, total))
    return b"".join(parts)


def obsolete_packet(order: str, number: int, ticks: int, data: bytes, options: bytes = b"") -> bytes:
    head = struct.pack(order + "HHIIII", number, 7, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(order, pcapng.OBSOLETE_PACKET, head + data + bytes(-len(data) & 3) + options)


def simple_packet(order: str, data: bytes, length: int = 0) -> bytes:
    return block(order, pcapng.SIMPLE_PACKET, struct.pack(order + "I", length or len(data)) + data)


def pcap(order: str, nanoseconds: bool, packets: list[tuple[int, int, bytes]], link_type: int = 1) -> bytes:
    """A classic file of (seconds, fraction, bytes)."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 1 << 18, link_type)
    records = [struct.pack(order + "IIII", s, part, len(data), len(data)) + data for s, part, data in packets]
    return head + b"".join(records)


def ipv4(
    seq: int,
    payload: bytes = b"",
    flags: int = ACK,
    *,
    ack: int = 0,
    sender: int = 0,
    total: int | None = None,
    ports: tuple[int, int] = PORTS,
    tos: int = 0,
) -> bytes:
    """A TCP segment in IPv4; `total` is IPv4's total length, by default the right one."""
    total = 40 + len(payload) if total is None else total
    ends = (ENDS[sender], ENDS[1 - sender])
    head = struct.pack("!BBHHHBBHII", 0x45, tos, total, 0, 0, 64, 6, 0, *ends)
    tcp = struct.pack("!HHIIBBHHH", ports[sender], ports[1 - sender], seq % 2**32, ack, 0x50, flags, 500, 0, 0)
    return head + tcp + payload


def frame(
    seq: int, payload: bytes = b"", flags: int = ACK, *, ack: int = 0, sender: int = 0, ports: tuple[int, int] = PORTS
) -> bytes:
    """The same in Ethernet."""
    return ETHERNET + ipv4(seq, payload, flags, ack=ack, sender=sender, ports=ports)
