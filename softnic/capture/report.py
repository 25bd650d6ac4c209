"""The results of `softnic inspect` as records: for its tables (softnic.capture.tables) and unchanged for JSON.

Sizes in bytes, times in seconds from the capture's first packet. As in Table III of Li et al., a word counts by its
bits including two tag bits: 2, 10, 18 or 34; words of RAW packets have no tags and are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address

import numpy as np

from softnic.capture.flows import Analysis, CapturedFlow, FlowView, kinds
from softnic.capture.packets import CUT_OFF, ENCODED, HEADER_BYTES, MALFORMED
from softnic.capture.streams import Floats, original_bytes, tag_distribution, vectors, words_of
from softnic.codecs import BUILT_IN, CodecError, DecodeError, from_number, names
from softnic.codecs.payload import TagCounts

FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
DIRECTIONS = ("", "in", "out", "")


@dataclass
class Tags:
    """Words by their encoded bits."""

    bits_2: int = 0
    bits_10: int = 0
    bits_18: int = 0
    bits_34: int = 0
    raw: int = 0

    @classmethod
    def of(cls, vectors: TagCounts, raw: int = 0) -> Tags:
        return cls(*vectors, raw)

    @property
    def words(self) -> int:
        return self.bits_2 + self.bits_10 + self.bits_18 + self.bits_34 + self.raw


@dataclass
class ViewRecord:
    """A flow at one interface."""

    interface: str
    direction: str
    packets: int
    wire_bytes: int
    """Bytes of Ethernet frames."""
    stream_bytes: int
    payload_bytes: int
    tagged_packets: int
    tagged_original_bytes: int
    tagged_payload_bytes: int
    ratio: float | None
    raw_packets: int
    repeated_packets: int
    repeated_bytes: int
    malformed_packets: int
    first_s: float
    last_s: float


@dataclass
class FlowRecord:
    """One direction of a connection; tags and codecs are those of its first view."""

    flow: int
    connection: int
    source: str
    destination: str
    negotiated: list[str] | None
    """Codecs that both NICs have; empty if one side refused, null if the handshake was not captured."""
    codecs: dict[str, int]
    """Packets by codec."""
    tags: Tags
    undecodable_packets: int
    views: list[ViewRecord]

    @property
    def main(self) -> ViewRecord:
        return self.views[0]


@dataclass
class InterfaceRecord:
    name: str
    description: str
    packets: int
    received: int | None
    dropped: int | None
    """The NIC's count of frames that the capture dropped."""


@dataclass
class Summary:
    file: str
    application: str
    packets: int
    seconds: float
    kinds: dict[str, int]
    interfaces: list[InterfaceRecord]
    flows: list[FlowRecord]


@dataclass
class PacketRecord:
    """One packet. `number` is Wireshark's; `position` counts from the flow's first byte seen."""

    number: int
    time_s: float
    interface: str
    direction: str
    packet_id: int
    frame_bytes: int
    flow: int
    source: str
    destination: str
    tos: int
    flags: str
    seq: int
    ack: int
    window: int
    position: int
    repeated: bool
    payload_bytes: int
    original_bytes: int
    tagged: bool
    state: str
    """`plain`, `encoded`, `raw`, `floats` (tagged, on the host side), `cut off` or `malformed`."""
    codec: str | None
    body_bytes: int
    ratio: float | None
    tags: Tags | None
    problem: str = ""
    floats: list[float | str] | None = None


@dataclass
class FloatSummary:
    count: int
    zeros: int
    not_finite: int
    minimum: float = 0.0
    maximum: float = 0.0
    mean: float = 0.0
    deviation: float = 0.0
    """Standard deviation of the finite floats."""


@dataclass
class CaptureReport:
    """Makes records of an analysis."""

    analysis: Analysis
    path: str
    _origin_ns: int = field(init=False)

    def __post_init__(self) -> None:
        times = self.analysis.capture.time_ns
        self._origin_ns = int(times.min()) if len(times) else 0

    def summary(self) -> Summary:
        capture = self.analysis.capture
        seen = np.bincount(capture.interface, minlength=len(capture.interfaces))
        last_ns = int(capture.time_ns.max()) if len(capture) else 0
        return Summary(
            file=self.path,
            application=capture.application,
            packets=len(capture),
            seconds=(last_ns - self._origin_ns) / 1e9,
            kinds=dict(kinds(self.analysis).most_common()),
            interfaces=[
                InterfaceRecord(one.name, one.description, int(count), one.received, one.dropped)
                for one, count in zip(capture.interfaces, seen, strict=True)
            ],
            flows=[self.flow(flow) for flow in self.analysis.flows],
        )

    def flow(self, flow: CapturedFlow, main: FlowView | None = None) -> FlowRecord:
        """Return the record of a flow. `main`: the view to list first and take tags from."""
        main = main or flow.main
        distribution = tag_distribution(self.analysis, main)
        negotiated = [] if flow.refused else None if flow.codecs is None else codec_names(flow.codecs)
        return FlowRecord(
            flow=flow.number,
            connection=flow.connection,
            source=endpoint(flow.src, flow.sport),
            destination=endpoint(flow.dst, flow.dport),
            negotiated=negotiated,
            codecs=distribution.codecs,
            tags=Tags.of(distribution.vectors, distribution.raw_words),
            undecodable_packets=distribution.undecodable_packets,
            views=[self._view(view) for view in [main, *(view for view in flow.views if view is not main)]],
        )

    def _view(self, view: FlowView) -> ViewRecord:
        return ViewRecord(
            interface=self.analysis.capture.interfaces[view.interface].name,
            direction=DIRECTIONS[view.direction],
            packets=view.packets,
            wire_bytes=view.frame_bytes,
            stream_bytes=view.original_bytes,
            payload_bytes=view.payload_bytes,
            tagged_packets=view.tagged_packets,
            tagged_original_bytes=view.tagged_original_bytes,
            tagged_payload_bytes=view.tagged_payload_bytes,
            ratio=view.ratio,
            raw_packets=view.raw_packets,
            repeated_packets=view.repeated_packets,
            repeated_bytes=view.repeated_bytes,
            malformed_packets=view.malformed_packets,
            first_s=self._seconds(view.first_ns),
            last_s=self._seconds(view.last_ns),
        )

    def packets(self, flow: CapturedFlow, view: FlowView, limit: int | None = None) -> list[PacketRecord]:
        """Return the first `limit` packets of a view."""
        count = view.packets if limit is None else min(limit, view.packets)
        return [self._packet(flow, view, index) for index in range(count)]

    def packet(self, number: int) -> tuple[PacketRecord, Floats | bytes] | None:
        """Return a packet by Wireshark's number, with its floats, or its bytes if untagged. None: not TCP."""
        member = self._member(number)
        if member is None:
            return None
        flow, view, index = self._place(member)
        record = self._packet(flow, view, index)
        try:
            content = original_bytes(self.analysis, member)
        except DecodeError as error:
            record.problem = str(error)
            content = b""
        return record, words_of(content) if record.tagged else content

    def original(self, number: int) -> bytes:
        """Return the bytes of the stream that a TCP packet carries. Raises DecodeError."""
        member = self._member(number)
        return b"" if member is None else original_bytes(self.analysis, member)

    def ethernet_frame(self, number: int) -> bytes:
        """Return a TCP packet as a frame of Ethernet without VLAN tags, up to the end of its payload.

        Of another link layer, or with tags, its addresses are zeros. Raises DecodeError for what the capture does not
        have whole, and for options of IPv4, which the engines do not take (tos_comparator).
        """
        member = self._member(number)
        if member is None:
            return b""
        packets, capture = self.analysis.packets, self.analysis.capture
        if packets.captured[member] < packets.payload[member]:
            raise DecodeError("the capture holds only the start of this packet (its snaplen was too small)")
        start, ip = int(capture.offset[packets.row[member]]), int(packets.options_at[member]) - 40
        if ip < start or capture.data[ip] != 0x45:
            raise DecodeError("the engines take no options of IPv4")
        end = int(packets.payload_at[member] + packets.payload[member])
        addresses = capture.data[start : start + 12].tobytes() if ip - start == 14 else bytes(12)
        return addresses + b"\x08\x00" + capture.data[ip:end].tobytes()

    def _member(self, number: int) -> int | None:
        members = np.flatnonzero(self.analysis.packets.row == number - 1)
        return int(members[0]) if len(members) else None

    def _place(self, member: int) -> tuple[CapturedFlow, FlowView, int]:
        for flow in self.analysis.flows:
            for view in flow.views:
                index = int(np.searchsorted(view.members, member))
                if index < view.packets and view.members[index] == member:
                    return flow, view, index
        raise AssertionError("every TCP packet belongs to a view")

    def _packet(self, flow: CapturedFlow, view: FlowView, index: int) -> PacketRecord:
        analysis, member = self.analysis, int(view.members[index])
        packets, headers = analysis.packets, analysis.headers
        tagged, payload = bool(analysis.tagged[member]), int(packets.payload[member])
        original = int(headers.original[member])
        codec, tags, problem = self._encoding(member)
        return PacketRecord(
            number=int(packets.row[member]) + 1,
            time_s=self._seconds(int(packets.time_ns[member])),
            interface=analysis.capture.interfaces[view.interface].name,
            direction=DIRECTIONS[int(packets.direction[member])],
            packet_id=int(packets.packet_id[member]),
            frame_bytes=int(packets.frame_bytes[member]),
            flow=flow.number,
            source=endpoint(flow.src, flow.sport),
            destination=endpoint(flow.dst, flow.dport),
            tos=int(packets.tos[member]),
            flags=" ".join(name for bit, name in enumerate(FLAGS) if int(packets.flags[member]) >> bit & 1),
            seq=int(packets.seq[member]),
            ack=int(packets.ack[member]),
            window=int(packets.window[member]),
            position=int(view.position[index]),
            repeated=bool(view.repeated[index]),
            payload_bytes=payload,
            original_bytes=original,
            tagged=tagged,
            state=self._state(member),
            codec=codec,
            body_bytes=int(headers.body[member]),
            ratio=original / payload if tagged else None,
            tags=tags,
            problem=problem,
        )

    def _state(self, member: int) -> str:
        state = int(self.analysis.headers.state[member])
        if state == ENCODED:
            return "raw" if self.analysis.headers.raw[member] else "encoded"
        named = {CUT_OFF: "cut off", MALFORMED: "malformed"}
        return named.get(state, "floats" if self.analysis.tagged[member] else "plain")

    def _encoding(self, member: int) -> tuple[str | None, Tags | None, str]:
        """Return codec and tags of an encoded packet, or why they are unknown."""
        packets, headers = self.analysis.packets, self.analysis.headers
        if headers.state[member] != ENCODED:
            return None, None, ""
        try:
            codec = from_number(int(headers.codec[member]), int(headers.parameter[member]))
            words, tail = divmod(int(headers.original[member]), 4)
            if headers.raw[member]:
                return str(codec), Tags(raw=words) if codec.has_tags else None, ""
            if packets.captured[member] < packets.payload[member]:
                return str(codec), None, "cut off by the snaplen"
            start = int(packets.payload_at[member]) + HEADER_BYTES
            body = self.analysis.capture.data.data[start : start + int(headers.body[member]) - tail]
            counts = vectors(codec, body, words)
            return str(codec), None if counts is None else Tags.of(counts), ""
        except (CodecError, DecodeError) as error:
            return None, None, str(error)

    def _seconds(self, time_ns: int) -> float:
        return (time_ns - self._origin_ns) / 1e9


def summarize(floats: Floats) -> FloatSummary:
    finite = floats[np.isfinite(floats)].astype(np.float64)
    summary = FloatSummary(len(floats), int((floats == 0).sum()), len(floats) - len(finite))
    if len(finite):
        summary.minimum, summary.maximum = float(finite.min()), float(finite.max())
        summary.mean, summary.deviation = float(finite.mean()), float(finite.std())
    return summary


def jsonable_floats(floats: Floats) -> list[float | str]:
    """Return numbers, and `nan`, `inf` and `-inf` as strings, for which JSON has no numbers."""
    return [value if finite else str(value) for value, finite in zip(floats.tolist(), np.isfinite(floats), strict=True)]


def codec_names(bitmap: int) -> list[str]:
    """Return the names of the codecs in a bitmap; unknown ones as `codec 9`."""
    built_in = [number for number in range(16) if BUILT_IN >> number & 1]
    known = dict(zip(built_in, names(), strict=True))
    return [known.get(number, f"codec {number}") for number in range(16) if bitmap >> number & 1]


def endpoint(ip: int, port: int) -> str:
    return f"{IPv4Address(ip)}:{port}"
