"""One rank's part of a collective, as the NIC executes it: its arguments, checked and cut into blocks.

Of a CollectiveArgs all blocks lie side by side in the caller's buffers, which the NIC uses where they are if they are
registered. The blocks of a BlockArgs lie anywhere, and are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.elements import Array
from softnic.mpi.arguments.buffers import MessageBuffer
from softnic.mpi.operators import Op


@dataclass(frozen=True)
class CompressionOptions:
    """The `codec` and `algorithm` of a call."""

    name: str = ""
    """The codec's, which ranks compare; empty in exact calls."""
    codec: Codec | None = None
    """None for exact calls, and for `raw`."""
    algorithm: str | None = None
    """None: the best one for the size, the ranks and their paths."""
    paths: schedule.PathPlan = schedule.EVEN
    """What the ranks have agreed on about their links."""

    def algorithm_for(self, collective: str, nbytes: int, size: int) -> str:
        """Return the algorithm for a buffer of `nbytes`."""
        return self.algorithm or schedule.choose(collective, nbytes, size, self.name, self.paths)

    @property
    def blocks_by(self) -> schedule.PathPlan:
        """By what blocks are cut: an algorithm that was named has even ones."""
        return schedule.EVEN if self.algorithm else self.paths


EXACT = CompressionOptions()


@dataclass(frozen=True)
class CollectiveArgs:
    """A collective on whole buffers. Arrays are flat."""

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
    written: MessageBuffer | None = None
    """The buffer that `result` or `own` is of."""
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
        self.write_back()

    def write_back(self) -> None:
        """Unpack the result where the caller's datatype has gaps."""
        if self.written is not None:
            self.written.write_back(None if self.own is None else self.own.nbytes)


@dataclass(frozen=True)
class BlockArgs:
    """A collective on blocks. Arrays are flat, all of the same type, and each is a whole block."""

    collective: str
    """`gather`, `scatter`, `alltoall`, `allgather`, `scan` or `exscan`: names the schedule."""
    algorithm: str
    dtype: np.dtype[Any]
    counts: tuple[int, ...]
    """Elements of each block: those of other ranks' blocks may be 0 in an exchange."""
    contributions: Mapping[int, Array]
    """By block, what this rank sends."""
    results: Mapping[int, Array]
    """By block, where it goes."""
    local: Sequence[tuple[Array, Array]] = ()
    """What this rank sends itself, and where it goes."""
    written: Sequence[MessageBuffer] = ()
    """The buffers that results are of."""
    finish: Callable[[Sequence[Array]], None] | None = None
    """Called with all blocks at the end."""
    root: int = -1
    options: CompressionOptions = EXACT
    op_name: str = ""
    """Of a reduction: the NIC's, or one that ranks compare and this process applies."""
    blocks: tuple[slice, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", schedule.offsets(self.counts))

    def begin(self) -> None:
        """Move what crosses no network."""
        for source, target in self.local:
            target[:] = source

    def end(self, blocks: Sequence[Array]) -> None:
        """Complete the call with the contents of all blocks."""
        if self.finish is not None:
            self.finish(blocks)
        for buffer in self.written:
            buffer.write_back()

    def run_alone(self) -> None:
        """Make the result of a single rank: nothing crosses a network, and nothing is rounded."""
        self.begin()
        for block, target in self.results.items():
            if block in self.contributions:
                target[:] = self.contributions[block]
        nothing = np.empty(0, self.dtype)
        self.end([self.contributions.get(block, nothing) for block in range(len(self.counts))])


def moved_blocks(
    count: int, sent: Mapping[int, Array], received: Mapping[int, Array]
) -> tuple[tuple[int, ...], Mapping[int, Array], Mapping[int, Array]]:
    """Return the elements of each of `count` blocks, 0 where this rank moves none, and both arguments."""
    blocks = {**sent, **received}
    return tuple(blocks[block].size if block in blocks else 0 for block in range(count)), sent, received
