"""A work request as steps: what a rank sends and receives for one collective, in the queues to its peers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from softnic import codecs
from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.messages import CollectiveHeader, header_of, pack
from softnic.collectives.operations import Array, element_type, nbytes, reduction
from softnic.collectives.peer_queue import PeerQueue, Step
from softnic.collectives.schedule import RecvBlock, Schedule, SendBlock
from softnic.collectives.steps import Block, EngineOp
from softnic.collectives.stream import CODING_BLOCK
from softnic.ipc.work_queue import WorkRequest

_REDUCING = frozenset({"allreduce", "reduce", "reduce_scatter", *schedule.SCANS})
_SENDS_CONTRIBUTIONS = _REDUCING.union(schedule.EXCHANGES)
"""Collectives in which a rank first sends its own contribution, not a result."""
_ROOTED = frozenset({"reduce", "bcast", "gather", "scatter"})
_ROUNDED = frozenset({"allreduce", "reduce"})
"""Collectives whose owner of a block keeps what the codec makes of it. In a reduce_scatter, nobody else gets it."""


LANE_GRAIN = 4096
"""Bytes, of which a lane's share of a block is a multiple: coding blocks are whole, and codecs give the same bits."""


class LanePart(NamedTuple):
    """The part of a collective that one of its lanes executes: the same fraction of each block of the schedule. So what
    is added to what, and in which order, does not depend on the number of lanes."""

    lane: int = 0
    lanes: int = 1

    def of(self, size: int) -> tuple[int, int]:
        """Return where this part of a block of `size` bytes begins, and where it ends."""
        begin = size * self.lane // self.lanes // LANE_GRAIN * LANE_GRAIN
        end = size * (self.lane + 1) // self.lanes // LANE_GRAIN * LANE_GRAIN
        return begin, size if self.lane == self.lanes - 1 else end


WHOLE = LanePart()


class CollectiveOp(EngineOp):
    """A collective in progress on this rank, or the part of it that a lane executes.

    `source` and `result` are the memory of all blocks. Raises ValueError for a work request that no process makes.
    """

    __slots__ = (
        "_blocks", "_codec", "_latest", "_own", "_readers", "_reduction", "_result", "_results", "_size", "_source",
        "_sources", "_staged", "header", "peers", "steps",
    )  # fmt: skip

    def __init__(
        self,
        request: WorkRequest,
        rank: int,
        size: int,
        source: memoryview,
        result: memoryview,
        part: LanePart = WHOLE,
    ) -> None:
        self.header: CollectiveHeader = header_of(request)
        """What all ranks agree on."""
        self._size = size
        _check(request, size)
        self.steps: Schedule = schedule.plan(request.collective, request.algorithm, rank, size, request.root)
        self.peers = sorted({step.peer for step in self.steps})
        blocks = len(request.counts)
        most = len(self.steps) + 2 * blocks
        super().__init__(request.number, request.call, most, 1 + len(self.peers))  # the 1 is for `start`
        dtype = element_type(request.dtype)
        self._codec = _codec_of(request.codec, dtype)
        if len(source) != nbytes(request) or len(result) != len(source):
            raise ValueError(f"{len(source)} and {len(result)} bytes for {sum(request.counts)} x {request.dtype}")
        self._source, self._result = self.keep(source), self.keep(result)
        self._sources: Array = np.frombuffer(source, dtype)
        self._results: Array = np.frombuffer(result, dtype)
        if request.collective in _REDUCING:
            self._reduction = reduction(request.op, dtype)
        sizes = [count * dtype.itemsize for count in request.counts]
        parts = [part.of(size) for size in sizes]
        self._blocks = [
            Block(start + begin, end - begin, self._codec)
            for start, (begin, end) in zip(accumulate(sizes, initial=0), parts, strict=False)
        ]
        contributed = self._contributed()
        self._own = [index for index, block in enumerate(self._blocks) if block.size and index in contributed]
        """Blocks to which this rank contributes."""
        self._staged = {index: self.staged(self._blocks[index]) for index in self._own if request.staged}
        self._latest: dict[int, Step] = {}
        """By block, its last receive so far."""
        self._readers: dict[int, list[Step]] = {}
        """By block, sends of the memory that the next receive overwrites."""

    def headers_of(self, peer: int) -> tuple[CollectiveHeader, CollectiveHeader]:
        """Return what this rank sends a peer, and what it expects from there: of an exchange, the blocks of the two."""
        if self.header.collective not in schedule.EXCHANGES:
            return self.header, self.header
        sent, received = (
            sum(self.header.counts[step.block] for step in self.steps if step.peer == peer and isinstance(step, kind))
            for kind in (SendBlock, RecvBlock)
        )
        own, theirs = (sent, received), (received, sent)
        return self.header.with_counts(own), self.header.with_counts(theirs)

    def messages(self) -> list[tuple[bytes, bytes]]:
        """Return, by peer, the header that this rank sends and the one that it expects."""
        if self.header.collective not in schedule.EXCHANGES:
            message = pack(self.header)
            return [(message, message)] * len(self.peers)
        return [(pack(own), pack(theirs)) for own, theirs in map(self.headers_of, self.peers)]

    def _contributed(self) -> set[int]:
        """Return the blocks that this rank has before anything is received."""
        collective = self.header.collective
        if collective in schedule.EXCHANGES:
            return {step.block for step in self.steps if isinstance(step, SendBlock)}
        if collective == "exscan":
            return {0}
        received = {step.block for step in self.steps if isinstance(step, RecvBlock)} if self._sends_results else set()
        return set(range(len(self._blocks))) - received

    def start(self, queues: Mapping[int, PeerQueue]) -> None:
        """Queue all steps. The engine then counts the start as done."""
        own = self._settle_own_blocks()
        in_place = self._source == self._result
        codec = None if self._codec is None else str(self._codec)
        for step in self.steps:
            block = self._blocks[step.block]
            if not block.size:
                continue
            queue = queues[step.peer]
            before, staged = self._latest.get(step.block), self._staged.get(step.block)
            if isinstance(step, RecvBlock):
                self._latest[step.block] = self._receive(queue, step, block, before, staged)
            else:
                from_result = before is not None or self._sends_results
                memory = self._result if from_result else self._source
                send = self.send(queue, block, memory, codec, before or own.get(step.block) or staged)
                if from_result or in_place:
                    self._readers.setdefault(step.block, []).append(send)
            self.c.pending += 1
        self._latest.clear()
        self._readers.clear()

    @property
    def _sends_results(self) -> bool:
        """Whether the first block that a rank sends is a result, not a contribution to one."""
        return self.header.collective not in _SENDS_CONTRIBUTIONS

    def _settle_own_blocks(self) -> dict[int, Step]:
        """Put blocks that are never received in their place; return those that are still to be rounded."""
        rounded: dict[int, Step] = {}
        if not self._sends_results and self._size > 1:
            return rounded
        for index in self._own:
            block = self._blocks[index]
            if self._source != self._result:
                _part(self._results, block)[:] = _part(self._sources, block)
            if self._codec is not None and self._size > 1:
                rounded[index] = self.rounded(block, self._result, self._codec, self._staged.get(index))
        return rounded

    def stage(self, index: int, size: int) -> None:
        """Note that the first bytes of a block of the contribution are there. Raises ValueError."""
        staged = self._staged.get(index)
        if staged is None or not staged.ready < size <= staged.size or (size % CODING_BLOCK and size < staged.size):
            raise ValueError(f"no {size} bytes of block {index} are to be staged")
        staged.ready = size

    def _receive(
        self, queue: PeerQueue, step: RecvBlock, block: Block, before: Step | None, staged: Step | None
    ) -> Step:
        readers = self._readers.pop(step.block, [])
        if not step.combine:
            return self.copy(queue, block, self._result, before or staged, readers)
        base = self._source if before is None else self._result
        receive = self.combine(queue, block, self._result, before or staged, readers, base)
        self.reduce_by(receive, self._reduction, self._size if step.last and self._reduction.average else 0)
        if step.last and self._codec is not None and self.header.collective in _ROUNDED:
            self.round_by(receive, self._codec)
        return receive


def _check(request: WorkRequest, size: int) -> None:
    count = len(schedule.blocks(request.collective, request.algorithm, 0, size))
    if len(request.counts) != count:
        raise ValueError(f"a {request.collective} has {count} blocks, not {list(request.counts)[:16]}")
    if request.collective in _ROOTED and not 0 <= request.root < size:
        raise ValueError(f"there is no root {request.root} among {size} ranks")


def _part(array: Array, block: Block) -> Array:
    item = array.itemsize
    return array[block.start // item : (block.start + block.size) // item]


def _codec_of(text: str, dtype: np.dtype[np.generic]) -> Codec | None:
    """Return the codec; None: exact. Raises ValueError."""
    codec = codecs.get(text) if text else None
    if codec is None or not codec.number:
        return None
    if dtype != np.float32:
        raise ValueError(f"{text} is a codec of float32, not of {dtype.name}")
    return codec
