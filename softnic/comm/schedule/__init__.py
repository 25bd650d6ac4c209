"""Schedules: who sends which block to whom, in what order. Pure functions of rank and size.

The buffer of a collective is cut into blocks (`blocks`), and a schedule (`plan`) is one rank's list of steps, each the
sending or the receiving of a block. Who executes schedules, a process (collective.py) or its NIC (executor/), keeps
these rules, and the tests hold every schedule against them:

- Messages of one rank to another travel in the order of their steps, one behind the other, and are received in it.
  Messages of different ranks wait for each other only where one of the next two rules says so.
- A rank starts with its own contribution as every block. `Receive(combine=True)` makes the block `received op what is
  there`; where several come for one block, each is combined chunk by chunk behind the one before, so that every run
  adds in the same order and gives the same bits. Other receives take the block's place.
- A `Send` sends what the rank holds of the block after the steps before it, as it gets ready: a block that is still
  coming in is sent on behind that.
- `last` says that the block holds all contributions now. What an operation does then (the division of AVG), and the
  rounding by the codec, is done chunk by chunk before it is sent on: so the owner has the bits that the others get.
- Empty blocks are neither sent nor received.

An algorithm is written by its name. One module holds each: what it does, and what it is good for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from softnic.comm.schedule import ring
from softnic.comm.schedule.choice import choose
from softnic.comm.schedule.steps import Receive, Schedule, Send, Step, mirrored, offsets, partition

__all__ = [
    "ALGORITHMS", "COLLECTIVES", "Receive", "Schedule", "Send", "Step", "blocks", "choose", "mirrored", "offsets",
    "partition", "plan",
]  # fmt: skip

COLLECTIVES = ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast")

_Plan = Callable[[int, int, int], Schedule]
_PLANS: dict[tuple[str, str], _Plan] = {
    ("allreduce", "ring"): lambda rank, size, _root: ring.allreduce(rank, size),
    ("reduce", "ring"): ring.reduce,
    ("reduce_scatter", "ring"): lambda rank, size, _root: ring.reduce_scatter(rank, size),
    ("allgather", "ring"): lambda rank, size, _root: ring.allgather(rank, size),
    ("bcast", "ring"): ring.bcast,
}
ALGORITHMS = tuple(dict.fromkeys(algorithm for _, algorithm in _PLANS))


@lru_cache(maxsize=256)
def plan(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule:
    """The steps of rank `rank` of `size`. `root` counts for `reduce` and `bcast` (-1: none); in `reduce_scatter`
    and `allgather` block r is rank r's. Raises ValueError where there is no such algorithm."""
    return _of(collective, algorithm)(rank, size, max(root, 0))


def blocks(collective: str, algorithm: str, count: int, size: int) -> tuple[slice, ...]:
    """Where the blocks lie in the buffer, of `count` elements, that a plan is for. For `reduce_scatter` the caller may
    cut otherwise, into as many."""
    _of(collective, algorithm)
    return partition(count, 1 if collective == "bcast" else size)


def _of(collective: str, algorithm: str) -> _Plan:
    try:
        return _PLANS[collective, algorithm]
    except KeyError:
        raise ValueError(f"algorithm is {algorithm!r}: there is {' or '.join(map(repr, ALGORITHMS))}") from None
