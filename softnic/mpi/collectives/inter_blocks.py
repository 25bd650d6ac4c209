"""The collectives of two groups on buffers: each rank exchanges blocks with the ranks of the other group.

NICs execute them as an Alltoall of both groups in which ranks of one group have nothing for each other. Blocks are
bytes: the two groups may name different types. Reductions are applied by the processes, in the order of the other
group's ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from softnic.collectives.elements import Array
from softnic.comm.error_classes import ERR_ROOT
from softnic.comm.errors import ArgumentError
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.blocks import BYTES, BlockLayout, equal, same, typed, varying
from softnic.mpi.arguments.buffers import RECEIVE, SEND, MessageBuffer
from softnic.mpi.collectives.calls import CallContext
from softnic.mpi.collectives.folding import combination
from softnic.mpi.collectives.object_exchange import gather_integers
from softnic.mpi.collectives.parts import BlockArgs, moved_blocks
from softnic.mpi.constants import PROC_NULL, ROOT
from softnic.mpi.operators import SUM
from softnic.mpi.properties import InterGroups


def groups_of(comm: Any) -> InterGroups:
    """Return which ranks the groups of a communicator have. Raises ArgumentError for a null one."""
    groups: InterGroups | None = comm._properties().inter
    assert groups is not None
    return groups


def root_in(groups: InterGroups, root: Any) -> int:
    """Return the root: ROOT, PROC_NULL, or a rank of the other group. Raises ArgumentError for another one."""
    if root in (ROOT, PROC_NULL):
        return int(root)
    if not isinstance(root, (int, np.integer)) or not 0 <= root < groups.remote_size:
        raise ArgumentError(f"root is {root!r}: a rank of the other group is expected", code=ERR_ROOT)
    return int(root)


def bcast(context: CallContext, buf: Any, root: int = 0) -> BlockArgs:
    """Copy the root's buffer to the other group."""
    return _from_root(context, root, buf, buf, same)


def gather(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Gather the other group's equal blocks at the root."""
    return _gather(context, sendbuf, recvbuf, root, equal)


def gatherv(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Gather the other group's blocks at the root."""
    return _gather(context, sendbuf, recvbuf, root, varying)


def _gather(context: CallContext, sendbuf: Any, recvbuf: Any, root: int, layout: BlockLayout) -> BlockArgs:
    groups = groups_of(context.comm)
    root = root_in(groups, root)
    if root == ROOT:
        return _exchange(groups, {}, *_received(groups, recvbuf, layout))
    return _exchange(groups, {} if root == PROC_NULL else {root: buffers.message(sendbuf, what=SEND).array}, {})


def scatter(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Send each rank of the other group its block of the root's buffer."""
    return _from_root(context, root, recvbuf, sendbuf, equal)


def scatterv(context: CallContext, sendbuf: Any, recvbuf: Any, root: int = 0) -> BlockArgs:
    """Scatter with blocks of any length."""
    return _from_root(context, root, recvbuf, sendbuf, varying)


def allgather(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Gather the other group's equal blocks."""
    return _all(context, sendbuf, same, recvbuf, equal)


def allgatherv(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Gather the other group's blocks."""
    return _all(context, sendbuf, same, recvbuf, varying)


def alltoall(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Exchange equal blocks with every rank of the other group."""
    return _all(context, sendbuf, equal, recvbuf, equal)


def alltoallv(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Exchange blocks with every rank of the other group."""
    return _all(context, sendbuf, varying, recvbuf, varying)


def alltoallw(context: CallContext, sendbuf: Any, recvbuf: Any) -> BlockArgs:
    """Exchange blocks of any datatype with every rank of the other group."""
    return _all(context, sendbuf, typed, recvbuf, typed)


def reduce(context: CallContext, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> BlockArgs:
    """Combine the other group's buffers at the root."""
    groups = groups_of(context.comm)
    root = root_in(groups, root)
    if root == ROOT:
        return _combined(groups, {}, buffers.message(recvbuf, writable=True, what=RECEIVE), op)
    sent = {} if root == PROC_NULL else {root: buffers.message(sendbuf, what=SEND).array}
    return _exchange(groups, sent, {}, op_name=checks.operation(op).name)


def allreduce(context: CallContext, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> BlockArgs:
    """Combine the other group's buffers."""
    groups = groups_of(context.comm)
    sent = _sent(groups, sendbuf, same)
    return _combined(groups, sent, buffers.message(recvbuf, writable=True, what=RECEIVE), op)


def reduce_scatter_block(context: CallContext, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> BlockArgs:
    """Combine the other group's buffers; each rank of this one gets an equal block."""
    groups = groups_of(context.comm)
    given = buffers.message(sendbuf, what=SEND, blocks=groups.local_size).array
    count = checks.blocks_for(given, groups.remote_size, SEND)
    sent = {rank: given[rank * count :][:count] for rank in range(groups.remote_size)}
    return _combined(groups, sent, buffers.message(recvbuf, writable=True, what=RECEIVE), op)


def reduce_scatter(
    context: CallContext, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = SUM
) -> BlockArgs:
    """Combine the other group's buffers; rank r of this one gets the r-th block, of recvcounts[r] elements."""
    groups, own = groups_of(context.comm), context.comm.rank
    result = buffers.message(recvbuf, writable=True, what=RECEIVE)
    sent = _sent(groups, sendbuf, same)
    counts = recvcounts
    if counts is None:
        lengths = gather_integers(context.connections, f"{context.call} without recvcounts", result.count)
        counts = lengths[groups.first_local :][: groups.local_size]
    first = sum(counts[:own])
    return _combined(groups, sent, result, op, slice(first, first + counts[own]), sum(counts))


# ----------------------------------------------------------------------------------------------------------------------


def _from_root(context: CallContext, root: Any, recvbuf: Any, sendbuf: Any, layout: BlockLayout) -> BlockArgs:
    """The exchange in which only a root sends: each rank of the other group receives a block."""
    groups = groups_of(context.comm)
    root = root_in(groups, root)
    if root == ROOT:
        return _exchange(groups, _sent(groups, sendbuf, layout), {})
    if root == PROC_NULL:
        return _exchange(groups, {}, {})
    received = buffers.message(recvbuf, writable=True, what=RECEIVE)
    return _exchange(groups, {}, {root: received.array}, [received])


def _all(context: CallContext, sendbuf: Any, sent: BlockLayout, recvbuf: Any, received: BlockLayout) -> BlockArgs:
    """The exchange in which every rank has a block for each rank of the other group."""
    groups = groups_of(context.comm)
    return _exchange(groups, _sent(groups, sendbuf, sent), *_received(groups, recvbuf, received))


def _sent(groups: InterGroups, spec: Any, layout: BlockLayout) -> dict[int, Array]:
    """Return the blocks of a send buffer for the other group's ranks."""
    return dict(enumerate(layout(spec, groups.remote_size, SEND).arrays))


def _received(groups: InterGroups, spec: Any, layout: BlockLayout) -> tuple[dict[int, Array], Sequence[MessageBuffer]]:
    """Return the blocks of a receive buffer for those of the other group's ranks, and what they are of."""
    parts = layout(spec, groups.remote_size, RECEIVE, writable=True)
    return dict(enumerate(parts.arrays)), parts.buffers


def _combined(
    groups: InterGroups,
    sent: Mapping[int, Array],
    result: MessageBuffer,
    op: Any,
    part: slice = slice(None),
    items: int | None = None,
) -> BlockArgs:
    """The exchange of a reduction: `part` of the combination of the other group's buffers goes to `result`.

    `items`: of each contribution, if that is not as long as the result; `part` is of them.
    """
    array, definition = result.array, result.definition
    op = checks.operation(op, result)
    each = definition.layout.size // array.itemsize
    received = {
        rank: np.empty(array.size if items is None else items * each, array.dtype) for rank in range(groups.remote_size)
    }

    def finish(_blocks: Sequence[Array]) -> None:
        total = combination(list(received.values()), op, definition)
        array[:] = total if items is None else total[part.start * each : part.stop * each]
        result.write_back()

    return _exchange(groups, sent, received, finish=finish, op_name=op.name)


def _exchange(
    groups: InterGroups,
    sent: Mapping[int, Array],
    received: Mapping[int, Array],
    written: Sequence[MessageBuffer] = (),
    finish: Callable[[Sequence[Array]], None] | None = None,
    op_name: str = "",
) -> BlockArgs:
    """Send blocks to ranks of the other group, and receive blocks of them."""
    size = groups.local_size + groups.remote_size
    contributions = {groups.first_remote + rank: block.view(BYTES) for rank, block in sent.items()}
    results = {size + groups.first_remote + rank: block.view(BYTES) for rank, block in received.items()}
    moved = moved_blocks(2 * size, contributions, results)
    return BlockArgs("alltoall", "direct", BYTES, *moved, (), written, finish, op_name=op_name)
