"""The checked arguments of a collective on buffers, cut into blocks.

This is the only place where arguments become blocks. Errors are ValueErrors without rank and call, which the
communicator adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.elements import carried
from softnic.comm import buffers
from softnic.comm.buffers import Array
from softnic.comm.operators import Op


@dataclass(frozen=True)
class CompressionOptions:
    """The `codec` and `algorithm` of a call."""

    name: str = ""
    """The codec's, which ranks compare; empty in exact calls."""
    codec: Codec | None = None
    """None for exact calls, and for `raw`."""
    algorithm: str | None = None
    """None: the best one for the size and the ranks."""

    def algorithm_for(self, collective: str, array: Array, size: int) -> str:
        """Return the algorithm for a buffer."""
        return self.algorithm or schedule.choose(collective, array.nbytes, size, self.name)


EXACT = CompressionOptions()


@dataclass(frozen=True)
class CollectiveArgs:
    """One rank's part of a collective. Arrays are flat."""

    collective: str
    """`allreduce`, `reduce`, `reduce_scatter`, `allgather` or `bcast`: names the schedule."""
    source: Array
    """What this rank contributes, all blocks."""
    result: Array | None
    """Where results go, all blocks; may be `source`. None: this rank has no memory for all of them."""
    algorithm: str
    counts: tuple[int, ...]
    """Elements of each block."""
    op: Op | None = None
    root: int = -1
    options: CompressionOptions = EXACT
    given: Array | None = None
    """Copied into this rank's block of `result` first."""
    own: Array | None = None
    """Receives this rank's block of the result. May share memory with `source`."""
    op_name: str = ""
    """Of a user's operation, which ranks compare and no NIC applies."""

    @property
    def count(self) -> int:
        return self.source.size

    @property
    def blocks(self) -> tuple[slice, ...]:
        return schedule.offsets(self.counts)

    def own_blocks(self, rank: int) -> tuple[int, ...] | None:
        """Return the blocks that this rank has from the start and sends as they are; None: it contributes to all."""
        if self.collective == "allgather":
            return (rank,)
        return None if self.collective != "bcast" else (0,) if rank == self.root else ()

    def run_alone(self) -> None:
        """Make the result of a single rank: nothing crosses a network, and nothing is rounded."""
        result = self.own if self.result is None else self.result
        contributed = self.source if self.given is None else self.given
        if result is not None and result is not contributed:
            result[:] = contributed


def allreduce(
    size: int, rank: int, send: Any, receive: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs:
    del rank
    source, result = buffers.pair(send, receive)
    op = buffers.operation(op, source)
    algorithm = options.algorithm_for("allreduce", source, size)
    counts = _counts("allreduce", algorithm, source, size)
    return CollectiveArgs("allreduce", source, result, algorithm, counts, op, options=options)


def reduce(
    size: int, rank: int, send: Any, receive: Any, op: Any, root: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs:
    """`receive` is ignored at ranks other than the root."""
    root = buffers.rank_in(root, size, "root")
    result: Array | None = None
    if rank == root:
        source, result = buffers.pair(send, receive)
    else:
        source = buffers.flat(send, what="the send buffer")
    op = buffers.operation(op, source)
    algorithm = options.algorithm_for("reduce", source, size)
    counts = _counts("reduce", algorithm, source, size)
    return CollectiveArgs("reduce", source, result, algorithm, counts, op, root, options)


def reduce_scatter(
    size: int, rank: int, send: Any, receive: Any, counts: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs:
    """`counts`: elements of each rank; None: near-equal blocks. In place, `receive` has the whole input."""
    result = buffers.flat(receive, writable=True, what="the receive buffer")
    source = result if buffers.is_in_place(send) else buffers.flat(send, what="the send buffer")
    return _scatter(source, result, counts, size, rank, op, options)


def reduce_scatter_block(
    size: int, rank: int, send: Any, receive: Any, op: Any, options: CompressionOptions = EXACT
) -> CollectiveArgs:
    """reduce_scatter with equal blocks. A count given with the input is that of a block."""
    if buffers.is_in_place(send):
        source = result = buffers.flat(receive, writable=True, what="the receive buffer", blocks=size)
    else:
        result = buffers.flat(receive, writable=True, what="the receive buffer")
        source = buffers.flat(send, what="the send buffer", blocks=size)
    counts = (buffers.blocks_for(source, size, "the input"),) * size
    return _scatter(source, result, counts, size, rank, op, options)


def _scatter(
    source: Array, result: Array, counts: Any, size: int, rank: int, op: Any, options: CompressionOptions
) -> CollectiveArgs:
    op = buffers.operation(op, source)
    in_place = buffers.same_memory(source, result)
    blocks = buffers.scattered(source, result, counts, size, rank, in_place=in_place)
    lengths = tuple(block.stop - block.start for block in blocks)
    algorithm = options.algorithm_for("reduce_scatter", source, size)
    own = result[: lengths[rank]]
    return CollectiveArgs("reduce_scatter", source, None, algorithm, lengths, op, options=options, own=own)


def allgather(size: int, rank: int, send: Any, receive: Any, options: CompressionOptions = EXACT) -> CollectiveArgs:
    """In place, this rank's block is in `receive` already. A count given with `receive` is that of a block."""
    result = buffers.flat(receive, writable=True, what="the receive buffer", blocks=size)
    count = buffers.blocks_for(result, size, "the receive buffer")
    given = None
    if not buffers.is_in_place(send):
        given = buffers.gathered(buffers.flat(send, what="the send buffer"), result, count, rank)
    algorithm = options.algorithm_for("allgather", result, size)
    return CollectiveArgs("allgather", result, result, algorithm, (count,) * size, options=options, given=given)


def bcast(size: int, rank: int, buf: Any, root: Any, options: CompressionOptions = EXACT) -> CollectiveArgs:
    """The root's buffer is written to as well where a codec rounds it."""
    root = buffers.rank_in(root, size, "root")
    array = buffers.flat(buf, what="the buffer")
    if rank != root or carried(array.dtype, options.codec)[1] is not None:
        buffers.flat(buf, writable=True, what="the buffer")
    algorithm = options.algorithm_for("bcast", array, size)
    counts = _counts("bcast", algorithm, array, size)
    return CollectiveArgs("bcast", array, array, algorithm, counts, root=root, options=options)


def gathered_bytes(counts: tuple[int, ...], result: Array, root: int = -1, op_name: str = "") -> CollectiveArgs:
    """An allgather of bytes, `counts[r]` of rank r, in place. Ranks compare `root` and `op_name`."""
    algorithm = schedule.choose("allgather", result.nbytes, len(counts))
    return CollectiveArgs("allgather", result, result, algorithm, counts, root=root, op_name=op_name)


def _counts(collective: str, algorithm: str, array: Array, size: int) -> tuple[int, ...]:
    blocks = schedule.blocks(collective, algorithm, array.size, size)
    return tuple(block.stop - block.start for block in blocks)
