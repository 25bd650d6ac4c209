"""A work request as steps: what a rank sends and receives for one collective, in the queues to its peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np

from softnic import codecs
from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.messages import CollectiveHeader, header_of
from softnic.collectives.operations import Array, element_type, nbytes, operation
from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.schedule import RecvBlock, Schedule
from softnic.collectives.steps import (
    Block,
    CopyRecv,
    EngineOp,
    Readers,
    RecvStep,
    ReduceRecv,
    RoundedBlock,
    SendStep,
    StagedBlock,
)
from softnic.collectives.stream import CODING_BLOCK
from softnic.ipc.work_queue import WorkRequest

_REDUCING = frozenset({"allreduce", "reduce", "reduce_scatter"})
_ROUNDED = frozenset({"allreduce", "reduce"})
"""Collectives whose owner of a block keeps what the codec makes of it. In a reduce_scatter, nobody else gets it."""


class CollectiveOp(EngineOp):
    """A collective in progress on this rank.

    `source` and `result` are the memory of all blocks. Raises ValueError for a work request that no process makes.
    """

    __slots__ = (
        "_blocks", "_codec", "_finish", "_latest", "_operation", "_own", "_rank", "_readers", "_result", "_results",
        "_size", "_source", "_sources", "_staged", "header", "peers", "steps",
    )  # fmt: skip

    def __init__(self, request: WorkRequest, rank: int, size: int, source: memoryview, result: memoryview) -> None:
        super().__init__(request.number, request.call)
        self.header: CollectiveHeader = header_of(request)
        self._rank, self._size = rank, size
        _check(request, size)
        self.steps: Schedule = schedule.plan(request.collective, request.algorithm, rank, size, request.root)
        self.peers = sorted({step.peer for step in self.steps})
        dtype = element_type(request.dtype)
        self._codec = _codec_of(request.codec, dtype)
        if len(source) != nbytes(request) or len(result) != len(source):
            raise ValueError(f"{len(source)} and {len(result)} bytes for {sum(request.counts)} x {request.dtype}")
        self._source, self._result = source, result
        self._sources: Array = np.frombuffer(source, dtype)
        self._results: Array = np.frombuffer(result, dtype)
        if request.collective in _REDUCING:
            self._operation, self._finish = operation(request.op, dtype, size)
        ends = list(accumulate(count * dtype.itemsize for count in request.counts))
        compressed = self._codec is not None
        self._blocks = [
            Block(end - count * dtype.itemsize, count * dtype.itemsize, compressed)
            for end, count in zip(ends, request.counts, strict=True)
        ]
        received = {step.block for step in self.steps if isinstance(step, RecvBlock)} if self._sends_results else ()
        self._own = [index for index, block in enumerate(self._blocks) if block.size and index not in received]
        """Blocks to which this rank contributes."""
        self._staged = {index: StagedBlock(self._blocks[index].size) for index in self._own if request.staged}
        self.pending = 1 + len(self.peers)  # the 1 is for `start`
        self._latest: dict[int, RecvStep] = {}
        """By block, its last receive so far."""
        self._readers: dict[int, Readers] = {}
        """By block, sends of the memory that the next receive overwrites."""

    def start(self, queues: Mapping[int, PeerQueue], on_done: Callable[[CollectiveOp], object]) -> None:
        """Queue all steps. `on_done` is called when all headers have arrived and all steps are done."""
        self._on_done = on_done
        own = self._settle_own_blocks()
        in_place = bool(self._source) and _address(self._sources) == _address(self._results)
        codec = None if self._codec is None else str(self._codec)
        for step in self.steps:
            block = self._blocks[step.block]
            if not block.size:
                continue
            queue = queues[step.peer]
            before, staged = self._latest.get(step.block), self._staged.get(step.block)
            if isinstance(step, RecvBlock):
                self._latest[step.block] = receive = self._receive(step, block, before, staged)
                queue.incoming.append(receive)
            else:
                memory = self._result if before is not None or self._sends_results else self._source
                send = SendStep(self, block, memory, codec, before or own.get(step.block) or staged)
                queue.outgoing.append(send)
                if before is not None or in_place or self._sends_results:
                    self._readers.setdefault(step.block, []).append((send, queue.stream))
            self.pending += 1
        self._latest.clear()
        self._readers.clear()
        self.on_step_done()

    @property
    def _sends_results(self) -> bool:
        """Whether the first block that a rank sends is a result, not a contribution to one."""
        return self.header.collective not in _REDUCING

    def _settle_own_blocks(self) -> dict[int, RoundedBlock]:
        """Put blocks that are never received in their place; return those that are still to be rounded."""
        rounded: dict[int, RoundedBlock] = {}
        if not self._sends_results and self._size > 1:
            return rounded
        for index in self._own:
            block = self._blocks[index]
            own, result = _part(self._sources, block), _part(self._results, block)
            if _address(own) != _address(result):
                result[:] = own
            if self._codec is not None and self._size > 1:
                rounded[index] = RoundedBlock(self._codec, result, self._staged.get(index))
        return rounded

    def stage(self, index: int, size: int) -> None:
        """Note that the first bytes of a block of the contribution are there. Raises ValueError."""
        staged = self._staged.get(index)
        if staged is None or not staged.ready < size <= staged.size or (size % CODING_BLOCK and size < staged.size):
            raise ValueError(f"no {size} bytes of block {index} are to be staged")
        staged.ready = size

    def _receive(self, step: RecvBlock, block: Block, before: RecvStep | None, staged: StagedBlock | None) -> RecvStep:
        readers = self._readers.pop(step.block, [])
        if not step.combine:
            return CopyRecv(self, block, self._result, before or staged, readers)
        base = self._sources if before is None else self._results
        result = _part(self._results, block)
        reducer = self._operation.reducer(_part(base, block), result)
        receive = ReduceRecv(self, block, self._result, before or staged, readers, result, reducer)
        if step.last:
            receive.set_last(self._finish, self._codec if self.header.collective in _ROUNDED else None)
        return receive


def _check(request: WorkRequest, size: int) -> None:
    count = len(schedule.blocks(request.collective, request.algorithm, 0, size))
    if len(request.counts) != count:
        raise ValueError(f"a {request.collective} has {count} blocks, not {list(request.counts)[:16]}")
    if request.collective in ("reduce", "bcast") and not 0 <= request.root < size:
        raise ValueError(f"there is no root {request.root} among {size} ranks")


def _part(array: Array, block: Block) -> Array:
    item = array.itemsize
    return array[block.start // item : (block.start + block.size) // item]


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _codec_of(text: str, dtype: np.dtype[np.generic]) -> Codec | None:
    """Return the codec; None: exact. Raises ValueError."""
    codec = codecs.get(text) if text else None
    if codec is None or not codec.number:
        return None
    if dtype != np.float32:
        raise ValueError(f"{text} is a codec of float32, not of {dtype.name}")
    return codec
