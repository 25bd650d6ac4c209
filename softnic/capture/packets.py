"""Parses the TCP packets of a capture into columns: Ethernet, IPv4, TCP and payload headers.

Each header field is one numpy gather over all packets that passed the checks before, so nothing is read beyond a
packet's end. Packets other than TCP over IPv4 are counted by kind and left out. A capture may be truncated by its
snaplen: lengths are then those of the headers, and `captured` tells how many bytes are present.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

import numpy as np

from softnic._native import lib
from softnic.capture.pcapng import LINKTYPE_ETHERNET
from softnic.capture.reader import CaptureFile, Column

HEADER_BYTES: int = lib.SN_PAYLOAD_HEADER

PLAIN, ENCODED, MALFORMED, CUT_OFF = range(4)
"""Kinds of payload: bytes of the stream; a payload header with its body; a header that contradicts its packet; a
payload truncated in the capture."""

_MOST_RATIO = 256
"""Maximum original bytes per encoded byte of any codec: bounded's zero group of 64 words."""
_ETHERNET = 14
_PROTOCOLS = {1: "ICMP", 2: "IGMP", 17: "UDP", 47: "GRE"}
_ETHERTYPES = {0x0806: "ARP", 0x86DD: "IPv6", 0x8100: "VLAN", 0x88CC: "LLDP"}


@dataclass(slots=True)
class Packets:
    """Columns of one length, one row per TCP packet. Header numbers in host order."""

    row: Column
    """Row of the packet in the capture."""
    interface: Column
    time_ns: Column
    frame_bytes: Column
    direction: Column
    packet_id: Column
    tos: Column
    src: Column
    dst: Column
    sport: Column
    dport: Column
    seq: Column
    ack: Column
    flags: Column
    window: Column
    options_at: Column
    payload_at: Column
    """Offset of TCP options and payload in the capture's data."""
    payload: Column
    """Bytes of TCP payload according to the headers."""
    captured: Column
    """How many of them are in the file."""

    def __len__(self) -> int:
        return len(self.row)

    def select(self, chosen: Column) -> Packets:
        return Packets(*(getattr(self, column.name)[chosen] for column in fields(self)))


@dataclass(slots=True)
class Headers:
    """Payload headers, one row per packet of the Packets they were read from."""

    state: Column
    """PLAIN, ENCODED, MALFORMED or CUT_OFF."""
    codec: Column
    parameter: Column
    raw: Column
    original: Column
    """Bytes of the stream that the packet carries; the payload's own length unless it is ENCODED."""
    body: Column
    """Encoded bytes with the tail, without header and padding; 0 unless it is ENCODED."""


def decode(capture: CaptureFile) -> tuple[Packets, Counter[str]]:
    """Return all complete TCP packets, and the number of packets of each other kind."""
    others: Counter[str] = Counter()
    data = capture.data
    rows, ip_header = _ipv4(capture, _ethernet(capture, others), others)
    tcp = capture.offset[rows] + _ETHERNET + ip_header
    kept = capture.captured[rows] >= _ETHERNET + ip_header + 20
    rows, tcp, ip_header = _keep(rows, kept, "cut too short", others), tcp[kept], ip_header[kept]
    tcp_header = (data[tcp + 12] >> 4).astype(np.int64) * 4
    total = _u16(data, capture.offset[rows] + _ETHERNET + 2)
    kept = (tcp_header >= 20) & (ip_header + tcp_header <= total)
    rows, tcp = _keep(rows, kept, "malformed TCP", others), tcp[kept]
    headers = ip_header[kept] + tcp_header[kept]
    ip = capture.offset[rows] + _ETHERNET
    payload = total[kept] - headers
    packets = Packets(
        row=rows,
        interface=capture.interface[rows],
        time_ns=capture.time_ns[rows],
        frame_bytes=capture.length[rows],
        direction=capture.direction[rows],
        packet_id=capture.packet_id[rows],
        tos=data[ip + 1],
        src=_u32(data, ip + 12),
        dst=_u32(data, ip + 16),
        sport=_u16(data, tcp),
        dport=_u16(data, tcp + 2),
        seq=_u32(data, tcp + 4),
        ack=_u32(data, tcp + 8),
        flags=data[tcp + 13],
        window=_u16(data, tcp + 14),
        options_at=tcp + 20,
        payload_at=ip + headers,
        payload=payload,
        captured=np.clip(capture.captured[rows] - _ETHERNET - headers, 0, payload),
    )
    return packets, others


def read_headers(data: Column, packets: Packets, offloaded: Column, certain: Column) -> Headers:
    """Parse the payload headers of packets.

    Parameters
    ----------
    data : array of uint8
        The capture's data.
    packets : Packets
        The packets.
    offloaded : mask
        Which of them may have a payload header.
    certain : mask
        Which of them must have one. A contradictory header is MALFORMED there, and the packet PLAIN elsewhere.
    """
    count = len(packets)
    headers = Headers(
        state=np.full(count, PLAIN, np.int8),
        codec=np.zeros(count, np.int64),
        parameter=np.zeros(count, np.int64),
        raw=np.zeros(count, bool),
        original=packets.payload.copy(),
        body=np.zeros(count, np.int64),
    )
    wanted = offloaded & (packets.payload > 0)
    short = wanted & (packets.captured < HEADER_BYTES)
    headers.state[short & (packets.captured < packets.payload)] = CUT_OFF
    headers.state[short & (packets.captured == packets.payload) & certain] = MALFORMED
    rows = np.flatnonzero(wanted & ~short)
    at = packets.payload_at[rows]
    first, codec, tail = data[at], data[at + 1].astype(np.int64), data[at + 3]
    flags = first & 0x0F
    original, body = _u32(data, at + 4), _u32(data, at + 8)
    raw, padded = (flags & lib.SN_FLAG_RAW) != 0, (flags & lib.SN_FLAG_PADDED) != 0
    room = packets.payload[rows] - HEADER_BYTES
    good = (first >> 4 == 1) & (flags <= 3) & (tail == original % 4) & (tail <= body) & (original > 0)
    good &= np.where(padded, body < room, body == room)
    good &= np.where(raw, body == original, (codec > 0) & (original <= (body - tail) * _MOST_RATIO + tail))
    headers.state[rows] = np.where(good, ENCODED, np.where(certain[rows], MALFORMED, PLAIN))
    rows, good_at = rows[good], at[good]
    headers.codec[rows] = codec[good]
    headers.parameter[rows] = data[good_at + 2].view(np.int8)
    headers.raw[rows] = raw[good]
    headers.original[rows] = original[good]
    headers.body[rows] = body[good]
    return headers


def _ethernet(capture: CaptureFile, others: Counter[str]) -> Column:
    """Return the rows of Ethernet frames that hold the first 20 bytes of an IPv4 header."""
    ethernet = np.array([one.link_type == LINKTYPE_ETHERNET for one in capture.interfaces], dtype=bool)
    rows = _keep(np.arange(len(capture)), ethernet[capture.interface], "not Ethernet", others)
    rows = _keep(rows, capture.captured[rows] >= _ETHERNET, "cut too short", others)
    ethertype = _u16(capture.data, capture.offset[rows] + 12)
    for kind in np.unique(ethertype[ethertype != 0x0800]).tolist():
        others[_ETHERTYPES.get(kind, "other Ethernet")] += int((ethertype == kind).sum())
    rows = rows[ethertype == 0x0800]
    return _keep(rows, capture.captured[rows] >= _ETHERNET + 20, "cut too short", others)


def _ipv4(capture: CaptureFile, rows: Column, others: Counter[str]) -> tuple[Column, Column]:
    """Return the rows with TCP, and the lengths of their IPv4 headers."""
    data, at = capture.data, capture.offset[rows] + _ETHERNET
    header = (data[at] & 0x0F).astype(np.int64) * 4
    total = _u16(data, at + 2)
    good = (data[at] >> 4 == 4) & (header >= 20) & (total >= header) & (total <= capture.length[rows] - _ETHERNET)
    rows, at, header = _keep(rows, good, "malformed IPv4", others), at[good], header[good]
    whole = (_u16(data, at + 6) & 0x3FFF) == 0
    rows, at, header = _keep(rows, whole, "IPv4 fragment", others), at[whole], header[whole]
    protocol = data[at + 9]
    for number in np.unique(protocol[protocol != 6]).tolist():
        others[_PROTOCOLS.get(number, "other IPv4")] += int((protocol == number).sum())
    return rows[protocol == 6], header[protocol == 6]


def _keep(rows: Column, good: Column, otherwise: str, others: Counter[str]) -> Column:
    lost = len(rows) - int(good.sum())
    if lost:
        others[otherwise] += lost
    kept: Column = rows[good]
    return kept


def _u16(data: Column, at: Column) -> Column:
    value: Column = data[at].astype(np.int64) << 8 | data[at + 1]
    return value


def _u32(data: Column, at: Column) -> Column:
    return _u16(data, at) << 16 | _u16(data, at + 2)
