"""The collective calls on buffers that move blocks from rank to rank: exact and compressed.

Blocks are compressed as in whole_buffers.py. What a rank sends itself crosses no network and is not rounded, but in
Allgatherv_comp, where all ranks get the same bits.
"""

from __future__ import annotations

from typing import Any

from softnic.mpi.arguments import block_args
from softnic.mpi.arguments.blocks import varying
from softnic.mpi.base import Base
from softnic.mpi.collectives.calls import CallContext, collective_calls, persistent_call
from softnic.mpi.collectives.parts import BlockArgs


def _gather(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Gather the equal blocks of all ranks at `root`, in rank order. `recvbuf` of others is ignored.

    A count in `recvbuf`, [buffer, count, type], is that of one block. With MPI.IN_PLACE as `sendbuf`, the root's own
    block is in `recvbuf` already.
    """
    return block_args.gather(*context.ranks, sendbuf, recvbuf, root)


def _gather_comp(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0, *, codec: Any = None) -> BlockArgs:
    """Gather, compressed."""
    return block_args.gather(*context.ranks, sendbuf, recvbuf, root, context.options(codec))


def _gatherv(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Gather blocks of any length. `recvbuf` has counts, and displacements: [buffer, (counts, displs), type]."""
    return block_args.gather(*context.ranks, sendbuf, recvbuf, root, layout=varying)


def _gatherv_comp(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0, *, codec: Any = None) -> BlockArgs:
    """Gatherv, compressed."""
    return block_args.gather(*context.ranks, sendbuf, recvbuf, root, context.options(codec), layout=varying)


def _scatter(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Send every rank its block of the root's buffer. `sendbuf` of others is ignored.

    A count in `sendbuf`, [buffer, count, type], is that of one block. With MPI.IN_PLACE as `recvbuf`, the root's own
    block stays where it is.
    """
    return block_args.scatter(*context.ranks, sendbuf, recvbuf, root)


def _scatter_comp(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0, *, codec: Any = None) -> BlockArgs:
    """Scatter, compressed."""
    return block_args.scatter(*context.ranks, sendbuf, recvbuf, root, context.options(codec))


def _scatterv(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Scatter blocks of any length. `sendbuf` has counts, and displacements: [buffer, (counts, displs), type]."""
    return block_args.scatter(*context.ranks, sendbuf, recvbuf, root, layout=varying)


def _scatterv_comp(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0, *, codec: Any = None) -> BlockArgs:
    """Scatterv, compressed."""
    return block_args.scatter(*context.ranks, sendbuf, recvbuf, root, context.options(codec), layout=varying)


def _allgatherv(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Gather blocks of any length on every rank. `recvbuf` has counts, and displacements, as of Gatherv."""
    return block_args.allgatherv(*context.ranks, sendbuf, recvbuf)


def _allgatherv_comp(context: CallContext, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> BlockArgs:
    """Allgatherv, compressed. A rank's own block becomes what the others decode, too."""
    return block_args.allgatherv(*context.ranks, sendbuf, recvbuf, context.options(codec))


def _alltoall(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Send every rank its block of this rank's buffer. Counts in the lists are those of one block.

    With MPI.IN_PLACE as `sendbuf`, the blocks to be sent are in `recvbuf`.
    """
    return block_args.alltoall(*context.ranks, sendbuf, recvbuf)


def _alltoall_comp(context: CallContext, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> BlockArgs:
    """Alltoall, compressed."""
    return block_args.alltoall(*context.ranks, sendbuf, recvbuf, context.options(codec))


def _alltoallv(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Alltoall with blocks of any length. Both buffers have counts, and displacements, as of Gatherv."""
    return block_args.alltoall(*context.ranks, sendbuf, recvbuf, layout=varying)


def _alltoallv_comp(context: CallContext, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> BlockArgs:
    """Alltoallv, compressed."""
    return block_args.alltoall(*context.ranks, sendbuf, recvbuf, context.options(codec), layout=varying)


def _alltoallw(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Alltoallv with a datatype for each rank, and displacements in bytes: [buffer, (counts, displs), types]."""
    return block_args.alltoallw(*context.ranks, sendbuf, recvbuf)


class BufferExchanges(Base):
    """The calls that every rank makes with blocks for others."""

    Gather, Igather = collective_calls("Gather", _gather)
    Gather_init = persistent_call("Gather", _gather)
    Gather_comp, Igather_comp = collective_calls("Gather_comp", _gather_comp)
    Gatherv, Igatherv = collective_calls("Gatherv", _gatherv)
    Gatherv_init = persistent_call("Gatherv", _gatherv)
    Gatherv_comp, Igatherv_comp = collective_calls("Gatherv_comp", _gatherv_comp)
    Scatter, Iscatter = collective_calls("Scatter", _scatter)
    Scatter_init = persistent_call("Scatter", _scatter)
    Scatter_comp, Iscatter_comp = collective_calls("Scatter_comp", _scatter_comp)
    Scatterv, Iscatterv = collective_calls("Scatterv", _scatterv)
    Scatterv_init = persistent_call("Scatterv", _scatterv)
    Scatterv_comp, Iscatterv_comp = collective_calls("Scatterv_comp", _scatterv_comp)
    Allgatherv, Iallgatherv = collective_calls("Allgatherv", _allgatherv)
    Allgatherv_init = persistent_call("Allgatherv", _allgatherv)
    Allgatherv_comp, Iallgatherv_comp = collective_calls("Allgatherv_comp", _allgatherv_comp)
    Alltoall, Ialltoall = collective_calls("Alltoall", _alltoall)
    Alltoall_init = persistent_call("Alltoall", _alltoall)
    Alltoall_comp, Ialltoall_comp = collective_calls("Alltoall_comp", _alltoall_comp)
    Alltoallv, Ialltoallv = collective_calls("Alltoallv", _alltoallv)
    Alltoallv_init = persistent_call("Alltoallv", _alltoallv)
    Alltoallv_comp, Ialltoallv_comp = collective_calls("Alltoallv_comp", _alltoallv_comp)
    Alltoallw, Ialltoallw = collective_calls("Alltoallw", _alltoallw)
    Alltoallw_init = persistent_call("Alltoallw", _alltoallw)
