"""The collective calls on buffers that combine them, or have the same result on all ranks: exact and compressed.

A compressed call differs from the exact one in its codec alone. It takes elements of any type: float32 travels
compressed, other floats as float32 or as they are, and everything else exactly (softnic/collectives/elements.py). With
one rank nothing crosses a network, and nothing is rounded. All ranks make their calls in the same order. NICs combine
what they have an operation for; the others are combined by the processes (folding.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softnic.mpi.arguments import buffers, collective_args
from softnic.mpi.base import Base
from softnic.mpi.collectives.calls import CallContext, collective_calls, persistent_call
from softnic.mpi.collectives.parts import BlockArgs, CollectiveArgs
from softnic.mpi.operators import MAX, SUM, Op


def _barrier(context: CallContext) -> CollectiveArgs | BlockArgs:
    """Return when every rank has called it."""
    token = np.zeros(context.comm.size, np.uint8)
    return collective_args.allreduce(*context.ranks, buffers.IN_PLACE, token, MAX)


def _allreduce(context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> CollectiveArgs | BlockArgs:
    """Combine the buffers of all ranks element by element; every rank gets the result."""
    return context.allreduce(sendbuf, recvbuf, op, context.exact)


def _allreduce_comp(
    context: CallContext,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs | BlockArgs:
    """Allreduce of which everything that crosses the network is compressed.

    Parameters
    ----------
    codec
        As in "bounded:10"; None: the one of this rank's NIC for tagged streams, the same on all ranks. "either":
        bounded:10 for data of mostly zeros, rht:4 for other data, as all ranks agree before.
    algorithm
        ring, direct, tree, hierarchical or wa; None: the best one for the size, the ranks and the paths between them.
    """
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    return context.allreduce(sendbuf, recvbuf, op, options)


def _reduce(
    context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, root: int = 0
) -> CollectiveArgs | BlockArgs:
    """Combine the buffers of all ranks element by element; `root` gets the result. `recvbuf` of others is ignored."""
    return collective_args.reduce(*context.ranks, sendbuf, recvbuf, op, root, context.exact)


def _reduce_comp(
    context: CallContext,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    root: int = 0,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs | BlockArgs:
    """Reduce, compressed as in Allreduce_comp.

    By ring, direct and hierarchical, the root gets the same bits as from Allreduce_comp by the same algorithm.
    """
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    return collective_args.reduce(*context.ranks, sendbuf, recvbuf, op, root, options)


def _reduce_scatter(
    context: CallContext,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: Op | None = SUM,
) -> CollectiveArgs | BlockArgs:
    """Combine the buffers of all ranks; rank r gets the r-th block of the result, of recvcounts[r] elements.

    Without `recvcounts`, blocks are as long as the receive buffers if these add up to the input; otherwise, and in
    place, they are near-equal, the longer ones first. In place, `recvbuf` holds the whole input, and its start the
    block afterwards; the rest of it is unchanged.
    """
    counts = context.counts(sendbuf, recvbuf, recvcounts)
    return collective_args.reduce_scatter(*context.ranks, sendbuf, recvbuf, counts, op, context.exact)


def _reduce_scatter_comp(
    context: CallContext,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs | BlockArgs:
    """Reduce_scatter, compressed as in Allreduce_comp. A rank's block is not rounded again after its last addition."""
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    counts = context.counts(sendbuf, recvbuf, recvcounts)
    return collective_args.reduce_scatter(*context.ranks, sendbuf, recvbuf, counts, op, options)


def _reduce_scatter_block(
    context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM
) -> CollectiveArgs | BlockArgs:
    """Reduce_scatter with equal blocks. A count in the input's list, [buffer, count, type], is that of a block."""
    return collective_args.reduce_scatter_block(*context.ranks, sendbuf, recvbuf, op, context.exact)


def _reduce_scatter_block_comp(
    context: CallContext,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs | BlockArgs:
    """Reduce_scatter_comp with equal blocks."""
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf, context.comm.size)
    return collective_args.reduce_scatter_block(*context.ranks, sendbuf, recvbuf, op, options)


def _scan(context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> CollectiveArgs | BlockArgs:
    """Combine the buffers of the ranks up to this one, element by element, in rank order."""
    return collective_args.scan(*context.ranks, sendbuf, recvbuf, op)


def _scan_comp(
    context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None
) -> CollectiveArgs | BlockArgs:
    """Scan, compressed: a float is rounded once for each rank that it passes."""
    return collective_args.scan(*context.ranks, sendbuf, recvbuf, op, context.options(codec))


def _exscan(context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> CollectiveArgs | BlockArgs:
    """Combine the buffers of the ranks before this one, in rank order. `recvbuf` of rank 0 is not changed."""
    return collective_args.scan(*context.ranks, sendbuf, recvbuf, op, own=False)


def _exscan_comp(
    context: CallContext, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, *, codec: Any = None
) -> CollectiveArgs | BlockArgs:
    """Exscan, compressed as in Scan_comp."""
    return collective_args.scan(*context.ranks, sendbuf, recvbuf, op, context.options(codec), own=False)


def _allgather(context: CallContext, sendbuf: Any, recvbuf: Any) -> CollectiveArgs | BlockArgs:
    """Gather the equal blocks of all ranks on every rank, in rank order.

    In place, a rank's own block is in `recvbuf` already. A count in `recvbuf`, [buffer, count, type], is that of one
    block.
    """
    return collective_args.allgather(*context.ranks, sendbuf, recvbuf, context.exact)


def _allgather_comp(
    context: CallContext, sendbuf: Any, recvbuf: Any, *, codec: Any = None
) -> CollectiveArgs | BlockArgs:
    """Allgather, compressed. A rank's own block becomes what the others decode, too."""
    return collective_args.allgather(*context.ranks, sendbuf, recvbuf, context.options(codec))


def _bcast(context: CallContext, buf: Any, root: int = 0) -> CollectiveArgs | BlockArgs:
    """Copy the buffer of `root` to every rank."""
    return collective_args.bcast(*context.ranks, buf, root, context.exact)


def _bcast_comp(context: CallContext, buf: Any, root: int = 0, *, codec: Any = None) -> CollectiveArgs | BlockArgs:
    """Bcast, compressed. The root's buffer becomes what the others decode, too."""
    return collective_args.bcast(*context.ranks, buf, root, context.options(codec))


class BufferCollectives(Base):
    """The calls that every rank makes with a buffer."""

    Barrier, Ibarrier = collective_calls("Barrier", _barrier)
    Barrier_init = persistent_call("Barrier", _barrier)
    Allreduce, Iallreduce = collective_calls("Allreduce", _allreduce)
    Allreduce_init = persistent_call("Allreduce", _allreduce)
    Allreduce_comp, Iallreduce_comp = collective_calls("Allreduce_comp", _allreduce_comp)
    Reduce, Ireduce = collective_calls("Reduce", _reduce)
    Reduce_init = persistent_call("Reduce", _reduce)
    Reduce_comp, Ireduce_comp = collective_calls("Reduce_comp", _reduce_comp)
    Reduce_scatter, Ireduce_scatter = collective_calls("Reduce_scatter", _reduce_scatter)
    Reduce_scatter_init = persistent_call("Reduce_scatter", _reduce_scatter)
    Reduce_scatter_comp, Ireduce_scatter_comp = collective_calls("Reduce_scatter_comp", _reduce_scatter_comp)
    Reduce_scatter_block, Ireduce_scatter_block = collective_calls("Reduce_scatter_block", _reduce_scatter_block)
    Reduce_scatter_block_init = persistent_call("Reduce_scatter_block", _reduce_scatter_block)
    Reduce_scatter_block_comp, Ireduce_scatter_block_comp = collective_calls(
        "Reduce_scatter_block_comp", _reduce_scatter_block_comp
    )
    Scan, Iscan = collective_calls("Scan", _scan)
    Scan_init = persistent_call("Scan", _scan)
    Scan_comp, Iscan_comp = collective_calls("Scan_comp", _scan_comp)
    Exscan, Iexscan = collective_calls("Exscan", _exscan)
    Exscan_init = persistent_call("Exscan", _exscan)
    Exscan_comp, Iexscan_comp = collective_calls("Exscan_comp", _exscan_comp)
    Allgather, Iallgather = collective_calls("Allgather", _allgather)
    Allgather_init = persistent_call("Allgather", _allgather)
    Allgather_comp, Iallgather_comp = collective_calls("Allgather_comp", _allgather_comp)
    Bcast, Ibcast = collective_calls("Bcast", _bcast)
    Bcast_init = persistent_call("Bcast", _bcast)
    Bcast_comp, Ibcast_comp = collective_calls("Bcast_comp", _bcast_comp)
