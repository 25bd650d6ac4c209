"""Finds the flows of a capture and their statistics at each vantage point.

A flow is one direction of one connection; a view is a flow at one interface. A capture of several nodes contains every
packet up to four times (sender's host and wire side, receiver's wire and host side), so sums over a flow would be
meaningless: statistics belong to views, and a flow's are those of its `main` view, the sender's wire side if that was
captured. Packets are grouped in numpy; loops run over views, not over packets.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from softnic.capture.packets import ENCODED, MALFORMED, Headers, Packets, decode, read_headers
from softnic.capture.pcapng import Direction
from softnic.capture.reader import CaptureFile, Column, Interface

DEFAULT_OFFLOADS = frozenset({0x28})
_FIN, _SYN, _ACK = 0x01, 0x02, 0x10
_NIC_OPTION = re.compile(rb"\xfe\x09\x53\x4e\x49\x43\x01(..)", re.DOTALL)
_OFFLOAD = re.compile(r"\b0x([0-9a-fA-F]{2})=")


@dataclass(slots=True)
class FlowView:
    """One flow at one interface. Sizes in bytes; repeated packets are included everywhere."""

    interface: int
    direction: Direction
    members: Column
    """Rows of its packets in Packets."""
    position: Column
    """Position of each packet in the stream; 0 is the first byte seen (a SYN counts one)."""
    repeated: Column
    """Mask of data packets without new bytes: retransmitted, duplicated or overtaken."""
    packets: int
    frame_bytes: int
    payload_bytes: int
    original_bytes: int
    tagged_packets: int
    tagged_original_bytes: int
    tagged_payload_bytes: int
    """Payload of tagged packets, payload headers and padding included."""
    raw_packets: int
    malformed_packets: int
    repeated_bytes: int
    first_ns: int
    last_ns: int

    @property
    def ratio(self) -> float | None:
        """Original bytes per payload byte of tagged packets."""
        return self.tagged_original_bytes / self.tagged_payload_bytes if self.tagged_payload_bytes else None

    @property
    def repeated_packets(self) -> int:
        return int(self.repeated.sum())


@dataclass(slots=True)
class CapturedFlow:
    """One direction of a connection. Numbers count from 1; both directions of a connection are neighbours."""

    number: int
    connection: int
    src: int
    sport: int
    dst: int
    dport: int
    codecs: int | None
    """Bitmap of the codecs that both NICs announced; None if the handshake was not captured."""
    refused: bool
    """Whether the handshake was captured and one side did not announce the NIC option."""
    views: list[FlowView] = field(default_factory=list)
    main: FlowView = field(init=False)


class Analysis:
    """The TCP packets, payload headers and flows of a capture.

    Parameters
    ----------
    capture : CaptureFile
        The packets.
    offloads : frozenset of int, optional
        ToS that select an offload; by default those in the interfaces' descriptions, or 0x28.
    """

    def __init__(self, capture: CaptureFile, offloads: frozenset[int] | None = None) -> None:
        self.capture = capture
        self.offloads = offloads or announced_offloads(capture.interfaces) or DEFAULT_OFFLOADS
        self.host = np.array([is_host(one) for one in capture.interfaces], dtype=bool)
        self.packets, self.others = decode(capture)
        packets = self.packets
        connection = _connections(packets)
        source = packets.src << 16 | packets.sport
        self.offers = _offers(capture, packets, connection, self.host)
        agreed = np.zeros(len(self.offers), bool)
        refused = np.zeros(len(self.offers), bool)
        for number, (codecs, no) in enumerate(self.offers):
            agreed[number], refused[number] = codecs is not None, no
        table = np.zeros(256, bool)
        table[[tos & 0xFC | ecn for tos in self.offloads for ecn in range(4)]] = True
        self.tagged = table[packets.tos] & (packets.payload > 0)
        wire = self.tagged & ~self.host[packets.interface] & ~refused[connection]
        self.headers = read_headers(capture.data, packets, wire, agreed[connection])
        flow = _group(connection, source)
        self.flow_of = flow
        self.flows = self._flows(flow, connection)

    def _flows(self, flow: Column, connection: Column) -> list[CapturedFlow]:
        packets, flows = self.packets, list[CapturedFlow]()
        _, first = np.unique(flow, return_index=True)
        order = np.lexsort((first, connection[first])) if len(first) else first
        by_group: dict[int, CapturedFlow] = {}
        for number, group in enumerate(order.tolist(), 1):
            row = int(first[group])
            codecs, refused = self.offers[int(connection[row])]
            src, sport, dst, dport = (
                int(column[row]) for column in (packets.src, packets.sport, packets.dst, packets.dport)
            )
            by_group[group] = CapturedFlow(number, int(connection[row]) + 1, src, sport, dst, dport, codecs, refused)
            flows.append(by_group[group])
        for members in _members(_group(flow, packets.interface)):
            by_group[int(flow[members[0]])].views.append(self._view(members))
        for one in flows:
            one.main = min(one.views, key=self._rank)
        return flows

    def _rank(self, view: FlowView) -> tuple[bool, int, int]:
        preferred = (Direction.OUTBOUND, Direction.INBOUND, Direction.UNKNOWN)
        return bool(self.host[view.interface]), preferred.index(view.direction), view.interface

    def _view(self, members: Column) -> FlowView:
        packets, headers = self.packets, self.headers
        original, payload = headers.original[members], packets.payload[members]
        tagged = self.tagged[members]
        state = headers.state[members]
        times = packets.time_ns[members]
        position = unwrap(packets.seq[members])
        repeated = _repeated(position, original)
        directions = np.bincount(packets.direction[members], minlength=4)[:3]
        return FlowView(
            interface=int(packets.interface[members[0]]),
            direction=Direction(int(np.argmax(directions))),
            members=members,
            position=position,
            repeated=repeated,
            packets=len(members),
            frame_bytes=int(packets.frame_bytes[members].sum()),
            payload_bytes=int(payload.sum()),
            original_bytes=int(original.sum()),
            tagged_packets=int(tagged.sum()),
            tagged_original_bytes=int(original[tagged].sum()),
            tagged_payload_bytes=int(payload[tagged].sum()),
            raw_packets=int((headers.raw[members] & (state == ENCODED)).sum()),
            malformed_packets=int((state == MALFORMED).sum()),
            repeated_bytes=int(original[repeated].sum()),
            first_ns=int(times.min()),
            last_ns=int(times.max()),
        )


def is_host(interface: Interface) -> bool:
    """Return whether an interface is a host side, whose packets have no payload headers."""
    return interface.name.endswith(":host")


def announced_offloads(interfaces: list[Interface]) -> frozenset[int]:
    """Return the ToS named in the interfaces' descriptions."""
    return frozenset(int(tos, 16) & 0xFC for one in interfaces for tos in _OFFLOAD.findall(one.description))


def unwrap(seq: Column) -> Column:
    """Return sequence numbers as offsets from the first, without the wrap at 2^32.

    Consecutive numbers are assumed to be less than 2^31 apart, the only order that RFC 9293 defines.
    """
    steps = np.diff(seq, prepend=seq[:1]).astype(np.uint32).view(np.int32)
    position: Column = np.cumsum(steps, dtype=np.int64)
    return position


def _repeated(position: Column, original: Column) -> Column:
    """Return a mask of data packets that end no later than an earlier one."""
    end = np.where(original > 0, position + original, np.iinfo(np.int64).min)
    before = np.empty_like(end)
    before[:1] = np.iinfo(np.int64).min
    np.maximum.accumulate(end[:-1], out=before[1:])
    repeated: Column = (original > 0) & (end <= before)
    return repeated


def _group(*columns: Column) -> Column:
    """Number equal rows alike, in the order of first appearance."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), bool)
    new[:1] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    rank = np.argsort(np.argsort(order[new]))
    group = np.empty(len(order), np.int64)
    group[order] = rank[np.cumsum(new) - 1]
    return group


def _members(group: Column) -> list[Column]:
    """Return the rows of each group, in order."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []


def _connections(packets: Packets) -> Column:
    """Number the connection of each packet: a pair of endpoints, a new one with every new initial sequence number."""
    source, destination = packets.src << 16 | packets.sport, packets.dst << 16 | packets.dport
    pair = _group(np.minimum(source, destination), np.maximum(source, destination))
    syn = np.flatnonzero(packets.flags & (_SYN | _ACK) == _SYN)
    latest: dict[tuple[int, int], int] = {}
    begins: dict[int, list[int]] = {}
    for row in syn.tolist():
        side = (int(pair[row]), int(source[row]))
        seq = int(packets.seq[row])
        if latest.setdefault(side, seq) != seq:
            latest[side] = seq
            begins.setdefault(side[0], []).append(row)
    generation = np.zeros(len(packets), np.int64)
    for number, rows in begins.items():
        own = np.flatnonzero(pair == number)
        generation[own] = np.searchsorted(np.array(rows), own, side="right")
    return _group(pair, generation)


def _offers(capture: CaptureFile, packets: Packets, connection: Column, host: Column) -> list[tuple[int | None, bool]]:
    """Return for each connection the codecs that both ends announced, and whether one end is known to announce none."""
    count = int(connection.max()) + 1 if len(connection) else 0
    seen: list[dict[tuple[int, int], int | None]] = [{} for _ in range(count)]
    for row in np.flatnonzero((packets.flags & _SYN != 0) & ~host[packets.interface]).tolist():
        start, end = int(packets.options_at[row]), int(packets.payload_at[row])
        if end <= capture.offset[packets.row[row]] + capture.captured[packets.row[row]]:
            found = _NIC_OPTION.search(capture.data[start:end].tobytes())
            side = (int(packets.src[row]), int(packets.sport[row]))
            seen[int(connection[row])][side] = int.from_bytes(found[1], "big") if found else None
    offers: list[tuple[int | None, bool]] = []
    for sides in seen:
        named = [codecs for codecs in sides.values() if codecs is not None]
        both = len(sides) == 2 and len(named) == 2
        offers.append((named[0] & named[1] if both else None, len(named) < len(sides)))
    return offers


def kinds(analysis: Analysis) -> Counter[str]:
    """Count the packets of each kind, TCP included."""
    return Counter({"TCP": len(analysis.packets)}) + analysis.others


__all__ = [
    "DEFAULT_OFFLOADS",
    "Analysis",
    "CapturedFlow",
    "FlowView",
    "Headers",
    "announced_offloads",
    "is_host",
    "kinds",
    "unwrap",
]
