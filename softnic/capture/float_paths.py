"""Follows floats from the sender's host side over the wire to the receiver's host side.

The sides of a flow are matched by sequence numbers, which count original bytes at all of them. Packets are taken evenly
over the capture, a bounded number for each codec, so that the work does not grow with the capture.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from softnic.capture.capture_file import Column
from softnic.capture.flows import Analysis, CapturedFlow, FlowView
from softnic.capture.packets import ENCODED, HEADER_BYTES
from softnic.capture.pcapng import Direction
from softnic.capture.streams import Floats, original_bytes, words_of
from softnic.codecs import Codec, CodecError, DecodeError, from_number

PATH_WORDS = 16
DECADES = (-10, 4)
STEPS = 4
"""Bins of a histogram of errors: from 10^-10 to 10^4, 4 a decade; the bins at both ends include what is beyond."""

_PACKETS_A_CODEC = 400
_MOST_CODECS = 16
"""Codecs with most packets that are compared. Bytes of the wire name them, so a hostile file names thousands."""
_FLOATS_A_CODEC = 1 << 22
"""Floats that are compared, about: a packet of zeros stands for 64 times its words."""
_BIT_BYTES = 640
_BIT_WORDS = 1 << 14
"""Floats of the largest packet whose bits are shown: all of them are decoded for every bit."""
_MOST_PIECES = 256
"""Host packets that the floats of a packet may be in."""


@dataclass(slots=True)
class CodecErrors:
    """Differences between floats before and after one codec, in the packets that were compared."""

    codec: str
    packets: int = 0
    floats: int = 0
    exact: int = 0
    not_finite: int = 0
    """Floats left out of everything below."""
    largest: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    signal: float = 0.0
    """Sums of absolute errors, of their squares, and of the squares of the floats sent."""
    bins: Column = field(default_factory=lambda: np.zeros((DECADES[1] - DECADES[0]) * STEPS, np.int64))
    """Numbers of errors other than 0, by size."""

    def add(self, sent: Floats, received: Floats) -> None:
        """Add the floats of a packet."""
        finite = np.isfinite(sent) & np.isfinite(received)
        error = differences(sent[finite], received[finite])
        self.packets += 1
        self.floats += len(sent)
        self.not_finite += len(sent) - len(error)
        self.exact += int((error == 0).sum())
        self.largest = max(self.largest, float(error.max(initial=0)))
        self.total += float(error.sum())
        self.squares += float((error * error).sum())
        self.signal += float((sent[finite].astype(np.float64) ** 2).sum())
        place = np.floor((np.log10(error[error > 0]) - DECADES[0]) * STEPS).astype(np.int64)
        self.bins += np.bincount(np.clip(place, 0, len(self.bins) - 1), minlength=len(self.bins))

    @property
    def mean(self) -> float:
        """Mean absolute error."""
        return self.total / max(1, self.floats - self.not_finite)

    @property
    def relative(self) -> float:
        """Root of the squares of the errors, relative to that of the floats."""
        return float(np.sqrt(self.squares / self.signal)) if self.signal else 0.0


@dataclass(slots=True)
class FloatPath:
    """The first floats of one packet at the three places."""

    codec: str
    flow: int
    packet: int
    """Wireshark's number of the wire packet."""
    sent: Floats
    received: Floats
    """As at the sender's host side, and as decoded from the packet; at most PATH_WORDS."""
    body: bytes
    owners: Column
    """For each bit of the body, lowest bit of a byte first: the mask of the floats above that change with it."""
    alone: Column
    """Mask of the bits that change one of the floats above and no other of the packet."""
    delivered: bool | None
    """Whether the receiver's host side shows the decoded floats; None: it was not captured there."""


def follow_floats(analysis: Analysis) -> tuple[list[CodecErrors], list[FloatPath]]:
    """Compare the floats of a sample of packets before and after compression.

    Only flows whose sender was captured at both sides, host and wire, contribute. The path of each codec is that of
    the compressed packet, not too large, whose first floats changed most.
    """
    errors, paths = [], []
    sides = {flow.number: _Sides(analysis, flow) for flow in analysis.flows if flow.main.tagged_packets}
    for codec, members in _by_codec(analysis, sides):
        found, best = CodecErrors(str(codec)), (-1.0, 0, 0)
        for number, row in _sample(members, sides).tolist():
            pair = sides[number].compare(row)
            if pair is not None:
                found.add(*pair)
                change = float(np.fmax.reduce(differences(*(each[:PATH_WORDS] for each in pair)), initial=0.0))
                if change > best[0] and len(pair[0]) <= _BIT_WORDS and not sides[number].raw(row):
                    best = (change, number, row)
        if found.packets:
            errors.append(found)
        if best[0] >= 0:
            paths.append(sides[best[1]].path(codec, best[2]))
    return errors, paths


def _sample(members: Column, sides: dict[int, _Sides]) -> Column:
    """Return packets of a codec at equal distances, few enough that the sum of their floats is bounded."""
    chosen: Column = members[evenly(len(members), _PACKETS_A_CODEC)]
    words = sum(sides[number].words(row) for number, row in chosen.tolist())
    fewer = max(1, len(chosen) * _FLOATS_A_CODEC // max(words, 1))
    return chosen[evenly(len(chosen), fewer)]


def differences(sent: Floats, received: Floats) -> Column:
    """Return absolute errors; NaN where a float is NaN, or infinite on both sides."""
    with np.errstate(invalid="ignore"):
        error: Column = np.abs(sent.astype(np.float64) - received.astype(np.float64))
    return error


def evenly(count: int, most: int) -> Column:
    """Return at most `most` of the indices below `count`, at equal distances, the first and the last included."""
    chosen: Column = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
    return chosen


def bit_owners(codec: Codec, body: bytes, words: int) -> tuple[Column, Column]:
    """Return which of the first floats each bit of a body changes, and which bits change one float alone.

    Each bit is flipped and the body decoded again, so this holds for every codec. A bit after which the body does not
    decode changes all floats shown, unless it is beyond all that matters to them.
    """
    shown = min(words, PATH_WORDS)
    decoded = codec.decode(body, words).view(np.uint32)
    weights = 1 << np.arange(shown)
    owners = np.zeros(8 * min(len(body), _BIT_BYTES), np.int64)
    alone, undecodable = np.zeros((2, len(owners)), bool)
    for bit in range(len(owners)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        values = _decode(codec, flipped, words)
        if values is None:
            undecodable[bit] = True
        else:
            changed = values.view(np.uint32) != decoded
            owners[bit], alone[bit] = int(weights[changed[:shown]].sum()), int(changed.sum()) == 1
    last = int(np.flatnonzero(owners).max(initial=-1))
    owners[: last + 1][undecodable[: last + 1]] = int(weights.sum())
    return owners, alone & (owners > 0)


def _decode(codec: Codec, body: bytearray, words: int) -> Floats | None:
    """Decode a body whose length may not be right any more, because the size of one vector changed."""
    for size in (0, 1, -1, 2, -2, 3, -3):
        with suppress(DecodeError):
            return codec.decode(body[: len(body) + size] + bytes(max(0, size)), words)
    return None


def _by_codec(analysis: Analysis, sides: dict[int, _Sides]) -> list[tuple[Codec, Column]]:
    """Return the codecs with most packets, by name, and their packets: number of the flow and row of its main view."""
    headers = analysis.headers
    parts: dict[int, list[Column]] = {}
    for number, side in sides.items():
        rows = np.flatnonzero(headers.state[side.members] == ENCODED)
        members = side.members[rows]
        kinds = headers.codec[members] << 8 | headers.parameter[members] & 0xFF
        for kind in np.unique(kinds).tolist():
            own = rows[kinds == kind]
            parts.setdefault(kind, []).append(np.stack([np.full(len(own), number), own], axis=1))
    joined = sorted((np.concatenate(each) for each in parts.values()), key=len, reverse=True)[:_MOST_CODECS]
    found = []
    for members in joined:
        one = sides[int(members[0, 0])].members[int(members[0, 1])]
        try:
            found.append((from_number(int(headers.codec[one]), int(headers.parameter[one])), members))
        except CodecError:
            continue  # no codec of this number: its packets count as undecodable elsewhere
    return sorted(found, key=lambda each: str(each[0]))


class _Sides:
    """One flow at the sender's wire side (its main view) and at both host sides, where captured."""

    def __init__(self, analysis: Analysis, flow: CapturedFlow) -> None:
        self._analysis, self._flow = analysis, flow
        self.members = flow.main.members
        wire = not analysis.host[flow.main.interface] and flow.main.direction == Direction.OUTBOUND
        self._sender = self._host_side(Direction.OUTBOUND) if wire else None
        self._receiver = self._host_side(Direction.INBOUND)

    def _host_side(self, direction: Direction) -> _HostStream | None:
        views = [one for one in self._flow.views if self._analysis.host[one.interface] and one.direction == direction]
        return _HostStream(self._analysis, self._flow.main, views[0]) if views else None

    def raw(self, row: int) -> bool:
        return bool(self._analysis.headers.raw[self.members[row]])

    def words(self, row: int) -> int:
        return int(self._analysis.headers.original[self.members[row]]) // 4

    def compare(self, row: int) -> tuple[Floats, Floats] | None:
        """Return the floats of a packet before and after; None if one side is missing or does not decode."""
        if self._sender is None:
            return None
        try:
            received = words_of(original_bytes(self._analysis, int(self.members[row])))
        except DecodeError:
            return None
        sent = self._sender.words(int(self._flow.main.position[row]), len(received))
        return None if sent is None else (sent, received)

    def path(self, codec: Codec, row: int) -> FloatPath:
        """Return the path of a packet's first floats. `compare` must have found them."""
        pair = self.compare(row)
        assert pair is not None
        sent, received = pair
        analysis, member = self._analysis, int(self.members[row])
        start = int(analysis.packets.payload_at[member]) + HEADER_BYTES
        length = int(analysis.headers.body[member]) - int(analysis.headers.original[member]) % 4
        body = analysis.capture.data[start : start + length].tobytes()
        owners, alone = bit_owners(codec, body, len(received))
        at = int(self._flow.main.position[row])
        arrived = None if self._receiver is None else self._receiver.words(at, len(received))
        delivered = None if arrived is None else arrived.tobytes() == received.tobytes()
        words, number = slice(PATH_WORDS), int(analysis.packets.row[member]) + 1
        return FloatPath(
            str(codec), self._flow.number, number, sent[words], received[words], body, owners, alone, delivered
        )


class _HostStream:
    """The stream of a flow as a host side shows it, by positions of the flow's main view."""

    def __init__(self, analysis: Analysis, main: FlowView, view: FlowView) -> None:
        packets = analysis.packets
        self._analysis = analysis
        data = np.flatnonzero(packets.payload[view.members] > 0)
        first, own = int(packets.seq[main.members[0]]), int(packets.seq[view.members[0]])
        begin = view.position[data] + (own - first + 2**31) % 2**32 - 2**31
        order = np.argsort(begin, kind="stable")
        self._begin, self._members = begin[order], view.members[data][order]

    def words(self, position: int, count: int) -> Floats | None:
        """Return the tagged floats from a position of the stream on; None if they were not all captured, or are in more
        than _MOST_PIECES packets."""
        parts: list[bytes] = []
        at, end = position, position + 4 * count
        while at < end:
            if len(parts) == _MOST_PIECES:
                return None
            index = int(np.searchsorted(self._begin, at, side="right")) - 1
            piece = b"" if index < 0 else self._bytes(int(self._members[index]), at - int(self._begin[index]), end - at)
            if not piece:
                return None
            parts.append(piece)
            at += len(piece)
        return np.frombuffer(b"".join(parts), dtype="<f4")

    def _bytes(self, member: int, skip: int, most: int) -> bytes:
        """Return bytes of the payload of a tagged host packet; none if it is not tagged or they are not in the file."""
        if not self._analysis.tagged[member]:
            return b""
        start, captured = int(self._analysis.packets.payload_at[member]), int(self._analysis.packets.captured[member])
        return self._analysis.capture.data[start + skip : start + min(captured, skip + most)].tobytes()
