"""Schedules: which rank sends which block to which other one, in what order. Pure functions of rank and size.

The buffer of a collective is cut into blocks (`blocks`). A schedule (`plan`) is one rank's list of steps, each of which
sends or receives one block. The engine follows these rules, and the tests check every schedule against them:

- Messages of one rank to another are sent and received in the order of their steps. Messages of different ranks wait
  for each other only where one of the next two rules requires it.
- A rank starts with its own contribution as every block. `RecvBlock(combine=True)` combines the received block with it.
  Several of these for one block are combined one after the other, chunk by chunk, so that every run adds in the same
  order and gives the same bits. Other receives replace the block.
- A `SendBlock` sends the rank's block after the steps before it, as it becomes ready: a block is forwarded while the
  rest of it is being received.
- `last` marks the receive after which the block contains all contributions. What an operation does then (the division
  of AVG), and the rounding by the codec, is done chunk by chunk before the block is sent on: the owner of a block has
  the same bits as the others.
- Empty blocks are neither sent nor received.

An algorithm is written by its name; `hierarchical:4` gives the number of ranks in a group, `sites:0-1/2-4` the ranks
of each site. There is one module for each.

No schedule can deadlock, however little is buffered between ranks: the messages of all ranks have a common order, and
each waits only for earlier ones. For the same reason a call may be in place: memory that is overwritten was received by
all ranks that need it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from softnic.collectives.schedule import aggregator, direct, hierarchical, ring, sites, tree
from softnic.collectives.schedule.choice import choose
from softnic.collectives.schedule.paths import EVEN, PathPlan
from softnic.collectives.schedule.steps import (
    UNIT,
    RecvBlock,
    Schedule,
    SendBlock,
    Step,
    mirrored,
    offsets,
    partition,
)

__all__ = [
    "ALGORITHMS", "COLLECTIVES", "EVEN", "EXCHANGES", "SCANS", "UNIT", "PathPlan", "RecvBlock", "Schedule", "SendBlock",
    "Step", "blocks", "choose", "mirrored", "offsets", "parse", "partition", "peers", "plan",
]  # fmt: skip

COLLECTIVES = ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast")
"""Those of every algorithm."""
EXCHANGES = ("gather", "scatter", "alltoall")
"""Blocks from one rank for another, by `direct` alone."""
SCANS = ("scan", "exscan")
"""By `ring` alone: a chain in the order of the ranks."""

ALGORITHMS = ("ring", "direct", "tree", "hierarchical", "wa")
"""Those that need no parameter. `sites` does."""

_WHOLE = {("allreduce", "tree"), ("reduce", "tree"), ("allreduce", "wa"), ("reduce", "wa")}
"""These move the buffer as one block, as every `bcast` does; all others cut it into one block a rank."""
_MODULES = {
    "ring": ring,
    "direct": direct,
    "tree": tree,
    "hierarchical": hierarchical,
    "wa": aggregator,
    "sites": sites,
}
_PARAMETERS = {"hierarchical": "group", "sites": "sites"}
_ROOTED = ("reduce", "bcast", "gather", "scatter")
_ONLY = dict.fromkeys(EXCHANGES, "direct") | dict.fromkeys(SCANS, "ring")
_FIXED = {"bcast": 1, "scan": 1, "exscan": 2}
"""Blocks of a collective, whatever the algorithm and the ranks."""


@lru_cache(maxsize=256)
def plan(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule:
    """Return the steps of rank `rank` of `size`.

    `root` is used by `reduce`, `bcast`, `gather` and `scatter` (-1: none). In `reduce_scatter`, `allgather`, `gather`
    and `scatter`, block r is rank r's. Raises ValueError if there is no such algorithm.
    """
    name, parameter = _checked(collective, algorithm)
    make: Callable[..., Schedule] = getattr(_MODULES[name], collective)
    options = {_PARAMETERS[name]: parameter} if parameter else {}
    return make(rank, size, max(root, 0), **options) if collective in _ROOTED else make(rank, size, **options)


@lru_cache(256)
def peers(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> frozenset[int]:
    """Return the ranks that a rank exchanges blocks with."""
    return frozenset(step.peer for step in plan(collective, algorithm, rank, size, root))


def blocks(collective: str, algorithm: str, count: int, size: int, paths: PathPlan = EVEN) -> tuple[slice, ...]:
    """Return the blocks of a buffer of `count` elements, as a plan needs them.

    Where each rank has a block of its own the caller may use other blocks, of the same number. Blocks that are not a
    rank's own begin at multiples of `UNIT`; where `paths` has shares, `direct` and `sites` cut by these.
    """
    name, _ = _checked(collective, algorithm)
    if paths.shares and collective in ("allreduce", "reduce") and name in ("direct", "sites"):
        return offsets(paths.blocks(count))
    unit = UNIT if collective in ("allreduce", "reduce") else 1
    number = 2 * size if collective == "alltoall" else _FIXED.get(collective, size)
    parts = partition(-(-count // unit), 1 if (collective, name) in _WHOLE else number)
    return tuple(slice(min(count, unit * part.start), min(count, unit * part.stop)) for part in parts)


def parse(algorithm: str) -> tuple[str, int | str]:
    """Return the name of an algorithm, and its parameter: the size of groups, or the sites; 0 if it has none.

    Raises ValueError.
    """
    name, colon, parameter = algorithm.partition(":")
    if name == "sites" and parameter:
        return name, parameter
    if name not in ALGORITHMS:
        there_are = f"there are {', '.join(ALGORITHMS)}, and sites with the ranks of each site, as in sites:0-1/2-4"
        raise ValueError(f"algorithm is {algorithm!r}: {there_are}")
    if not colon:
        return name, 0
    if name != "hierarchical" or not parameter.isdecimal() or not 0 < int(parameter) < 1 << 31:
        raise ValueError(
            f"algorithm is {algorithm!r}: only hierarchical takes a number, 1 or more, as in hierarchical:4"
        )
    return name, int(parameter)


def _checked(collective: str, algorithm: str) -> tuple[str, int | str]:
    """Return what `parse` does. Raises ValueError if the collective has no such algorithm."""
    if collective not in COLLECTIVES and collective not in _ONLY:
        raise ValueError(f"there is no collective {collective!r}")
    name, parameter = parse(algorithm)
    only = _ONLY.get(collective, name)
    if name != only:
        raise ValueError(f"algorithm is {algorithm!r}: {collective} has {only} alone")
    return name, parameter
