"""Trees: as many steps as the number of ranks has digits, so few messages one after the other, and the fewest at all.

Of a whole buffer as one block, as a reduction to one rank and a broadcast from there: a tree in which a rank has up to
RADIX - 1 children at each level (k-nomial). Its inner ranks move the whole buffer several times, so it is for buffers
whose bytes hardly count. Where every rank has a block of its own, ranks halve the blocks that they share with others
instead (recursive halving), and move no more than a ring does. Both are for any number of ranks, and round a float
about once a level on its way to the sum, and once with it.
"""

from __future__ import annotations

from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step, mirrored, with_last

RADIX = 4
"""What a level costs is mostly that ranks wake each other one after the other, so few levels of several children are
quicker than a binomial tree (2): measured (docs/algorithms.md: with 4 ranks this is `wa`)."""


def reduce(rank: int, size: int, root: int) -> Schedule:
    """A tree at `root`. Ranks are counted from there in base RADIX: who has zeros up to a digit and another there sends
    to who has a zero there too."""
    place = (rank - root) % size
    steps: list[Step] = []
    level = 1
    while level < size:
        if digit := place // level % RADIX:
            steps.append(SendBlock((rank - digit * level) % size, 0))
            break
        children = range(place + level, min(place + RADIX * level, size), level)
        steps += [RecvBlock((child + root) % size, 0, combine=True) for child in children]
        level *= RADIX
    return with_last(steps, 0) if rank == root else tuple(steps)


def bcast(rank: int, size: int, root: int) -> Schedule:
    return mirrored(reduce(rank, size, root))


def allreduce(rank: int, size: int) -> Schedule:
    """To rank 0 and back."""
    return reduce(rank, size, 0) + bcast(rank, size, 0)


def reduce_scatter(rank: int, size: int) -> Schedule:
    """Brings block r to rank r. The ranks form two halves; each rank sends what the other half is to own to a partner
    there, and receives what its own half is to own; then each half does the same by itself. If the first half is one
    rank longer, the last one of it sends to the second half's last one, and receives nothing."""
    steps: list[Step] = []
    low, high = 0, size
    while high - low > 1:
        middle = (low + high + 1) // 2
        first, second = range(low, middle), range(middle, high)
        mine, others = (first, second) if rank < middle else (second, first)
        index = rank - mine.start
        partner = others[min(index, len(others) - 1)]
        steps += [SendBlock(partner, block) for block in others]
        if index < len(others):
            steps += [RecvBlock(partner, block, combine=True) for block in mine]
        if rank == high - 1 and len(first) > len(second):
            steps += [RecvBlock(middle - 1, block, combine=True) for block in mine]
        low, high = mine.start, mine.stop
    return with_last(steps, rank)


def allgather(rank: int, size: int) -> Schedule:
    """Recursive doubling: what each half has by then goes to the other."""
    return mirrored(reduce_scatter(rank, size))
