"""Direct: every block straight to its owner, and back from there to all.

Two steps of N-1 messages each, however many ranks there are, so a float is rounded twice: on its way to the owner, and
as a part of the sum. The ring moves as many bytes. In step s every rank sends to the one s places on, so that no rank
is sent to by all at once; the owner combines in the order of the steps.
"""

from __future__ import annotations

from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step, mirrored, to_root


def reduce_scatter(rank: int, size: int) -> Schedule:
    """Brings block r to rank r."""
    steps: list[Step] = []
    for step in range(1, size):
        to = (rank + step) % size
        steps.append(SendBlock(to, to))
        steps.append(RecvBlock((rank - step) % size, rank, combine=True, last=step == size - 1))
    return tuple(steps)


def allgather(rank: int, size: int) -> Schedule:
    """Every rank sends its block to all others."""
    return mirrored(reduce_scatter(rank, size))


def allreduce(rank: int, size: int) -> Schedule:
    return reduce_scatter(rank, size) + allgather(rank, size)


def reduce(rank: int, size: int, root: int) -> Schedule:
    """The bits of `allreduce`, for the root alone."""
    return reduce_scatter(rank, size) + to_root(rank, size, root)


def gather(rank: int, size: int, root: int) -> Schedule:
    """Every rank sends its block to the root."""
    return to_root(rank, size, root)


def scatter(rank: int, size: int, root: int) -> Schedule:
    """The root sends every rank its block."""
    return mirrored(gather(rank, size, root))


def alltoall(rank: int, size: int) -> Schedule:
    """Block r goes to rank r, and block N+r comes from there."""
    steps: list[Step] = []
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        steps += [SendBlock(to, to), RecvBlock(source, size + source)]
    return tuple(steps)


def bcast(rank: int, size: int, root: int) -> Schedule:
    """The root sends the one block there is to each of the others."""
    if rank != root:
        return (RecvBlock(root, 0),)
    return tuple(SendBlock((root + step) % size, 0) for step in range(1, size))
