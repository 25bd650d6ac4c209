"""Schedules: who sends which block to whom, in what order. Pure functions of rank and size.

The buffer of a collective is cut into blocks. A schedule is one rank's list of steps; in a step the rank sends a
block and receives another, at the same time. The runner (collective.py) keeps these rules, and the tests hold every
schedule against them:

- a block that came in an earlier step is sent on as fast as it comes in (and was combined), not only when whole;
- what two ranks send each other arrives in the order of their steps;
- empty blocks are neither sent nor received.

The rings are Algorithm 1 of INCEPTIONN (Li et al., MICRO 2018), for any number of ranks. Its lines 16 and 17 name
blocks (i-s+1) and (i-s+2) for steps s = N..2N-2; by its own text and figure ("step 4: worker[3] sends blk[0] to
worker[0]") it is (i-s) and (i-s+1) that move, as in the first phase, so that one rule serves both here.
"""

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
    """What comes is combined with this rank's own contribution; otherwise it takes the block's place."""
    last: bool = False
    """With this the block holds the contributions of all ranks: from here on this rank owns it."""


class Step(NamedTuple):
    send: Send | None = None
    receive: Receive | None = None


Schedule = tuple[Step, ...]


def partition(count: int, size: int) -> tuple[slice, ...]:
    """Cuts `count` elements into `size` blocks that differ by one element at most, the longer ones first."""
    short, longer = divmod(count, size)
    return offsets([short + (index < longer) for index in range(size)])


def offsets(counts: Sequence[int]) -> tuple[slice, ...]:
    """The blocks of the given lengths, one behind the other."""
    ends = list(accumulate(counts))
    return tuple(slice(end - count, end) for count, end in zip(counts, ends, strict=True))


def ring_reduce_scatter(rank: int, size: int, owned: int) -> Schedule:
    """N-1 steps, after which this rank owns block `owned` of N, for rank 0: the others follow by one block a rank.

    Algorithm 1, lines 9 to 13, is the case that rank i ends with block (i+1) mod N: `owned` = 1.
    """
    first = rank + owned - 1
    return tuple(
        Step(
            Send((rank + 1) % size, (first - step + 1) % size),
            Receive((rank - 1) % size, (first - step) % size, combine=True, last=step == size - 1),
        )
        for step in range(1, size)
    )


def ring_allgather(rank: int, size: int, owned: int) -> Schedule:
    """N-1 steps that bring every block to every rank, if rank i starts with block (i + `owned`) mod N.

    Algorithm 1, lines 14 to 18 (see above).
    """
    first = rank + owned
    return tuple(
        Step(
            Send((rank + 1) % size, (first - step + 1) % size),
            Receive((rank - 1) % size, (first - step) % size),
        )
        for step in range(1, size)
    )


def ring_allreduce(rank: int, size: int) -> Schedule:
    """Algorithm 1, lines 9 to 18: 2(N-1) steps, each of one block."""
    return ring_reduce_scatter(rank, size, owned=1) + ring_allgather(rank, size, owned=1)


def ring_reduce(rank: int, size: int, root: int) -> Schedule:
    """The first phase of Algorithm 1; then every rank sends the block that it owns to the root.

    Partial sums are those of `ring_allreduce`, and so are the bits of the result.
    """
    reduce_scatter = ring_reduce_scatter(rank, size, owned=1)
    if rank != root:
        return (*reduce_scatter, Step(send=Send(root, (rank + 1) % size)))
    others = (peer for peer in range(size) if peer != root)
    return reduce_scatter + tuple(Step(receive=Receive(peer, (peer + 1) % size)) for peer in others)


def chain_broadcast(rank: int, size: int, root: int) -> Schedule:
    """One block from the root along the ring. A rank sends on what it has while the rest comes in."""
    place = (rank - root) % size
    receive = Step(receive=Receive((rank - 1) % size, 0))
    send = Step(send=Send((rank + 1) % size, 0))
    return ((receive,) if place > 0 else ()) + ((send,) if place < size - 1 else ())
