"""Recovers from packets what was sent: original bytes of a packet or stream, floats, tag distribution.

An undecodable packet raises DecodeError; a stream with a hole raises StreamError, because it is unknown whether floats
or bytes are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic.capture.flows import Analysis, FlowView
from softnic.capture.packets import CUT_OFF, ENCODED, HEADER_BYTES, MALFORMED
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


def tag_distribution(analysis: Analysis, view: FlowView) -> TagDistribution:
    """Count the vectors of every encoded packet of a view, retransmissions included."""
    packets, headers, data = analysis.packets, analysis.headers, analysis.capture.data.data
    state = headers.state[view.members]
    undecodable = int(((state == CUT_OFF) | (state == MALFORMED)).sum())
    encoded = view.members[state == ENCODED]
    totals, raw_words, codecs = np.zeros(4, np.int64), 0, dict[str, int]()
    cut = packets.captured[encoded] < packets.payload[encoded]
    columns = (
        packets.payload_at[encoded] + HEADER_BYTES,
        headers.body[encoded],
        headers.original[encoded],
        headers.codec[encoded],
        headers.parameter[encoded],
        headers.raw[encoded],
        cut,
    )
    for at, body, original, number, parameter, raw, short in zip(*(c.tolist() for c in columns), strict=True):
        words = original // 4
        try:
            codec = from_number(number, parameter)
            if raw:
                raw_words += words if codec.has_tags else 0
            elif short:
                undecodable += 1
                continue
            else:
                totals += vectors(codec, data[at : at + body - original % 4], words) or TagCounts()
        except (CodecError, DecodeError):
            undecodable += 1
            continue
        name = str(codec)
        codecs[name] = codecs.get(name, 0) + 1
    return TagDistribution(TagCounts(*totals.tolist()), raw_words, undecodable, codecs)


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
