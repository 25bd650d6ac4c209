"""Which bytes of a kernel's connection are floats, and how each of them goes, however often the kernel sends it again.

A kernel stamps the ToS of a socket on a packet when it sends it, on retransmissions too, and cuts retransmissions as
it likes. The NIC must do to a byte the second time what it did the first, or a peer that got half of something one way
and half the other would have what was never written. Hence:

1. What a byte is is decided when it is first seen, and remembered until the peer has acknowledged it: plain, or part of
   a tagged *stretch*, whose words and blocks are counted from its first byte.
2. Of what is first seen in one piece, the whole words are *coded*: encoded or, where that does not shrink, rounded
   (FORMAT.md). The bytes of a word that is not there in whole go *exact*, and so do all its others, whenever they come.
3. Coded bytes are kept, and a retransmission of any of them is made of the kept ones: widened to multiples of 64 bytes
   from the start of the stretch, so that no word or block is cut other than the first time.
4. Bytes that the kernel sent and that never came here (its queue was full) are filled in later. What follows them
   says what they were: a program changes the tag only when all before it is acknowledged (docs/kernel.md), so they are
   of the stretch of what follows, if that did not begin later. A stretch whose beginning is uncertain goes exact.

Positions are those of `softnic.tcp.seq`: the SYN has 0, the first byte 1.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from softnic.tcp import seq

CUT = 64
"""Bytes: where a stretch may be cut (FORMAT.md)."""
WORD = 4


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes that were sent under one tag, one after the other."""

    tos: int
    """Without its ECN bits."""
    origin: int | None
    """Position of its first byte; None where that is not known."""


class Part(NamedTuple):
    """Payload that goes in one way."""

    position: int
    payload: memoryview
    stretch: Stretch | None
    """None: plain."""
    coded: bool
    """Or exact."""

    @property
    def end(self) -> int:
        return self.position + len(self.payload)

    @property
    def phase(self) -> int:
        """Offset from the start of its stretch, modulo 64, where that matters: exact bytes may be cut anywhere."""
        if not self.coded or self.stretch is None or self.stretch.origin is None:
            return 0
        return (self.position - self.stretch.origin) % CUT


@dataclass(slots=True)
class _Piece:
    """Neighbouring bytes that are treated alike."""

    start: int
    end: int
    stretch: Stretch | None
    kept: memoryview | None = None
    """The bytes, where they are coded."""


_START = 1
"""Position of the first byte of a stream."""


class Stretches:
    """What one end of a connection has sent. `iss` is the sequence number of its SYN."""

    def __init__(self, iss: int) -> None:
        self._iss = iss
        self._una = _START
        """All before it is acknowledged."""
        self._pieces: list[_Piece] = [_Piece(_START, _START, None)]
        """By position, without overlaps; the last one stays, as the end of what was seen."""

    @property
    def kept_bytes(self) -> int:
        return sum(len(piece.kept) for piece in self._pieces if piece.kept is not None)

    def number(self, position: int) -> int:
        """The sequence number of a position."""
        return seq.number(self._iss, position)

    def acknowledged(self, number: int) -> None:
        """The peer has all before this sequence number. One that acknowledges what was never sent is passed over."""
        pieces = self._pieces
        una = seq.position(self._iss, number, self._una)
        if not self._una < una <= pieces[-1].end + 1:  # the FIN has a number too
            return
        self._una = una
        if pieces[0].end > una:
            return
        gone = bisect_right(pieces, una, key=_end)
        del pieces[: min(gone, len(pieces) - 1)]
        if pieces[0].end <= una:
            pieces[0].kept = None

    def parts(self, number: int, payload: memoryview, tos: int, tagged: bool) -> list[Part]:
        """A segment's payload as it is to go out, in order; parts of it that the peer has are left out. `number` is the
        sequence number of its first byte, `tagged` says that its ToS (without ECN bits) selects an offload."""
        last = self._pieces[-1]
        start = seq.position(self._iss, number, last.end)
        end = start + len(payload)
        if not tagged and last.stretch is None and last.end == start:  # the usual: more of what is plain
            last.end = end
            return [Part(start, payload, None, False)]
        start_seen = max(start, self._una)
        if start_seen >= end:
            return []
        if start_seen > start:
            payload = payload[start_seen - start :]
        self._see(start_seen, payload, Stretch(tos, None) if tagged else None)
        return self._cut(start_seen, payload)

    # What is seen for the first time.

    def _see(self, start: int, payload: memoryview, tag: Stretch | None) -> None:
        """Decides on all bytes that are new."""
        pieces, end = self._pieces, start + len(payload)
        index = self._after(start)
        at = start
        while at < end:
            following = pieces[index] if index < len(pieces) else None
            if following is not None and following.start <= at:
                at = following.end
                index += 1
                continue
            until = end if following is None else min(end, following.start)
            stretch = self._begun(at, tag) if following is None else _before(following, at)
            index += self._insert(index, at, payload[at - start : until - start], stretch)
            at = until

    def _begun(self, at: int, tag: Stretch | None) -> Stretch | None:
        """Of what are the bytes that begin at `at`, behind all that was seen?"""
        last = self._pieces[-1]
        if tag is None:
            return None
        if last.stretch is not None and last.stretch.tos == tag.tos:
            return last.stretch
        if last.end == at or last.end == self._una:  # what did not come belongs to it: all before is acknowledged
            return Stretch(tag.tos, last.end)
        return tag

    def _insert(self, index: int, start: int, payload: memoryview, stretch: Stretch | None) -> int:
        """Remembers new bytes, before the piece with this index. Returns how many pieces they made."""
        end = start + len(payload)
        previous = self._pieces[index - 1] if index else None
        if stretch is None or stretch.origin is None:
            if previous is not None and (previous.end, previous.stretch, previous.kept) == (start, stretch, None):
                previous.end = end
                return 0
            self._pieces.insert(index, _Piece(start, end, stretch))
            return 1
        first = min(end, start + (stretch.origin - start) % WORD)
        last = max(first, end - (end - stretch.origin) % WORD)
        kept = memoryview(bytes(payload[first - start : last - start]))
        made = [_Piece(start, first, stretch), _Piece(first, last, stretch, kept), _Piece(last, end, stretch)]
        made = [piece for piece in made if piece.start < piece.end]
        self._pieces[index:index] = made
        return len(made)

    # What is sent.

    def _cut(self, start: int, payload: memoryview) -> list[Part]:
        """The segment by the pieces that it lies in."""
        parts: list[Part] = []
        end = start + len(payload)
        for index in range(self._after(start), len(self._pieces)):
            piece = self._pieces[index]
            if piece.start >= end:
                break
            first, last = max(start, piece.start), min(end, piece.end)
            if piece.kept is None:
                parts.append(Part(first, payload[first - start : last - start], piece.stretch, False))
                continue
            assert piece.stretch is not None
            assert piece.stretch.origin is not None
            first = max(piece.start, first - (first - piece.stretch.origin) % CUT)
            last = min(piece.end, last + (piece.stretch.origin - last) % CUT)
            kept = piece.kept[first - piece.start : last - piece.start]
            parts.append(Part(first, kept, piece.stretch, True))
        return parts

    def _after(self, position: int) -> int:
        """Index of the first piece that ends behind a position."""
        return bisect_right(self._pieces, position, key=_end)


def _end(piece: _Piece) -> int:
    return piece.end


def _before(following: _Piece, at: int) -> Stretch | None:
    """Of what are bytes at `at` that come late, before a piece that was seen?"""
    stretch = following.stretch
    return stretch if stretch is not None and stretch.origin is not None and at >= stretch.origin else None
