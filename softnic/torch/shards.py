"""Cuts a row of elements, of which each rank owns a part, to pieces that are exchanged one after the other.

A piece has the same number of elements of every part. So what is done with an element, and in which order, does not
depend on the pieces: in each of them, every rank's part is where it is in the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softnic.collectives import schedule
from softnic.torch.staging import TensorAt

Piece = tuple[slice, ...]
"""Elements of the row: one range of each part."""


def even_pieces(parts: Sequence[slice], unit: int, length: int) -> list[Piece]:
    """Return the pieces that have equal ranges of all parts, of at most `length` elements, in whole units."""
    even = even_elements(parts, unit)
    step = max(unit, length // unit * unit)
    ranges = [(start, min(start + step, even)) for start in range(0, even, step)]
    return [tuple(slice(part.start + start, part.start + stop) for part in parts) for start, stop in ranges]


def rest(parts: Sequence[slice], unit: int) -> Piece:
    """Return what the even pieces leave at the end of each part."""
    even = even_elements(parts, unit)
    return tuple(slice(part.start + even, part.stop) for part in parts)


def even_elements(parts: Sequence[slice], unit: int) -> int:
    """Return how many elements of each part are in even pieces."""
    least: int = min(part.stop - part.start for part in parts)
    return least // unit * unit


def joined(pieces: Sequence[Piece]) -> Piece:
    """Return the piece that consecutive ones are together."""
    return tuple(slice(first.start, last.stop) for first, last in zip(pieces[0], pieces[-1], strict=True))


def ranges_of(piece: Piece) -> tuple[slice, ...]:
    """Return where the ranges of a piece are if they lie side by side."""
    return schedule.offsets([each.stop - each.start for each in piece])


def within(tensors: Sequence[TensorAt], piece: Piece) -> list[TensorAt]:
    """Return the parts of contiguous tensors, given with their places in the row, that belong to a piece.

    They are given with their places in the piece.
    """
    return [*_within(tensors, piece)]


def _within(tensors: Sequence[TensorAt], piece: Piece) -> Iterator[TensorAt]:
    for taken, place in zip(piece, ranges_of(piece), strict=True):
        for start, tensor in tensors:
            begin, end = max(taken.start, start), min(taken.stop, start + tensor.numel())
            if begin < end:
                yield place.start + begin - taken.start, tensor.view(-1)[begin - start : end - start]
