"""What callers hand to a collective on buffers, checked and cut into blocks: a Task.

The one place where arguments become blocks. Who executes a Task is another matter: the host, step by step inside the
call (collectives.py), or the NIC, from a descriptor, while the call has returned (nonblocking.py). Errors are
ValueErrors without rank and call, which the communicator adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.elements import carried
from softnic.collectives.operations import Op
from softnic.comm import buffers
from softnic.comm.buffers import Array


@dataclass(frozen=True)
class Chosen:
    """How the caller wants it done."""

    name: str = ""
    """The codec's, for what ranks compare; empty in exact calls."""
    codec: Codec | None = None
    """None for exact calls, and for `raw`."""
    algorithm: str | None = None
    """None: what is best for the size and the ranks."""

    def of(self, collective: str, array: Array, size: int) -> str:
        """The algorithm for a buffer."""
        return self.algorithm or schedule.choose(collective, array.nbytes, size, self.name)


EXACT = Chosen()


@dataclass(frozen=True)
class Task:
    """One rank's part of a collective. Arrays are flat."""

    collective: str
    """`allreduce`, `reduce`, `reduce_scatter`, `allgather` or `bcast`: what a schedule is made for."""
    source: Array
    """What this rank contributes, all blocks."""
    result: Array | None
    """Where results go, all blocks; may be `source`. None: this rank has no room for all of them, and scratch like
    `source` has to do."""
    algorithm: str
    counts: tuple[int, ...]
    """Elements of each block."""
    op: Op | None = None
    root: int = -1
    chosen: Chosen = EXACT
    given: Array | None = None
    """To be put into this rank's block of `result` first."""
    own: Array | None = None
    """Holds this rank's block of the result in the end, and nothing before where it shares memory with `source`."""

    @property
    def count(self) -> int:
        return self.source.size

    @property
    def blocks(self) -> tuple[slice, ...]:
        return schedule.offsets(self.counts)

    @property
    def rounding(self) -> bool:
        """Whether who combines a block last keeps what its codec decodes, as all will have that."""
        return self.collective != "reduce_scatter"

    def begins_with(self, rank: int) -> int | None:
        """The block that this rank has from the start and hands on as it is, if there is one."""
        if self.collective == "allgather":
            return rank
        return 0 if self.collective == "bcast" and rank == self.root else None

    def alone(self) -> None:
        """Makes the result of a single rank: nothing crosses a network, and nothing is rounded."""
        result = self.own if self.result is None else self.result
        contributed = self.source if self.given is None else self.given
        if result is not None and result is not contributed:
            result[:] = contributed


def allreduce(size: int, send: Any, receive: Any, op: Any, chosen: Chosen = EXACT) -> Task:
    source, result = buffers.pair(send, receive)
    op = buffers.operation(op, source)
    algorithm = chosen.of("allreduce", source, size)
    counts = _counts("allreduce", algorithm, source, size)
    return Task("allreduce", source, result, algorithm, counts, op, chosen=chosen)


def reduce(size: int, rank: int, send: Any, receive: Any, op: Any, root: Any, chosen: Chosen = EXACT) -> Task:
    """The `receive` of others than the root is not looked at."""
    root = buffers.rank_in(root, size, "root")
    result: Array | None = None
    if rank == root:
        source, result = buffers.pair(send, receive)
    else:
        source = buffers.flat(send, what="the send buffer")
    op = buffers.operation(op, source)
    algorithm = chosen.of("reduce", source, size)
    counts = _counts("reduce", algorithm, source, size)
    return Task("reduce", source, result, algorithm, counts, op, root, chosen)


def reduce_scatter(size: int, rank: int, send: Any, receive: Any, counts: Any, op: Any, chosen: Chosen = EXACT) -> Task:
    """`counts`: elements a rank; None: near-equal blocks. In place, `receive` has the whole input."""
    result = buffers.flat(receive, writable=True, what="the receive buffer")
    source = result if buffers.is_in_place(send) else buffers.flat(send, what="the send buffer")
    return _scattering(source, result, counts, size, rank, op, chosen)


def reduce_scatter_block(size: int, rank: int, send: Any, receive: Any, op: Any, chosen: Chosen = EXACT) -> Task:
    """reduce_scatter with equal blocks. A count given with the input is that of a block."""
    if buffers.is_in_place(send):
        source = result = buffers.flat(receive, writable=True, what="the receive buffer", blocks=size)
    else:
        result = buffers.flat(receive, writable=True, what="the receive buffer")
        source = buffers.flat(send, what="the send buffer", blocks=size)
    counts = (buffers.blocks_for(source, size, "the input"),) * size
    return _scattering(source, result, counts, size, rank, op, chosen)


def _scattering(source: Array, result: Array, counts: Any, size: int, rank: int, op: Any, chosen: Chosen) -> Task:
    op = buffers.operation(op, source)
    in_place = buffers.same_memory(source, result)
    blocks = buffers.scattered(source, result, counts, size, rank, in_place=in_place)
    lengths = tuple(block.stop - block.start for block in blocks)
    algorithm = chosen.of("reduce_scatter", source, size)
    return Task("reduce_scatter", source, None, algorithm, lengths, op, chosen=chosen, own=result[: lengths[rank]])


def allgather(size: int, rank: int, send: Any, receive: Any, chosen: Chosen = EXACT) -> Task:
    """In place, this rank's block is in `receive` already. A count given with `receive` is that of a block."""
    result = buffers.flat(receive, writable=True, what="the receive buffer", blocks=size)
    count = buffers.blocks_for(result, size, "the receive buffer")
    given = None
    if not buffers.is_in_place(send):
        given = buffers.gathered(buffers.flat(send, what="the send buffer"), result, count, rank)
    algorithm = chosen.of("allgather", result, size)
    return Task("allgather", result, result, algorithm, (count,) * size, chosen=chosen, given=given)


def bcast(size: int, rank: int, buf: Any, root: Any, chosen: Chosen = EXACT) -> Task:
    """The root's buffer is written to as well, where a codec rounds it."""
    root = buffers.rank_in(root, size, "root")
    array = buffers.flat(buf, what="the buffer")
    if rank != root or carried(array.dtype, chosen.codec)[1] is not None:
        buffers.flat(buf, writable=True, what="the buffer")
    algorithm = chosen.of("bcast", array, size)
    counts = _counts("bcast", algorithm, array, size)
    return Task("bcast", array, array, algorithm, counts, root=root, chosen=chosen)


def cut(array: Array, blocks: Sequence[slice]) -> list[Array]:
    return [array[block] for block in blocks]


def _counts(collective: str, algorithm: str, array: Array, size: int) -> tuple[int, ...]:
    blocks = schedule.blocks(collective, algorithm, array.size, size)
    return tuple(block.stop - block.start for block in blocks)
