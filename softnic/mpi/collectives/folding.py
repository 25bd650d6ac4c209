"""Reductions by this process, for operations that NICs do not have: those of users, and such as MAXLOC.

NICs move the contributions, each to the ranks that need it, and every such rank combines them in the order of the
ranks, as operations that do not commute require. All ranks of an Allreduce do the same, and so get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from softnic.collectives.elements import Array
from softnic.mpi.arguments.buffers import MessageBuffer
from softnic.mpi.collectives.parts import BlockArgs, CompressionOptions
from softnic.mpi.datatypes.definition import TypeDefinition
from softnic.mpi.operators import Op


class Operands(NamedTuple):
    """The arguments of a reduction on one rank."""

    size: int
    rank: int
    source: Array
    result: Array | None
    """May share memory with `source`. None: the rank gets no result."""
    buffer: MessageBuffer
    """Of `result`, or of `source` without one."""
    op: Op
    options: CompressionOptions

    def combined(self, parts: Sequence[Array]) -> None:
        """Store the combination of contributions, in their order, in `result`."""
        assert self.result is not None
        self.result[:] = combination(parts, self.op, self.buffer.definition)
        self.buffer.write_back(self.result.nbytes)


def combination(parts: Sequence[Array], op: Op, definition: TypeDefinition) -> Array:
    """Return the combination of arrays in their order. `definition` is that of their elements' datatype."""
    total = parts[-1].copy()
    for part in reversed(parts[:-1]):
        op.combine(part.copy(), total, definition)
    op.finish(total, len(parts))
    return total


def allreduce(given: Operands) -> BlockArgs:
    """Gather all contributions on every rank, and combine them there."""
    source, size = given.source, given.size
    algorithm = given.options.algorithm_for("allgather", source.nbytes * size, size)
    counts, finish = (source.size,) * size, given.combined
    return _moved("allgather", algorithm, given, counts, {given.rank: source}, finish)


def reduce(given: Operands, root: int) -> BlockArgs:
    """Gather all contributions at the root, and combine them there."""
    source, size, rank = given.source, given.size, given.rank
    if rank != root:
        counts = tuple(source.size if each == rank else 0 for each in range(size))
        return _moved("gather", "direct", given, counts, {rank: source}, None, root)

    def finish(blocks: Sequence[Array]) -> None:
        given.combined([source if each == rank else block for each, block in enumerate(blocks)])

    counts = tuple(0 if each == rank else source.size for each in range(size))
    return _moved("gather", "direct", given, counts, {}, finish, root)


def reduce_scatter(given: Operands, blocks: Sequence[slice]) -> BlockArgs:
    """Send every rank the contributions to its block, and combine them there."""
    size, rank = given.size, given.rank
    own = given.source[blocks[rank]].copy()
    sent = [0 if each == rank else block.stop - block.start for each, block in enumerate(blocks)]
    received = [0 if each == rank else own.size for each in range(size)]

    def finish(exchanged: Sequence[Array]) -> None:
        given.combined([own if each == rank else exchanged[size + each] for each in range(size)])

    contributions = {each: given.source[block] for each, block in enumerate(blocks) if each != rank}
    return _moved("alltoall", "direct", given, (*sent, *received), contributions, finish)


def scan(given: Operands, *, own: bool) -> BlockArgs:
    """Send every rank the contributions of the ranks before it, and combine them there."""
    source, size, rank = given.source, given.size, given.rank
    sent = [source.size if each > rank else 0 for each in range(size)]
    received = [source.size if each < rank else 0 for each in range(size)]
    mine = [source] if own else []
    contributions = {each: source for each in range(rank + 1, size)}
    finish = partial(_combine_before, given, mine) if own or rank else None
    return _moved("alltoall", "direct", given, (*sent, *received), contributions, finish)


def _combine_before(given: Operands, mine: Sequence[Array], exchanged: Sequence[Array]) -> None:
    given.combined([*(exchanged[given.size + each] for each in range(given.rank)), *mine])


def _moved(
    collective: str,
    algorithm: str,
    given: Operands,
    counts: tuple[int, ...],
    contributions: dict[int, Array],
    finish: Callable[[Sequence[Array]], None] | None,
    root: int = -1,
) -> BlockArgs:
    """The exchange that a reduction consists of. All ranks name the operation."""
    return BlockArgs(
        collective,
        algorithm,
        given.source.dtype,
        counts,
        contributions,
        {},
        finish=finish,
        root=root,
        options=given.options,
        op_name=given.op.name,
    )
