"""Parses the TCP packets of a capture into columns: link layer, IPv4, TCP and payload headers.

Link layers are Ethernet, Linux cooked (SLL, SLL2), BSD loopback and raw IP, with any VLAN tags. Each header field is
one numpy gather over all packets that passed the checks before, so nothing is read beyond a packet's end. Packets
other than TCP over IPv4 are counted by kind and left out. A capture may be truncated by its snaplen: lengths are then
those of the headers, and `captured` tells how many bytes are present.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

import numpy as np

from softnic._native import lib
from softnic.capture.capture_file import NO_LINK, CaptureFile, Column
from softnic.capture.pcapng import MAX_SNAPLEN

HEADER_BYTES: int = lib.SN_PAYLOAD_HEADER

PLAIN, ENCODED, MALFORMED, CUT_OFF = range(4)
"""Kinds of payload: bytes of the stream; a payload header with its body; a header that contradicts its packet; a
payload truncated in the capture."""

_MOST_RATIO = 256
"""Maximum original bytes per encoded byte of any codec: bounded's zero group of 64 words."""
_IPV4 = 0x0800
_VLAN = (0x8100, 0x88A8, 0x9100)
"""Tag protocol identifiers: 802.1Q, 802.1ad (QinQ) and what preceded it."""
_MAX_TAGS = 16
"""Nested VLAN tags that are passed over. Real packets have one or two; a hostile file must not cost minutes."""
_LONGEST = MAX_SNAPLEN
"""Longest packet whose length is that of its frame; kernels make 64 KiB, or some more with BIG TCP."""
_LINK_LAYERS = {1: (12, 14), 113: (14, 16), 276: (0, 20)}
"""Ethernet, Linux cooked, Linux cooked version 2: place of the ethertype, and bytes of the header."""
_LOOPBACK = (0, 108)
"""Link types whose header is an address family of four bytes, in the order of the host that captured or big-endian."""
_RAW_IP = (12, 14, 101, 228, 229)
_PROTOCOLS = {1: "ICMP", 2: "IGMP", 17: "UDP", 47: "GRE"}
_ETHERTYPES = {0x0806: "ARP", 0x86DD: "IPv6", **dict.fromkeys(_VLAN, "VLAN"), 0x88CC: "LLDP"}


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
    rows, ip, ip_header, total = _ipv4(capture, *_network_layer(capture, others), others)
    end = capture.offset[rows] + capture.captured[rows]
    tcp = ip + ip_header
    kept = tcp + 20 <= end
    rows, (ip, tcp, end, total) = _keep(rows, kept, "cut too short", others), _select(kept, ip, tcp, end, total)
    tcp_header = (data[tcp + 12] >> 4).astype(np.int64) * 4
    kept = (tcp_header >= 20) & (tcp - ip + tcp_header <= total)
    rows = _keep(rows, kept, "malformed TCP", others)
    ip, tcp, end, total, tcp_header = _select(kept, ip, tcp, end, total, tcp_header)
    payload_at = tcp + tcp_header
    payload = total - (payload_at - ip)
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
        payload_at=payload_at,
        payload=payload,
        captured=np.clip(end - payload_at, 0, payload),
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


def _network_layer(capture: CaptureFile, others: Counter[str]) -> tuple[Column, Column]:
    """Return the rows of packets with IPv4, and the offsets of its header, whose first 20 bytes are in the file."""
    link_type = np.array([one.link_type for one in capture.interfaces], np.int64)[capture.interface]
    rows = _keep(np.arange(len(capture)), link_type != NO_LINK, "not a packet", others)
    known = np.isin(link_type[rows], (*_LINK_LAYERS, *_LOOPBACK, *_RAW_IP))
    rows = _keep(rows, known, "other link type", others)
    header, place = np.zeros((2, len(rows)), np.int64)
    for number, (ethertype_at, length) in _LINK_LAYERS.items():
        own = link_type[rows] == number
        place[own], header[own] = ethertype_at, length
    header[np.isin(link_type[rows], _LOOPBACK)] = 4
    kept = capture.captured[rows] >= np.maximum(header, 1)
    rows, (header, place) = _keep(rows, kept, "cut too short", others), _select(kept, header, place)
    ethertype = _ethertypes(capture.data, capture.offset[rows], place, link_type[rows])
    for _ in range(_MAX_TAGS):
        tagged = np.isin(ethertype, _VLAN) & (capture.captured[rows] >= header + 4)
        at = (capture.offset[rows] + header)[tagged]
        if not len(at):
            break
        ethertype[tagged] = _u16(capture.data, at + 2)
        header[tagged] += 4
    for kind in np.unique(ethertype[ethertype != _IPV4]).tolist():
        others[_ETHERTYPES.get(kind, "other Ethernet")] += int((ethertype == kind).sum())
    rows, header = rows[ethertype == _IPV4], header[ethertype == _IPV4]
    kept = capture.captured[rows] >= header + 20
    return _keep(rows, kept, "cut too short", others), (capture.offset[rows] + header)[kept]


def _ethertypes(data: Column, at: Column, place: Column, link_type: Column) -> Column:
    """Return the ethertypes of packets that begin at `at`; those of link types without one are made of the packet."""
    ethertype = np.zeros(len(at), np.int64)
    has_type = np.isin(link_type, tuple(_LINK_LAYERS))
    ethertype[has_type] = _u16(data, (at + place)[has_type])
    raw = np.isin(link_type, _RAW_IP)
    version = data[at[raw]] >> 4
    ethertype[raw] = np.select([version == 4, version == 6], [_IPV4, 0x86DD], 0)
    loopback = np.isin(link_type, _LOOPBACK)
    family = _u32(data, at[loopback])
    ethertype[loopback] = np.where((family == 2) | (family == 2 << 24), _IPV4, 0)
    return ethertype


def _ipv4(
    capture: CaptureFile, rows: Column, at: Column, others: Counter[str]
) -> tuple[Column, Column, Column, Column]:
    """Return the rows with TCP, the offsets of their IPv4 headers, the lengths of these, and IPv4's total lengths."""
    data = capture.data
    header = (data[at] & 0x0F).astype(np.int64) * 4
    room = capture.length[rows] - (at - capture.offset[rows])
    total = _u16(data, at + 2)
    # A host that leaves the cutting of packets to its NIC (TSO) leaves the length to it, too.
    total = np.where((total == 0) & (room <= _LONGEST), room, total)
    good = (data[at] >> 4 == 4) & (header >= 20) & (total >= header) & (total <= room)
    rows = _keep(rows, good, "malformed IPv4", others)
    at, header, total = _select(good, at, header, total)
    whole = (_u16(data, at + 6) & 0x3FFF) == 0
    rows = _keep(rows, whole, "IPv4 fragment", others)
    at, header, total = _select(whole, at, header, total)
    protocol = data[at + 9]
    for number in np.unique(protocol[protocol != 6]).tolist():
        others[_PROTOCOLS.get(number, "other IPv4")] += int((protocol == number).sum())
    rows, at, header, total = _select(protocol == 6, rows, at, header, total)
    return rows, at, header, total


def _select(chosen: Column, *columns: Column) -> list[Column]:
    return [column[chosen] for column in columns]


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
