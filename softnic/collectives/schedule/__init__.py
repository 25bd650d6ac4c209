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

An algorithm is written by its name; `hierarchical:4` says, as a codec's parameter does, how many ranks make a group.
One module holds each: what it does, and what it is good for.

No schedule can get stuck, however little its executor keeps of what was sent: the messages of all ranks have a common
order, and each waits only for ones before it. For the same reason the buffers of a call may be the same ones: what is
overwritten was received by whoever needed it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from softnic.collectives.schedule import aggregator, direct, hierarchical, ring, tree
from softnic.collectives.schedule.choice import choose
from softnic.collectives.schedule.steps import Receive, Schedule, Send, Step, mirrored, offsets, partition

__all__ = [
    "ALGORITHMS", "COLLECTIVES", "Receive", "Schedule", "Send", "Step", "blocks", "choose", "mirrored", "offsets",
    "parse", "partition", "plan",
]  # fmt: skip

COLLECTIVES = ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast")

ALGORITHMS = ("ring", "direct", "tree", "hierarchical", "wa")

UNIT = 16
"""Elements. So many floats end where a segment of a tagged stream may (FORMAT.md), so a block needs no padding."""

_WHOLE = {("allreduce", "tree"), ("reduce", "tree"), ("allreduce", "wa"), ("reduce", "wa")}
"""Those that move the buffer as one block. So do all `bcast`; all others cut it into one block a rank."""
_MODULES = {"ring": ring, "direct": direct, "tree": tree, "hierarchical": hierarchical, "wa": aggregator}
_ROOTED = ("reduce", "bcast")


@lru_cache(maxsize=256)
def plan(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule:
    """The steps of rank `rank` of `size`. `root` counts for `reduce` and `bcast` (-1: none); in `reduce_scatter`
    and `allgather` block r is rank r's. Raises ValueError where there is no such algorithm."""
    _check(collective)
    name, parameter = parse(algorithm)
    make: Callable[..., Schedule] = getattr(_MODULES[name], collective)
    options = {"group": parameter} if parameter else {}
    return make(rank, size, max(root, 0), **options) if collective in _ROOTED else make(rank, size, **options)


def blocks(collective: str, algorithm: str, count: int, size: int) -> tuple[slice, ...]:
    """Where the blocks lie in the buffer, of `count` elements, that a plan is for. For `reduce_scatter` the caller may
    cut otherwise, into as many. Blocks that are nobody's begin at multiples of `UNIT`."""
    _check(collective)
    name, _ = parse(algorithm)
    unit = UNIT if collective in ("allreduce", "reduce") else 1
    parts = partition(-(-count // unit), 1 if collective == "bcast" or (collective, name) in _WHOLE else size)
    return tuple(slice(min(count, unit * part.start), min(count, unit * part.stop)) for part in parts)


def parse(algorithm: str) -> tuple[str, int]:
    """The name of an algorithm, and the size of its groups, 0 if it says none. Raises ValueError."""
    name, colon, parameter = algorithm.partition(":")
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}: there are {', '.join(ALGORITHMS)}")
    if not colon:
        return name, 0
    if name != "hierarchical" or not parameter.isdecimal() or not 0 < int(parameter) < 1 << 31:
        raise ValueError(
            f"algorithm is {algorithm!r}: only hierarchical takes a number, 1 or more, as in hierarchical:4"
        )
    return name, int(parameter)


def _check(collective: str) -> None:
    if collective not in COLLECTIVES:
        raise ValueError(f"there is no collective {collective!r}")
