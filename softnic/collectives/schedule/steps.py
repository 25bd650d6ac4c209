"""The steps of schedules, and how buffers are cut into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

UNIT = 16
"""Elements: the floats of a coding block (FORMAT.md), so that blocks need no padding."""


class SendBlock(NamedTuple):
    """Send this rank's block, as the steps before left it, to `peer`."""

    peer: int
    block: int


class RecvBlock(NamedTuple):
    """Receive the block from `peer`."""

    peer: int
    block: int
    combine: bool = False
    """Combine it with this rank's block; otherwise it replaces the block."""
    last: bool = False
    """Afterwards the block contains the contributions of all ranks, and this rank owns it."""


Step = SendBlock | RecvBlock
Schedule = tuple[Step, ...]


def partition(count: int, size: int) -> tuple[slice, ...]:
    """Cut `count` elements into `size` blocks that differ by one element at most, the longer ones first."""
    short, longer = divmod(count, size)
    return offsets([short + (index < longer) for index in range(size)])


def offsets(counts: Sequence[int]) -> tuple[slice, ...]:
    """Return consecutive blocks of the given lengths."""
    ends = list(accumulate(counts))
    return tuple(slice(end - count, end) for count, end in zip(counts, ends, strict=True))


def mirrored(schedule: Schedule) -> Schedule:
    """Return the schedule in the opposite direction and order.

    A schedule that brings every block to its owner becomes one that brings every block from its owner to all ranks.
    """
    return tuple(
        RecvBlock(step.peer, step.block) if isinstance(step, SendBlock) else SendBlock(step.peer, step.block)
        for step in reversed(schedule)
    )


def to_root(rank: int, size: int, root: int) -> Schedule:
    """Send all blocks to the root, where rank r owns block r."""
    if rank != root:
        return (SendBlock(root, rank),)
    return tuple(RecvBlock((root + step) % size, (root + step) % size) for step in range(1, size))


def with_last(steps: Sequence[Step], block: int) -> Schedule:
    """Mark the last of the receives that combine a block."""
    combining = [place for place, step in enumerate(steps) if isinstance(step, RecvBlock) and step.block == block]
    return tuple(
        step._replace(last=True) if isinstance(step, RecvBlock) and place == combining[-1] else step
        for place, step in enumerate(steps)
    )
