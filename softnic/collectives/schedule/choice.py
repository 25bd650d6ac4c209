"""Which algorithm a call runs that names none: a pure function of what all ranks agree on, so that all choose alike.

What counts, by size: short buffers cost by the message and by the step, and a tree has the fewest messages. Longer ones
cost by the byte, of which ring, direct and hierarchical move the same, the least there is; and still by the step, of
which direct has two. But in direct all send to one rank at once. While about the whole buffer fits the queues on the
way, in NICs and switches, that does no harm. Beyond, ranks had better be sent to by one other at a time, as in rings,
whose 2(N-1) steps are few beside the bytes then; groups of rings keep them so where the ranks are many. And direct
connects all ranks with each other: of many, short blocks that are gathered or scattered go by a tree as well.

And by codec: one whose error is relative to what it rounds, partial sums that is, gets worse along a ring, and with
every level of a tree (docs/algorithms.md has figures). `bounded` does not. With such a codec nothing is rounded but
contributions and the whole sum, whatever the size and the ranks: short buffers go to one rank and back, in as few
messages as a tree's, unless that rank would receive too much.

And by what ranks have found out about their links (paths.py): between sites, blocks move once, by `sites`; but for
codecs with a relative error, because speakers round sums of their sites. Where rates differ, blocks are as the rates,
by `direct`. And while a link carries a whole block in the time that the path delays it, rings would wait.
"""

from __future__ import annotations

from softnic.collectives.schedule.paths import EVEN, PathPlan
from softnic.collectives.schedule.tree import RADIX

TREE_BYTES = 1 << 16
"""Of a buffer: shorter ones go by a tree. Measured, with 4 ranks (docs/algorithms.md)."""
DIRECT_BYTES = 4 << 20
"""The windows of TCP. With longer buffers, senders to the same rank overflow the queue in front of it."""
RING_RANKS = 16
"""More ranks than these do not form a single ring."""
RELATIVE = {"inceptionn", "bfp", "truncate", "rht", "mx"}
"""Codecs whose error grows with the magnitude of what they round: partial sums are never rounded."""
GATHERED_BYTES = 1 << 20
"""Limit of what a single rank receives when all ranks send it their short buffers, before compression."""


def choose(collective: str, nbytes: int, size: int, codec: str = "", paths: PathPlan = EVEN) -> str:
    """For a buffer of `nbytes` at `size` ranks, all blocks together, and a codec (empty: exact)."""
    short = nbytes < TREE_BYTES
    relative = not RELATIVE.isdisjoint(codec.split(":"))
    if not short and paths.sites and not relative:
        return f"sites:{paths.sites}"
    if collective == "bcast":
        return "tree" if short else "ring"  # a chain: each rank sends the buffer once
    if short and collective in ("allreduce", "reduce"):
        if not relative or size <= RADIX:  # then the tree has one level, and no partial sums either
            return "tree"
        return "wa" if (size - 1) * nbytes <= GATHERED_BYTES else "direct"
    if short and size > RING_RANKS and collective in ("reduce_scatter", "allgather") and not relative:
        return "tree"
    if nbytes <= max(DIRECT_BYTES, size * paths.delay_bytes) or relative:
        return "direct"
    if paths.shares and collective in ("allreduce", "reduce"):
        return "direct"
    return "ring" if size <= RING_RANKS else "hierarchical"
