"""Hierarchical: rings within groups, and rings of groups (INCEPTIONN's Fig. 1c: groups of groups).

The groups are equal where N has a divisor near sqrt(N), near equal elsewhere, and about sqrt(N) of about sqrt(N) ranks
unless a size is given. So a float is rounded some 2 sqrt(N) times, not N as in one ring, and its way is as much
shorter. The figure has one member of each group speak for it. Here every member does so for its share of the blocks:
all together move no more than one ring does, and no rank sends more than one block more than there (none, where groups
are equal).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step, mirrored, partition, to_root


def groups(size: int, group: int = 0) -> list[range]:
    """Near-equal groups of `group` ranks at most; 0: as many groups as each has members, about."""
    count = -(-size // group) if group else _balanced(size)
    return [range(part.start, part.stop) for part in partition(size, count)]


def _balanced(size: int) -> int:
    """The number of groups: the divisor of `size` nearest to its root, if one lies between half and twice of that,
    because with unequal groups some ranks send a block more than others; else the root, rounded."""
    off = {count: max(count**2, size) / min(count**2, size) for count in range(1, size + 1) if size % count == 0}
    nearest = min(off, key=lambda count: off[count])
    return nearest if off[nearest] <= 4 else round(size**0.5)


def reduce_scatter(rank: int, size: int, group: int = 0) -> Schedule:
    """Brings block r to rank r.

    1. In each group a block goes round, from the one behind the group's speaker for it to the speaker: in the owner's
       group the owner, elsewhere each member for as many blocks as the others.
    2. It goes round the speakers, from the one of the group behind the owner's to the owner.
    """
    parts = groups(size, group)
    own = next(part for part in parts if rank in part)
    steps: list[tuple[int, int, int, Step]] = []
    """With phase, step of the phase, and block: an order that all ranks share."""
    for block in range(size):
        speakers = [block if block in part else part[block % len(part)] for part in parts]
        speaker = speakers[parts.index(own)]
        steps += ((1, at, block, step) for at, step in _round(rank, own, speaker, block, last=len(parts) == 1))
        if rank == speaker:
            steps += ((2, at, block, step) for at, step in _round(rank, speakers, block, block, last=True))
    return tuple(step for *_, step in sorted(steps, key=lambda each: each[:3]))


def _round(rank: int, members: Sequence[int], end: int, block: int, *, last: bool) -> Iterator[tuple[int, Step]]:
    """What a rank has to do that a block goes round, from the one behind `end` to `end`; with the step's number."""
    size, index = len(members), members.index(rank)
    place = (index - members.index(end)) % size or size
    if place > 1:
        yield place - 1, RecvBlock(members[index - 1], block, combine=True, last=last and rank == end)
    if place < size:
        yield place, SendBlock(members[(index + 1) % size], block)


def allgather(rank: int, size: int, group: int = 0) -> Schedule:
    """The same way back: from speaker to speaker, then round each group."""
    return mirrored(reduce_scatter(rank, size, group))


def allreduce(rank: int, size: int, group: int = 0) -> Schedule:
    return reduce_scatter(rank, size, group) + allgather(rank, size, group)


def reduce(rank: int, size: int, root: int, group: int = 0) -> Schedule:
    """The bits of `allreduce`, for the root alone."""
    return reduce_scatter(rank, size, group) + to_root(rank, size, root)


def bcast(rank: int, size: int, root: int, group: int = 0) -> Schedule:
    """One block along a chain of the groups' first ones, counted from the root, and from each along its group."""
    part = next(part for part in groups(size, group) if (rank - root) % size in part)
    place = (rank - root) % size
    steps: list[Step] = []
    if place > part.start:
        steps.append(RecvBlock((rank - 1) % size, 0))
    elif part.start > 0:
        before = next(other for other in groups(size, group) if other.stop == part.start)
        steps.append(RecvBlock((before.start + root) % size, 0))
    if place == part.start and part.stop < size:
        steps.append(SendBlock((part.stop + root) % size, 0))
    if place + 1 < part.stop:
        steps.append(SendBlock((rank + 1) % size, 0))
    return tuple(steps)
