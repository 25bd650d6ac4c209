"""Rings: every rank sends to the next one only. Algorithm 1 of INCEPTIONN (Li et al., MICRO 2018), for any number.

Its lines 16 and 17 name blocks (i-s+1) and (i-s+2) for steps s = N..2N-2; by its own text and figure ("step 4:
worker[3] sends blk[0] to worker[0]") it is (i-s) and (i-s+1) that move, as in the first phase, so that one rule serves
both here.

A block's sum is rounded on every hop of its way round: N-1 times, and once when it is whole. Nothing moves fewer
bytes, and no algorithm takes more steps.
"""

from __future__ import annotations

from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step


def reduce_scatter(rank: int, size: int, owned: int = 0) -> Schedule:
    """N-1 steps, after which this rank owns block `owned` of N, for rank 0: the others follow by one block a rank.

    Algorithm 1, lines 9 to 13, is the case that rank i ends with block (i+1) mod N: `owned` = 1.
    """
    first = rank + owned - 1
    steps: list[Step] = []
    for step in range(1, size):
        steps.append(SendBlock((rank + 1) % size, (first - step + 1) % size))
        steps.append(RecvBlock((rank - 1) % size, (first - step) % size, combine=True, last=step == size - 1))
    return tuple(steps)


def allgather(rank: int, size: int, owned: int = 0) -> Schedule:
    """N-1 steps that bring every block to every rank, if rank i starts with block (i + `owned`) mod N.

    Algorithm 1, lines 14 to 18 (see above).
    """
    first = rank + owned
    steps: list[Step] = []
    for step in range(1, size):
        steps.append(SendBlock((rank + 1) % size, (first - step + 1) % size))
        steps.append(RecvBlock((rank - 1) % size, (first - step) % size))
    return tuple(steps)


def allreduce(rank: int, size: int) -> Schedule:
    """Algorithm 1, lines 9 to 18: 2(N-1) steps, each of one block."""
    return reduce_scatter(rank, size, owned=1) + allgather(rank, size, owned=1)


def reduce(rank: int, size: int, root: int) -> Schedule:
    """The first phase of Algorithm 1; then every rank sends the block that it owns to the root.

    Partial sums are those of `allreduce`, and so are the bits of the result.
    """
    first = reduce_scatter(rank, size, owned=1)
    if rank != root:
        return (*first, SendBlock(root, (rank + 1) % size))
    return first + tuple(RecvBlock(peer, (peer + 1) % size) for peer in range(size) if peer != root)


def bcast(rank: int, size: int, root: int) -> Schedule:
    """One block from the root along the ring. A rank sends on what it has while the rest comes in."""
    place = (rank - root) % size
    receive = RecvBlock((rank - 1) % size, 0)
    send = SendBlock((rank + 1) % size, 0)
    return ((receive,) if place > 0 else ()) + ((send,) if place < size - 1 else ())


def scan(rank: int, size: int) -> Schedule:
    """A chain: a rank combines what comes from the one before it with its block, and sends that on."""
    receive = RecvBlock(rank - 1, 0, combine=True)
    send = SendBlock(rank + 1, 0)
    return ((receive,) if rank > 0 else ()) + ((send,) if rank < size - 1 else ())


def exscan(rank: int, size: int) -> Schedule:
    """The chain of `scan`. A rank sends its sum twice: it is combined with block 0, and becomes block 1."""
    last = size - 1
    steps: list[Step] = []
    if 0 < rank < last:
        steps.append(RecvBlock(rank - 1, 0, combine=True))
    if rank > 0:
        steps.append(RecvBlock(rank - 1, 1))
    if rank < last:
        steps += [SendBlock(rank + 1, 0)] * (2 if rank + 1 < last else 1)
    return tuple(steps)
