"""Recovers from packets what was sent: original bytes of a packet or stream, floats, tag distribution.

An undecodable packet raises DecodeError; a stream with a hole raises StreamError, because it is unknown whether floats
or bytes are missing. Of bytes that were sent again with other content, the first ones captured count, as in Wireshark.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.capture.capture_file import Column
from softnic.capture.flows import Analysis, FlowView
from softnic.capture.packets import CUT_OFF, ENCODED, HEADER_BYTES, MALFORMED, Headers
from softnic.codecs import Codec, CodecError, DecodeError, from_number
from softnic.codecs.payload import TagCounts, decode_payload, tag_counts

Floats = npt.NDArray[np.float32]

_FILLED, _FLOAT, _CONFLICT = 1, 2, 4
_FIN, _SYN, _RST = 1, 2, 4


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
    if not state.any():
        return TagDistribution(TagCounts(0, 0, 0, 0), 0, 0, {})
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


@dataclass(slots=True)
class CapturedStream:
    """A view's stream, each byte once."""

    data: npt.NDArray[np.uint8]
    state: npt.NDArray[np.uint8]
    """Of each byte: _FILLED, _FLOAT and _CONFLICT."""

    @property
    def floats(self) -> Floats:
        """All floats of the tagged packets, in stream order."""
        chosen = self.data[self.state & _FLOAT != 0]
        floats: Floats = chosen[: len(chosen) & ~3].view("<f4")
        return floats

    @property
    def conflicts(self) -> int:
        """Number of bytes that a later packet brought with another value. Keep-alives are not counted."""
        return int(np.count_nonzero(self.state & _CONFLICT))


def stream_of(analysis: Analysis, view: FlowView) -> CapturedStream:
    """Return a view's stream. Raises StreamError, DecodeError.

    A packet that the snaplen cut is passed over where others have its bytes. It is not decoded itself: a few bytes
    of it may decode to megabytes.
    """
    flags, original = analysis.packets.flags[view.members], analysis.headers.original[view.members]
    begin = view.position + (flags & _SYN != 0)
    keep_alive = _keep_alives(begin, original, flags)
    first, stop = _extent(begin, original, flags, keep_alive)
    rows = np.flatnonzero((original > 0) & (begin + original > first))
    hole = _first_hole(begin[rows], (begin + original)[rows], first, stop)
    if hole is not None:
        raise StreamError(f"{hole[1]} bytes from byte {hole[0]} of the stream on were not captured")
    members = view.members[rows]
    whole = analysis.packets.captured[members] >= analysis.packets.payload[members]
    cut, rows = int((~whole).sum()), rows[whole]
    if _first_hole(begin[rows], (begin + original)[rows], first, stop) is not None:
        raise DecodeError(
            f"the capture holds only the start of {cut:,} packets of this flow (its snaplen was too small)"
        )
    rows = rows[np.argsort(keep_alive[rows], kind="stable")]
    starts, ends = np.maximum(begin[rows], first) - first, (begin + original)[rows] - first
    columns = (view.members[rows], first - begin[rows], starts, ends, _alone(starts, ends), keep_alive[rows])
    stream = CapturedStream(*np.zeros((2, stop - first), np.uint8))
    for member, skip, start, end, alone, late in zip(*(column.tolist() for column in columns), strict=True):
        data, state = stream.data[start:end], stream.state[start:end]
        _add(analysis, member, max(0, skip), data, state, shared=not alone, keep_alive=late)
    return stream


def stream_bytes(analysis: Analysis, view: FlowView) -> bytes:
    """Return a view's stream, each byte once. Raises StreamError, DecodeError."""
    return stream_of(analysis, view).data.tobytes()


def stream_floats(analysis: Analysis, view: FlowView) -> Floats:
    """Return all floats of a view's tagged packets in stream order, each once. Raises StreamError, DecodeError."""
    return stream_of(analysis, view).floats


def _keep_alives(begin: Column, original: Column, flags: Column) -> Column:
    """Return a mask of keep-alives with a byte, which may have any value: the one before the next byte to be sent."""
    counts = flags & _RST == 0
    reached = np.maximum.accumulate(np.where(counts, begin + original, np.iinfo(np.int64).min))
    before = np.concatenate([[np.iinfo(np.int64).min], reached[:-1]])
    keep_alive: Column = (original == 1) & (flags & (_FIN | _SYN | _RST) == 0) & (begin == before - 1)
    return keep_alive


def _extent(begin: Column, original: Column, flags: Column, keep_alive: Column) -> tuple[int, int]:
    """Return where a stream begins and ends, as far as its packets tell.

    It begins after a SYN and ends at a FIN. Where these were not captured, packets without data tell as well: their
    number is the next one to be sent. One number of difference is none: a keep-alive has the number before, and what
    follows a FIN the number after it.
    """
    end = begin + original
    bare = (original == 0) & (flags & (_SYN | _FIN | _RST) == 0)
    data, syn = np.flatnonzero((original > 0) & ~keep_alive), np.flatnonzero(flags & _SYN)
    fin = np.flatnonzero(flags & _FIN)
    last = int(end[np.concatenate([data, fin])].max(initial=np.iinfo(np.int64).min))
    told = begin[bare]
    if not len(data) and not len(fin):
        last = int(told.max(initial=int(begin[syn].max(initial=0))))
    elif not len(fin) and int(told.max(initial=last)) > last + 1:
        last = int(told.max())
    if len(syn):
        return int(begin[syn[0]]), max(last, int(begin[syn[0]]))
    first = int(begin[data].min(initial=last))
    early = begin[np.flatnonzero(bare[: data[0] if len(data) else len(bare)])]
    lowest = int(early.min(initial=first))
    return lowest if lowest < first - 1 else first, last


def _first_hole(begin: Column, end: Column, first: int, stop: int) -> tuple[int, int] | None:
    """Return the first byte from `first` to `stop` that no packet has, and how many there are; None: all are there."""
    order = np.argsort(begin, kind="stable")
    begins = np.append(begin[order], stop)
    reached = np.maximum.accumulate(np.concatenate([[first], end[order]]))
    holes = np.flatnonzero(begins > reached)
    if not len(holes):
        return None
    at = int(reached[holes[0]])
    return at, int(begins[holes[0]]) - at


def _alone(starts: Column, ends: Column) -> Column:
    """Return a mask of the spans that overlap no other one, which are nearly all."""
    order = np.argsort(starts, kind="stable")
    before = np.concatenate([[0], np.maximum.accumulate(ends[order])[:-1]])[: len(order)]
    after = np.append(starts[order][1:], np.iinfo(np.int64).max)[: len(order)]
    alone = np.empty(len(order), bool)
    alone[order] = (starts[order] >= before) & (ends[order] <= after)
    return alone


def _add(
    analysis: Analysis, member: int, skip: int, data: Column, state: Column, *, shared: bool, keep_alive: bool
) -> None:
    """Add a packet's bytes, without the first `skip`, to their place in a stream, where no earlier packet has any."""
    new = state == 0 if shared else None
    try:
        content = original_bytes(analysis, member)
    except DecodeError:
        if new is None or new.any():
            raise
        return  # a copy of what is there already
    piece = np.frombuffer(content, np.uint8)[skip:]
    whole = max(0, len(content) // 4 * 4 - skip) if analysis.tagged[member] else 0
    if new is None:
        data[:], state[:whole], state[whole:] = piece, _FILLED | _FLOAT, _FILLED
        return
    if not keep_alive:
        state[~new & (data != piece)] |= _CONFLICT
    data[new] = piece[new]
    state[new] |= _FILLED
    state[:whole][new[:whole]] |= _FLOAT
