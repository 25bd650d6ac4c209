"""The checked arguments of reductions, broadcasts and gathers to all, cut into blocks.

Errors are ValueErrors without rank and call, which the communicator adds. A reduction that NICs do not have is made
from blocks that they move (softnic/mpi/collectives/folding.py).
"""

from __future__ import annotations

from typing import Any

from softnic.collectives import schedule
from softnic.collectives.elements import Array, carried
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.buffers import RECEIVE, SEND, MessageBuffer
from softnic.mpi.collectives import folding
from softnic.mpi.collectives.folding import Operands
from softnic.mpi.collectives.parts import EXACT, BlockArgs, CollectiveArgs, CompressionOptions
from softnic.mpi.operators import UndefinedOpError


def allreduce(
    size: int, rank: int, send: Any, receive: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs | BlockArgs:
    source, result, buffer = pair(send, receive)
    op = checks.operation(op, buffer)
    if not op.offloaded(source.dtype):
        return folding.allreduce(Operands(size, rank, source, result, buffer, op, options))
    algorithm = options.algorithm_for("allreduce", source.nbytes, size)
    counts = _counts("allreduce", algorithm, source, size, options.blocks_by)
    return CollectiveArgs("allreduce", source, result, algorithm, counts, op, options=options, written=buffer)


def reduce(
    size: int, rank: int, send: Any, receive: Any, op: Any, root: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs | BlockArgs:
    """`receive` is ignored at ranks other than the root."""
    root = checks.rank_in(root, size, "root")
    result: Array | None = None
    if rank == root:
        source, result, buffer = pair(send, receive)
    else:
        buffer = buffers.message(send, what=SEND)
        source = buffer.array
    op = checks.operation(op, buffer)
    if not op.offloaded(source.dtype):
        return folding.reduce(Operands(size, rank, source, result, buffer, op, options), root)
    algorithm = options.algorithm_for("reduce", source.nbytes, size)
    counts = _counts("reduce", algorithm, source, size, options.blocks_by)
    written = buffer if rank == root else None
    return CollectiveArgs("reduce", source, result, algorithm, counts, op, root, options, written=written)


def reduce_scatter(
    size: int, rank: int, send: Any, receive: Any, counts: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs | BlockArgs:
    """`counts`: items of each rank; None: near-equal blocks. In place, `receive` has the whole input."""
    result = buffers.message(receive, writable=True, what=RECEIVE)
    source = result if buffers.is_in_place(send) else buffers.message(send, what=SEND)
    return _scatter(source, result, counts, size, rank, op, options)


def reduce_scatter_block(
    size: int, rank: int, send: Any, receive: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs | BlockArgs:
    """reduce_scatter with equal blocks. A count given with the input is that of a block."""
    if buffers.is_in_place(send):
        source = result = buffers.message(receive, writable=True, what=RECEIVE, blocks=size)
    else:
        result = buffers.message(receive, writable=True, what=RECEIVE)
        source = buffers.message(send, what=SEND, blocks=size)
    checks.blocks_for(source.array, size, "the input")
    return _scatter(source, result, (source.count // size,) * size, size, rank, op, options)


def _scatter(
    source: MessageBuffer,
    result: MessageBuffer,
    counts: Any,
    size: int,
    rank: int,
    op: Any,
    options: CompressionOptions,
) -> CollectiveArgs | BlockArgs:
    op = checks.operation(op, source)
    given, taken = source.array, result.array
    if counts is not None and source.count:
        item = given.size // source.count
        counts = [count * item for count in checks.counts_of(counts, size)]
    in_place = checks.same_memory(given, taken)
    blocks = checks.scattered(given, taken, counts, size, rank, in_place=in_place)
    lengths = tuple(block.stop - block.start for block in blocks)
    own = taken[: lengths[rank]]
    if not op.offloaded(given.dtype):
        return folding.reduce_scatter(Operands(size, rank, given, own, result, op, options), blocks)
    algorithm = options.algorithm_for("reduce_scatter", given.nbytes, size)
    return CollectiveArgs(
        "reduce_scatter", given, None, algorithm, lengths, op, options=options, own=own, written=result
    )


def scan(
    size: int, rank: int, send: Any, receive: Any, op: Any, options: CompressionOptions = EXACT, *, own: bool = True
) -> BlockArgs:
    """`own`: with this rank's contribution, as Scan has it and Exscan has not."""
    source, result, buffer = pair(send, receive)
    op = checks.operation(op, buffer)
    if op.average:
        raise UndefinedOpError(f"MPI.{op.name} is not defined for scans")
    if not op.offloaded(source.dtype):
        return folding.scan(Operands(size, rank, source, result, buffer, op, options), own=own)
    results = {0 if own else 1: result} if own or rank else {}
    return BlockArgs(
        "scan" if own else "exscan",
        "ring",
        source.dtype,
        (source.size,) * (1 if own else 2),
        {0: source} if own or rank < size - 1 else {},
        results,
        written=(buffer,) if results else (),
        options=options,
        op_name=op.name,
    )


def allgather(size: int, rank: int, send: Any, receive: Any, options: CompressionOptions = EXACT) -> CollectiveArgs:
    """In place, this rank's block is in `receive` already. A count given with `receive` is that of a block."""
    buffer = buffers.message(receive, writable=True, what=RECEIVE, blocks=size)
    result = buffer.array
    count = checks.blocks_for(result, size, RECEIVE)
    given = None
    if not buffers.is_in_place(send):
        given = checks.gathered(buffers.message(send, what=SEND).array, result, count, rank)
    algorithm = options.algorithm_for("allgather", result.nbytes, size)
    counts = (count,) * size
    return CollectiveArgs("allgather", result, result, algorithm, counts, options=options, given=given, written=buffer)


def bcast(size: int, rank: int, buf: Any, root: Any, options: CompressionOptions = EXACT) -> CollectiveArgs:
    """The root's buffer is written to as well where a codec rounds it."""
    root = checks.rank_in(root, size, "root")
    buffer = buffers.message(buf, what="the buffer")
    writes = rank != root or carried(buffer.array.dtype, options.codec)[1] is not None
    if writes:
        buffer = buffers.message(buf, writable=True, what="the buffer")
    array = buffer.array
    algorithm = options.algorithm_for("bcast", array.nbytes, size)
    counts = _counts("bcast", algorithm, array, size)
    written = buffer if writes else None
    return CollectiveArgs("bcast", array, array, algorithm, counts, root=root, options=options, written=written)


def gathered_bytes(counts: tuple[int, ...], result: Array, root: int = -1, op_name: str = "") -> CollectiveArgs:
    """An allgather of bytes, `counts[r]` of rank r, in place. Ranks compare `root` and `op_name`."""
    algorithm = schedule.choose("allgather", result.nbytes, len(counts))
    return CollectiveArgs("allgather", result, result, algorithm, counts, root=root, op_name=op_name)


def pair(send: Any, receive: Any) -> tuple[Array, Array, MessageBuffer]:
    """Return input and output of a reduction, the same array in place, and the buffer of the output."""
    buffer = buffers.message(receive, writable=True, what=RECEIVE)
    result = buffer.array
    if buffers.is_in_place(send):
        return result, result, buffer
    source = buffers.message(send, what=SEND).array
    checks.same_type(source, result)
    if source.size != result.size:
        raise ValueError(f"the send buffer has {source.size} elements, the receive buffer {result.size}")
    if checks.same_memory(source, result):
        return result, result, buffer
    checks.apart(source, result)
    return source, result, buffer


def _counts(
    collective: str, algorithm: str, array: Array, size: int, paths: schedule.PathPlan = schedule.EVEN
) -> tuple[int, ...]:
    blocks = schedule.blocks(collective, algorithm, array.size, size, paths)
    return tuple(block.stop - block.start for block in blocks)
