"""What schedules are made of, and how buffers are cut into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Send(NamedTuple):
    """What this rank holds of the block by then goes to `peer`."""

    peer: int
    block: int


class Receive(NamedTuple):
    """The block comes from `peer`."""

    peer: int
    block: int
    combine: bool = False
    """What comes is combined with what this rank holds; otherwise it takes the block's place."""
    last: bool = False
    """With this the block holds the contributions of all ranks: from here on this rank owns it."""


Step = Send | Receive
Schedule = tuple[Step, ...]


def partition(count: int, size: int) -> tuple[slice, ...]:
    """Cuts `count` elements into `size` blocks that differ by one element at most, the longer ones first."""
    short, longer = divmod(count, size)
    return offsets([short + (index < longer) for index in range(size)])


def offsets(counts: Sequence[int]) -> tuple[slice, ...]:
    """The blocks of the given lengths, one behind the other."""
    ends = list(accumulate(counts))
    return tuple(slice(end - count, end) for count, end in zip(counts, ends, strict=True))


def mirrored(schedule: Schedule) -> Schedule:
    """The way back: where a rank's contribution went, the result comes from, in the opposite order.

    What brings every block to its owner becomes what brings every block from its owner to all.
    """
    return tuple(
        Receive(step.peer, step.block) if isinstance(step, Send) else Send(step.peer, step.block)
        for step in reversed(schedule)
    )


def to_root(rank: int, size: int, root: int) -> Schedule:
    """Where rank r owns block r, all blocks go to the root."""
    if rank != root:
        return (Send(root, rank),)
    return tuple(Receive((root + step) % size, (root + step) % size) for step in range(1, size))


def with_last(steps: Sequence[Step], block: int) -> Schedule:
    """Marks the last of the receives that combine a block."""
    combining = [place for place, step in enumerate(steps) if isinstance(step, Receive) and step.block == block]
    return tuple(
        step._replace(last=True) if isinstance(step, Receive) and place == combining[-1] else step
        for place, step in enumerate(steps)
    )
