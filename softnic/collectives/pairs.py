"""Which ranks of a communicator connect at its start, and which of two connects to the other: pure functions that all
ranks evaluate alike.

Up to FULL_RANKS ranks all connect at the start. More of them connect the pairs of a tree, by which barriers and short
sums go, and other pairs when a schedule needs them (`schedule.peers`). The higher of two ranks connects to the lower.
"""

from __future__ import annotations

from collections.abc import Iterable

from softnic.collectives import schedule

FULL_RANKS = 8
"""Up to as many ranks connect each pair at the start."""
CHOICES = ("", "all", "needed")
"""Which pairs connect at the start: as the number of ranks says, all, or those of the tree."""


def is_full(size: int, choice: str = "") -> bool:
    """Return whether each pair of ranks connects before the first call. Raises ValueError for an unknown choice."""
    if choice not in CHOICES:
        raise ValueError(f"{choice!r} is not a choice of pairs: all or needed")
    return size <= FULL_RANKS if not choice else choice == "all"


def at_start(rank: int, size: int, choice: str = "") -> frozenset[int]:
    """Return the ranks that a rank connects with before its first call. Raises ValueError for an unknown choice."""
    if is_full(size, choice):
        return frozenset(range(size)) - {rank}
    return schedule.peers("allreduce", "tree", rank, size, -1)


def lower(rank: int, ranks: Iterable[int]) -> list[int]:
    """Return those of `ranks` that rank `rank` connects to; the others connect to it."""
    return sorted(other for other in ranks if other < rank)
