"""Finds the flows of a capture and their statistics at each vantage point.

A flow is one direction of one connection; a view is a flow at one interface. A capture of several nodes contains every
packet up to four times (sender's host and wire side, receiver's wire and host side), so sums over a flow would be
meaningless: statistics belong to views, and a flow's are those of its `main` view, the sender's wire side if that was
captured. Packets are grouped in numpy; loops run over views, not over packets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from softnic.capture.capture_file import CaptureFile, Column, Interface
from softnic.capture.packets import ENCODED, MALFORMED, Headers, Packets, decode, read_headers
from softnic.capture.pcapng import Direction

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
        connection = connections_of(packets)
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
        groups, first = np.unique(flow, return_index=True)
        order = np.lexsort((first, connection[first]))
        rows = first[order]
        columns = (connection[rows], packets.src[rows], packets.sport[rows], packets.dst[rows], packets.dport[rows])
        by_group: dict[int, CapturedFlow] = {}
        for number, (group, of, *ends) in enumerate(
            zip(groups[order].tolist(), *(column.tolist() for column in columns), strict=True), 1
        ):
            by_group[group] = CapturedFlow(number, of + 1, *ends, *self.offers[of])
            flows.append(by_group[group])
        for view in self._views(_group(flow, packets.interface)):
            by_group[int(flow[view.members[0]])].views.append(view)
        for one in flows:
            one.main = min(one.views, key=self._rank)
        return flows

    def _rank(self, view: FlowView) -> tuple[bool, int, int]:
        preferred = (Direction.OUTBOUND, Direction.INBOUND, Direction.UNKNOWN)
        return bool(self.host[view.interface]), preferred.index(view.direction), view.interface

    def _views(self, group: Column) -> Iterator[FlowView]:
        """Yield the views, given the number of each packet's. Sums are made for all at once: a view may be a packet."""
        if not len(group):
            return
        packets, headers = self.packets, self.headers
        order = np.argsort(group, kind="stable")
        start = np.flatnonzero(np.diff(group[order], prepend=-1))
        original, payload, tagged = headers.original[order], packets.payload[order], self.tagged[order]
        state, times = headers.state[order], packets.time_ns[order]
        position = unwrap(packets.seq[order], start)
        repeated = _repeated(group[order], position, original, packets.flags[order] & _SYN != 0)
        directions = np.bincount(4 * group + packets.direction, minlength=4 * len(start))

        def total(values: Column) -> list[int]:
            sums: list[int] = np.add.reduceat(values.astype(np.int64), start).tolist()
            return sums

        columns = zip(
            *(start.tolist(), np.append(start[1:], len(order)).tolist(), packets.interface[order][start].tolist()),
            directions.reshape(-1, 4)[:, :3].argmax(axis=1).tolist(),
            *map(total, (packets.frame_bytes[order], payload, original)),
            *map(total, (tagged, original * tagged, payload * tagged)),
            *map(total, (headers.raw[order] & (state == ENCODED), state == MALFORMED, original * repeated)),
            *(np.minimum.reduceat(times, start).tolist(), np.maximum.reduceat(times, start).tolist()),
            strict=True,
        )
        for begin, end, interface, direction, *sums in columns:
            members = order[begin:end], position[begin:end], repeated[begin:end]
            yield FlowView(interface, Direction(direction), *members, end - begin, *sums)


def is_host(interface: Interface) -> bool:
    """Return whether an interface is a host side, whose packets have no payload headers."""
    return interface.name.endswith(":host")


def announced_offloads(interfaces: list[Interface]) -> frozenset[int]:
    """Return the ToS named in the interfaces' descriptions."""
    return frozenset(int(tos, 16) & 0xFC for one in interfaces for tos in _OFFLOAD.findall(one.description))


def unwrap(seq: Column, start: Column | None = None) -> Column:
    """Return sequence numbers as offsets from the first, without the wrap at 2^32.

    Consecutive numbers are assumed to be less than 2^31 apart, the only order that RFC 9293 defines. `start` has the
    places where another stream begins.
    """
    start = np.zeros(min(1, len(seq)), np.int64) if start is None else start
    steps = np.diff(seq, prepend=seq[:1]).astype(np.uint32).view(np.int32)
    place = np.cumsum(steps, dtype=np.int64)
    position: Column = place - np.repeat(place[start], np.diff(start, append=len(seq)))
    return position


def _repeated(group: Column, position: Column, original: Column, syn: Column) -> Column:
    """Return a mask of data packets that end no later than an earlier one of their group.

    Groups are in order. A SYN takes one number before its data. Ends are compared by rank, and all of a group are above
    those of the groups before, so that one pass finds what every group has reached.
    """
    end = np.where((original > 0) | syn, position + syn + original, np.iinfo(np.int64).min)
    order = np.lexsort((end, group))
    above = np.ones(len(order), bool)
    above[1:] = (np.diff(group[order]) != 0) | (end[order][1:] != end[order][:-1])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(above)
    before = np.zeros(len(order), np.int64)
    np.maximum.accumulate(rank[:-1], out=before[1:])
    repeated: Column = (original > 0) & (rank <= before)
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


def connections_of(packets: Packets) -> Column:
    """Number the connection of each packet: a pair of endpoints, and another one whenever its ports are used again."""
    source, destination = packets.src << 16 | packets.sport, packets.dst << 16 | packets.dport
    pair = _group(np.minimum(source, destination), np.maximum(source, destination))
    order = np.argsort(pair, kind="stable")
    first = np.ones(len(order), bool)
    first[1:] = np.diff(pair[order]) != 0
    begin = first | _reused(packets, source, destination, order, first)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begin)
    return _group(number)


def _reused(packets: Packets, source: Column, destination: Column, order: Column, first: Column) -> Column:
    """Return a mask of the SYNs that begin a connection on ports that had one, in the order of `order`.

    A SYN tells its sender's initial sequence number, and with an ACK that of the other side. It belongs to the
    connection before if a number that it tells is the one of that connection; where none is known, if that connection
    consists of SYNs so far.

    Parameters
    ----------
    packets, source, destination
        The packets and their endpoints.
    order : array of int
        Rows of the packets, sorted by pair of endpoints and then as captured.
    first : mask
        Which of them are the first of their pair.
    """
    flags = packets.flags[order]
    is_syn = flags & _SYN != 0
    others_before = np.cumsum(~is_syn) - ~is_syn
    pair_begins = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    begins = np.zeros(len(order), bool)
    places = np.flatnonzero(is_syn)
    rows = order[places]
    columns = (places, pair_begins[places], source[rows], destination[rows], packets.seq[rows], packets.ack[rows])
    pair = began = -1
    initial: dict[int, int] = {}
    for place, pair_begin, src, dst, seq, ack in zip(*(column.tolist() for column in columns), strict=True):
        if pair_begin != pair:
            pair = began = pair_begin
            initial = {}
        told = {src: seq, dst: (ack - 1) % 2**32} if flags[place] & _ACK else {src: seq}
        known = [initial[side] == number for side, number in told.items() if side in initial]
        if not any(known) and (known or others_before[place] > others_before[began]):
            begins[place], began, initial = True, place, {}
        initial = told | initial
    return begins


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
    "connections_of",
    "is_host",
    "kinds",
    "unwrap",
]
