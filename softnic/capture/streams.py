"""Recovers from packets what was sent: original bytes of a packet or stream, floats, tag distribution.

An undecodable packet raises DecodeError; a stream with a hole raises StreamError, because it is unknown whether floats
or bytes are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.capture.flows import Analysis, FlowView
from softnic.capture.packets import CUT_OFF, ENCODED, HEADER_BYTES, MALFORMED, Headers
from softnic.capture.reader import Column
from softnic.codecs import Codec, CodecError, DecodeError, from_number
from softnic.codecs.payload import TagCounts, decode_payload, tag_counts

Floats = npt.NDArray[np.float32]


class StreamError(ValueError):
    """The capture does not contain the whole stream."""


@dataclass(slots=True)
class TagDistribution:
    """Encoded sizes of the words of a view's tagged packets, for codecs with vectors of several sizes."""

    vectors: TagCounts
    """Encoded words by the bits of their vectors."""
    raw_words: int
    """Words of these codecs sent RAW, because their packet would not have shrunk."""
    undecodable_packets: int
    """Truncated by the snaplen, or malformed."""
    codecs: dict[str, int]
    """Packets by codec."""

    @property
    def words(self) -> int:
        return sum(self.vectors) + self.raw_words


def vectors(codec: Codec, body: memoryview, words: int) -> TagCounts | None:
    """Return vectors by size, or None if the codec has none. Raises DecodeError if the body does not decode."""
    if codec.has_tags:
        return tag_counts(codec, body, words)
    codec.decode(body, words)
    return None


@dataclass(slots=True)
class PacketTags:
    """Encoded sizes of the words of packets, one row each."""

    words: Column
    """Words by the bits of their vectors (0, 8, 16, 32), and words of RAW packets; zeros for codecs without tags."""
    decodable: Column
    """Mask of the packets that decode: encoded, complete in the file and well-formed."""


def packet_tags(analysis: Analysis, members: Column) -> PacketTags:
    """Count the vectors of packets (rows of the Packets), in one C call for each."""
    packets, headers = analysis.packets, analysis.headers
    raw, original = headers.raw[members], headers.original[members]
    whole = packets.captured[members] >= packets.payload[members]
    encoded = headers.state[members] == ENCODED
    tags = PacketTags(np.zeros((len(members), 5), np.int64), encoded & (whole | raw))
    kinds = headers.codec[members] << 8 | headers.parameter[members] & 0xFF
    for kind in np.unique(kinds[encoded]).tolist():
        rows = np.flatnonzero(encoded & (kinds == kind))
        first = int(rows[0])
        try:
            codec = from_number(int(headers.codec[members[first]]), int(headers.parameter[members[first]]))
        except CodecError:
            tags.decodable[rows] = False
            continue
        if codec.has_tags:
            tags.words[rows, 4] = np.where(raw[rows], original[rows] // 4, 0)
        rows = rows[~raw[rows] & whole[rows]]
        at = packets.payload_at[members[rows]] + HEADER_BYTES
        body = headers.body[members[rows]] - original[rows] % 4
        counts, wrong = _count_vectors(codec, analysis.capture.data, at, body, original[rows] // 4)
        tags.words[rows[~wrong], :4] = counts[~wrong]
        tags.decodable[rows[wrong]] = False
    return tags


def _count_vectors(codec: Codec, data: Column, at: Column, sizes: Column, words: Column) -> tuple[Column, Column]:
    """Return for bodies in `data` their vectors by size, zeros for a codec without tags, and a mask of malformed ones.

    Bodies of codecs without tags are decoded, which alone shows whether they are well-formed.
    """
    counts = np.zeros((len(at), 4), np.uint64)
    wrong = np.zeros(len(at), bool)
    number, parameter, start = codec.number, codec.parameter, ffi.from_buffer("uint8_t[]", data)
    bodies = zip(at.tolist(), sizes.tolist(), words.tolist(), strict=True)
    if codec.has_tags:
        result, count = ffi.from_buffer("uint64_t[]", counts, require_writable=True), lib.sn_tag_counts
        failed = [
            row
            for row, (offset, size, each) in enumerate(bodies)
            if count(number, parameter, start + offset, size, each, result + 4 * row)
        ]
    else:
        scratch, decode = ffi.new("uint8_t[]", 4 * int(words.max(initial=0)) + 1), lib.sn_decode
        failed = [
            row
            for row, (offset, size, each) in enumerate(bodies)
            if decode(number, parameter, start + offset, size, scratch, each)
        ]
    wrong[failed] = True
    return counts, wrong


def tag_distribution(analysis: Analysis, view: FlowView) -> TagDistribution:
    """Count the vectors of every encoded packet of a view, retransmissions included."""
    headers, state = analysis.headers, analysis.headers.state[view.members]
    members = view.members[state == ENCODED]
    tags = packet_tags(analysis, members)
    totals = tags.words.sum(axis=0).tolist()
    undecodable = int(((state == CUT_OFF) | (state == MALFORMED)).sum()) + int((~tags.decodable).sum())
    return TagDistribution(
        TagCounts(*totals[:4]), totals[4], undecodable, packets_by_codec(headers, members[tags.decodable])
    )


def packets_by_codec(headers: Headers, members: Column) -> dict[str, int]:
    """Count decodable packets by codec, in the order of first appearance."""
    _, first, counts = np.unique(
        headers.codec[members] << 8 | headers.parameter[members] & 0xFF, return_index=True, return_counts=True
    )
    found = {}
    for index in np.argsort(first).tolist():
        member = members[first[index]]
        found[str(from_number(int(headers.codec[member]), int(headers.parameter[member])))] = int(counts[index])
    return found


def original_bytes(analysis: Analysis, member: int) -> bytes:
    """Return the original bytes of one packet (a row of the Packets). Raises DecodeError."""
    packets, state = analysis.packets, int(analysis.headers.state[member])
    start, captured = int(packets.payload_at[member]), int(packets.captured[member])
    if state == CUT_OFF or captured < packets.payload[member]:
        raise DecodeError("the capture holds only the start of this packet (its snaplen was too small)")
    payload = analysis.capture.data.data[start : start + captured]
    return payload.tobytes() if state not in (ENCODED, MALFORMED) else decode_payload(payload)


def words_of(original: bytes) -> Floats:
    """Return the whole floats at the start of a tagged packet's bytes; up to 3 tail bytes are not floats."""
    return np.frombuffer(original, dtype="<f4", count=len(original) // 4)


def stream_bytes(analysis: Analysis, view: FlowView) -> bytes:
    """Return a view's stream, each byte once. Raises StreamError, DecodeError."""
    return b"".join(piece for piece, _ in _pieces(analysis, view))


def stream_floats(analysis: Analysis, view: FlowView) -> Floats:
    """Return all floats of a view's tagged packets in stream order, each once. Raises StreamError, DecodeError."""
    parts = [words_of(piece) for piece, tagged in _pieces(analysis, view) if tagged]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _pieces(analysis: Analysis, view: FlowView) -> Iterator[tuple[bytes, bool]]:
    """Yield the stream's bytes in order, packet by packet, and whether they were tagged.

    Repeated bytes come once. A packet that overlaps the one before begins with its first new byte; cuts are at whole
    words of their range, so floats stay whole.
    """
    original = analysis.headers.original[view.members]
    data = np.flatnonzero(original > 0)
    begin, end = view.position[data], view.position[data] + original[data]
    order = np.lexsort((-end, begin))
    reached = int(begin.min()) if len(data) else 0
    for index in data[order].tolist():
        start = int(view.position[index])
        stop = start + int(original[index])
        if start > reached:
            raise StreamError(f"{start - reached} bytes from byte {reached} of the stream on were not captured")
        if stop > reached:
            member = int(view.members[index])
            yield original_bytes(analysis, member)[reached - start :], bool(analysis.tagged[member])
            reached = stop
