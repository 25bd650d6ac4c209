"""Worker-aggregator (`wa`): all send everything to one rank, which combines it and sends the result to all.

What INCEPTIONN measures itself against (its Fig. 2): the aggregator receives, and sends, everything N-1 times, so
the time grows with the ranks (section VIII-D). The rank that aggregates contributes like the others here; the paper's
is another machine. A float is rounded twice.
"""

from __future__ import annotations

from softnic.collectives.schedule import direct
from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step

AGGREGATOR = 0
"""Where no root is given."""


def reduce(rank: int, size: int, root: int, blocks: int = 1) -> Schedule:
    """The aggregator combines what comes in the order of the ranks behind it."""
    if rank != root:
        return tuple(SendBlock(root, block) for block in range(blocks))
    return tuple(
        RecvBlock((root + step) % size, block, combine=True, last=step == size - 1)
        for step in range(1, size)
        for block in range(blocks)
    )


def bcast(rank: int, size: int, root: int) -> Schedule:
    return direct.bcast(rank, size, root)


def allreduce(rank: int, size: int) -> Schedule:
    return reduce(rank, size, AGGREGATOR) + bcast(rank, size, AGGREGATOR)


def reduce_scatter(rank: int, size: int) -> Schedule:
    """The aggregator sends block r back to rank r."""
    steps: list[Step] = []
    if rank == AGGREGATOR:
        steps += [SendBlock(owner, owner) for owner in range(size) if owner != rank]
    else:
        steps.append(RecvBlock(AGGREGATOR, rank))
    return (*reduce(rank, size, AGGREGATOR, blocks=size), *steps) if size > 1 else ()


def allgather(rank: int, size: int) -> Schedule:
    """The aggregator receives each rank's block, and sends every rank the others'."""
    if rank == AGGREGATOR:
        receives: list[Step] = [RecvBlock(peer, peer) for peer in range(size) if peer != rank]
        return tuple(receives) + tuple(
            SendBlock(peer, block) for peer in range(size) if peer != rank for block in range(size) if block != peer
        )
    return (SendBlock(AGGREGATOR, rank), *(RecvBlock(AGGREGATOR, block) for block in range(size) if block != rank))
