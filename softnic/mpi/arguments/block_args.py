"""The checked arguments of collectives that move blocks between ranks: gathers, scatters and all-to-all exchanges.

Each rank knows its own blocks only; NICs compare those of two ranks. Where the send and the receive buffer of a rank
have different types, one of both holds bytes, and bytes are moved. Errors are ValueErrors, as in collective_args.py.
"""

from __future__ import annotations

from typing import Any

from softnic.collectives.elements import Array
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.blocks import BYTES, BlockLayout, BlockParts, equal, typed, varying
from softnic.mpi.arguments.buffers import RECEIVE, SEND
from softnic.mpi.collectives.parts import EXACT, BlockArgs, CompressionOptions, moved_blocks


def gather(
    size: int,
    rank: int,
    send: Any,
    receive: Any,
    root: Any,
    options: CompressionOptions = EXACT,
    *,
    layout: BlockLayout = equal,
) -> BlockArgs:
    """`receive` is ignored at ranks other than the root, which may be in place. `layout`: of `receive`."""
    root = checks.rank_in(root, size, "root")
    if rank != root:
        own = buffers.message(send, what=SEND).array
        return BlockArgs(
            "gather", "direct", own.dtype, *moved_blocks(size, {rank: own}, {}), root=root, options=options
        )
    parts, local = layout(receive, size, RECEIVE, writable=True), []
    if not buffers.is_in_place(send):
        own, parts = _alike(buffers.message(send, what=SEND).array, parts)
        local = [_fitting(own, parts.arrays[rank])]
    moved = moved_blocks(size, {}, parts.of_others(rank))
    return BlockArgs("gather", "direct", parts.dtype, *moved, local, parts.buffers, root=root, options=options)


def scatter(
    size: int,
    rank: int,
    send: Any,
    receive: Any,
    root: Any,
    options: CompressionOptions = EXACT,
    *,
    layout: BlockLayout = equal,
) -> BlockArgs:
    """`send` is ignored at ranks other than the root, which may be in place. `layout`: of `send`."""
    root = checks.rank_in(root, size, "root")
    if rank != root:
        buffer = buffers.message(receive, writable=True, what=RECEIVE)
        moved, own = moved_blocks(size, {}, {rank: buffer.array}), buffer.array
        return BlockArgs("scatter", "direct", own.dtype, *moved, (), (buffer,), root=root, options=options)
    parts, local, written = layout(send, size, SEND), [], []
    if not buffers.is_in_place(receive):
        written = [buffers.message(receive, writable=True, what=RECEIVE)]
        own, parts = _alike(written[0].array, parts)
        local = [_fitting(parts.arrays[rank], own)]
    moved = moved_blocks(size, parts.of_others(rank), {})
    return BlockArgs("scatter", "direct", parts.dtype, *moved, local, written, root=root, options=options)


def allgatherv(size: int, rank: int, send: Any, receive: Any, options: CompressionOptions = EXACT) -> BlockArgs:
    """In place, this rank's block is in `receive` already."""
    parts = varying(receive, size, RECEIVE, writable=True)
    given = parts.arrays[rank]
    if not buffers.is_in_place(send):
        given, parts = _alike(buffers.message(send, what=SEND).array, parts)
        _fitting(given, parts.arrays[rank])
    counts = tuple(array.size for array in parts.arrays)
    algorithm = options.algorithm_for("allgather", sum(array.nbytes for array in parts.arrays), size)
    results = dict(enumerate(parts.arrays))
    return BlockArgs(
        "allgather", algorithm, parts.dtype, counts, {rank: given}, results, (), parts.buffers, options=options
    )


def alltoall(
    size: int, rank: int, send: Any, receive: Any, options: CompressionOptions = EXACT, *, layout: BlockLayout = equal
) -> BlockArgs:
    """In place, the blocks to be sent are in `receive`. `layout`: of both."""
    received = layout(receive, size, RECEIVE, writable=True)
    sent = received if buffers.is_in_place(send) else layout(send, size, SEND)
    if sent.dtype != received.dtype:
        if BYTES not in (sent.dtype, received.dtype):
            checks.same_type(sent.arrays[0], received.arrays[0])
        sent, received = sent.as_bytes(), received.as_bytes()
    return _exchange(size, rank, sent, received, options)


def alltoallw(size: int, rank: int, send: Any, receive: Any) -> BlockArgs:
    """A datatype for each rank. In place, the blocks to be sent are in `receive`."""
    received = typed(receive, size, RECEIVE, writable=True)
    sent = received if buffers.is_in_place(send) else typed(send, size, SEND)
    return _exchange(size, rank, sent.as_bytes(), received.as_bytes(), EXACT)


def _exchange(size: int, rank: int, sent: BlockParts, received: BlockParts, options: CompressionOptions) -> BlockArgs:
    in_place = sent.buffers is received.buffers
    local = [] if in_place else [_fitting(sent.arrays[rank], received.arrays[rank])]
    received_blocks = {size + each: array for each, array in received.of_others(rank).items()}
    moved = moved_blocks(2 * size, sent.of_others(rank), received_blocks)
    return BlockArgs("alltoall", "direct", received.dtype, *moved, local, received.buffers, options=options)


def _alike(array: Array, parts: BlockParts) -> tuple[Array, BlockParts]:
    """Return both with the same element type: as bytes if one of them holds bytes. Raises ValueError."""
    if array.dtype == parts.dtype:
        return array, parts
    if BYTES not in (array.dtype, parts.dtype):
        checks.same_type(array, parts.arrays[0])
    return array.view(BYTES), parts.as_bytes()


def _fitting(source: Array, target: Array) -> tuple[Array, Array]:
    """Return what this rank sends itself, and where it goes. Raises ValueError."""
    if source.size != target.size:
        raise ValueError(f"this rank sends itself {source.size} elements, and receives {target.size} of itself")
    return source, target
