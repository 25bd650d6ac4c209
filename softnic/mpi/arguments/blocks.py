"""Buffers with a block for each of some ranks, in the four ways in which calls describe them.

The ranks are those of the communicator, those of the other group, or the neighbours in a topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from softnic.collectives.elements import Array
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.buffers import MessageBuffer

BYTES: np.dtype[Any] = np.dtype(np.uint8)
"""The elements of blocks that are moved as they are, whatever they hold."""


class BlockParts(NamedTuple):
    """The blocks in rank order, and the buffers that have them."""

    arrays: Sequence[Array]
    buffers: Sequence[MessageBuffer]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.arrays[0].dtype

    def of_others(self, rank: int) -> dict[int, Array]:
        """Return the blocks of all ranks but this one."""
        return {each: array for each, array in enumerate(self.arrays) if each != rank}

    def as_bytes(self) -> BlockParts:
        return BlockParts([array.view(BYTES) for array in self.arrays], self.buffers)


class BlockLayout(Protocol):
    """How a buffer argument describes its blocks."""

    def __call__(self, spec: Any, ranks: int, what: str, writable: bool = False) -> BlockParts:
        """Return the blocks of `spec` for a number of ranks. `what` names the buffer in errors. Raises ValueError."""


def same(spec: Any, ranks: int, what: str, writable: bool = False) -> BlockParts:
    """The whole buffer is the block of every rank."""
    buffer = buffers.message(spec, writable=writable, what=what)
    return BlockParts([buffer.array] * ranks, [buffer])


def equal(spec: Any, ranks: int, what: str, writable: bool = False) -> BlockParts:
    """All blocks have the same length. A count in `spec` is that of one block."""
    if not ranks:
        return BlockParts([], [])
    buffer = buffers.message(spec, writable=writable, what=what, blocks=ranks)
    count = checks.blocks_for(buffer.array, ranks, what)
    return BlockParts([buffer.array[rank * count : (rank + 1) * count] for rank in range(ranks)], [buffer])


def varying(spec: Any, ranks: int, what: str, writable: bool = False) -> BlockParts:
    """`spec` has a count and a displacement for each block, as in Gatherv."""
    return _parts(buffers.vector(spec, ranks, writable=writable, what=what) if ranks else [])


def typed(spec: Any, ranks: int, what: str, writable: bool = False) -> BlockParts:
    """`spec` has a count, a displacement in bytes and a datatype for each block, as in Alltoallw."""
    return _parts(buffers.vector_w(spec, ranks, writable=writable, what=what) if ranks else [])


def _parts(found: Sequence[MessageBuffer]) -> BlockParts:
    return BlockParts([each.array for each in found], found)
