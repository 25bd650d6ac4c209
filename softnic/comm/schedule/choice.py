"""Which algorithm a call runs that names none: a pure function of what all ranks agree on, so that all choose alike.

What counts, by size: short buffers cost by the message, and a tree has the fewest. Longer ones cost by the byte, of
which ring, direct and hierarchical move the same, the least there is; and by the step, of which direct has two. But in
direct all send to one rank at once. While about the whole buffer fits the queues on the way, in NICs and switches, that
does no harm; where it does not, ranks had better be sent to by one other at a time, as in rings, whose 2(N-1) steps
are few beside the bytes then. Groups of rings keep them so where the ranks are many.

And by codec: one whose error is relative to what it rounds, partial sums that is, gets worse along a ring
(docs/algorithms.md has figures). `bounded` does not.
"""

from __future__ import annotations

TREE_BYTES = 1 << 16
"""Of a buffer: shorter ones go by a tree. Measured (docs/algorithms.md)."""
DIRECT_BYTES = 4 << 20
"""Longer ones do not fit the queues before a rank: what TCP sends to it at once (the windows of stack/tcp, 4 MiB)."""
RING_RANKS = 16
"""More ranks than these do not form a single ring."""
RELATIVE_RANKS = 8
"""More ranks than these do not form rings with a codec of RELATIVE."""
RELATIVE = {"inceptionn", "bfp", "truncate"}
"""Codecs whose error grows with the magnitude of what they round."""


def choose(collective: str, nbytes: int, size: int, codec: str = "") -> str:
    """For a buffer of `nbytes` at `size` ranks, all blocks together, and a codec (empty: exact)."""
    short = nbytes < TREE_BYTES
    if collective == "bcast":
        return "tree" if short else "ring"  # a chain: each rank sends the buffer once
    if short and collective in ("allreduce", "reduce"):
        return "tree"
    relative = size > RELATIVE_RANKS and not RELATIVE.isdisjoint(codec.split(":"))
    if nbytes <= DIRECT_BYTES or relative:
        return "direct"
    return "ring" if size <= RING_RANKS else "hierarchical"
