"""From packets back to what was sent: the original bytes of a packet or a stream, its floats, its tag distribution.

What the codecs cannot undo is a DecodeError of the packet; a stream with a hole is a StreamError, since nobody
could tell whether floats or bytes are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic.capture.flows import Analysis, View
from softnic.capture.packets import CUT_OFF, ENCODED, HEADER_BYTES, MALFORMED
from softnic.codecs import Codec, CodecError, DecodeError, from_number
from softnic.codecs.payload import TagCounts, restore, tag_counts

Floats = npt.NDArray[np.float32]


class StreamError(ValueError):
    """A stream that the capture does not hold whole."""


@dataclass(slots=True)
class TagDistribution:
    """What became of the words of a view's tagged packets, of those whose codec has vectors of several sizes."""

    vectors: TagCounts
    """Encoded words by the bits of their vectors."""
    raw_words: int
    """Words of the same codecs that went as they were, because their packet would not have shrunk."""
    undecodable_packets: int
    """Cut off by the snaplen, or malformed."""
    codecs: dict[str, int]
    """Packets by codec."""

    @property
    def words(self) -> int:
        return sum(self.vectors) + self.raw_words


def vectors(codec: Codec, body: memoryview, words: int) -> TagCounts | None:
    """Vectors by size, or None where the codec has no such thing. Raises DecodeError for what does not decode."""
    if codec.has_tags:
        return tag_counts(codec, body, words)
    codec.decode(body, words)
    return None


def tag_distribution(analysis: Analysis, view: View) -> TagDistribution:
    """Counts the vectors of every encoded packet of a view, those sent again included."""
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
    """What one packet (a row of the Packets) stands for. Raises DecodeError."""
    packets, state = analysis.packets, int(analysis.headers.state[member])
    start, captured = int(packets.payload_at[member]), int(packets.captured[member])
    if state == CUT_OFF or captured < packets.payload[member]:
        raise DecodeError("the capture holds only the start of this packet (its snaplen was too small)")
    payload = analysis.capture.data.data[start : start + captured]
    return payload.tobytes() if state not in (ENCODED, MALFORMED) else restore(payload)


def words_of(original: bytes) -> Floats:
    """The whole floats at the start of a tagged packet's bytes; up to 3 tail bytes are no float."""
    return np.frombuffer(original, dtype="<f4", count=len(original) // 4)


def stream_bytes(analysis: Analysis, view: View) -> bytes:
    """A view's stream, each byte once. Raises StreamError, DecodeError."""
    return b"".join(piece for piece, _ in _pieces(analysis, view))


def stream_floats(analysis: Analysis, view: View) -> Floats:
    """All floats of a view's tagged packets, in the order of the stream, each once. Raises StreamError, DecodeError."""
    parts = [words_of(piece) for piece, tagged in _pieces(analysis, view) if tagged]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _pieces(analysis: Analysis, view: View) -> Iterator[tuple[bytes, bool]]:
    """The stream's bytes in order, packet by packet, and whether they were tagged.

    What was sent twice comes once. A packet that overlaps the one before it begins with the first new byte: cuts lie
    at whole words of their range, so its floats stay whole.
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
