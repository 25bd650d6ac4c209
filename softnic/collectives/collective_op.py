"""A Post made into moves: what a rank sends and receives for one collective, put into the lanes to its peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from softnic import codecs
from softnic.codecs import Codec
from softnic.collectives import schedule
from softnic.collectives.arithmetic import Array, element_type, nbytes, operation
from softnic.collectives.messages import Head, head_of
from softnic.collectives.peer_queue import Lane
from softnic.collectives.schedule import Receive, Schedule
from softnic.collectives.steps import Block, Combined, Incoming, Outgoing, Placed, Rounded
from softnic.ipc.work_queue import Post
from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.direct_placement import address_of

TAG_TOS = 0x28
"""The type of service that selects compression (INCEPTIONN, section VI)."""
_COMBINING = frozenset({"allreduce", "reduce", "reduce_scatter"})
_ROUNDED = frozenset({"allreduce", "reduce"})
"""Whose owners keep what the codec makes of their blocks; those of a reduce_scatter send theirs to nobody."""


class Request:
    """A collective in progress on this rank. Raises ValueError for a Post that no process makes.

    `source` and `result` hold all blocks, as the Post says.
    """

    def __init__(self, post: Post, rank: int, size: int, source: memoryview, result: memoryview) -> None:
        self.number = post.number
        self.head: Head = head_of(post)
        self._rank, self._size = rank, size
        self._check(post)
        self.steps: Schedule = schedule.plan(post.collective, post.algorithm, rank, size, post.root)
        self.peers = sorted({step.peer for step in self.steps})
        dtype = element_type(post.dtype)
        self._codec = _codec_of(post.codec, dtype)
        if len(source) != nbytes(post) or len(result) != len(source):
            raise ValueError(f"{len(source)} and {len(result)} bytes for {sum(post.counts)} x {post.dtype}")
        self._source, self._result = source, result
        self._sources: Array = np.frombuffer(source, dtype)
        self._results: Array = np.frombuffer(result, dtype)
        if post.collective in _COMBINING:
            self._combine, self._finish = operation(post.op, dtype, size)
        self._tag = PLAIN if self._codec is None else Tag(TAG_TOS, str(self._codec))
        ends = list(accumulate(count * dtype.itemsize for count in post.counts))
        self._blocks = [Block(end - count * dtype.itemsize, count * dtype.itemsize, self._codec is not None)
                        for end, count in zip(ends, post.counts, strict=True)]  # fmt: skip
        self.left = 1 + len(self.peers)
        """Heads that have not come, moves that are not done, and `start`."""
        self._through: Callable[[Request], object] = _nobody
        self.marks: dict[Lane, int] = {}
        """By lane: of all bytes lent so far, how many are to be returned before this is over."""

    def _check(self, post: Post) -> None:
        count = len(schedule.blocks(post.collective, post.algorithm, 0, self._size))
        if len(post.counts) != count:
            raise ValueError(f"a {post.collective} has {count} blocks, not {list(post.counts)[:16]}")
        if post.collective in ("reduce", "bcast") and not 0 <= post.root < self._size:
            raise ValueError(f"there is no root {post.root} among {self._size} ranks")

    def start(self, lanes: Mapping[int, Lane], through: Callable[[Request], object]) -> None:
        """Queues all moves; what the rank owns from the start takes its place. `through` is told when all Heads have
        come and all moves are done."""
        self._through = through
        own = self._settle()
        in_place = address_of(self._source) == address_of(self._result) if self._source else False
        latest: dict[int, Incoming] = {}
        """By block: what came for it so far."""
        readers: dict[int, list[tuple[Outgoing, Lane]]] = {}
        """By block: sends of the memory that the next receive overwrites."""
        for step in self.steps:
            block = self._blocks[step.block]
            if not block.size:
                continue
            lane = lanes[step.peer]
            before = latest.get(step.block)
            if isinstance(step, Receive):
                move = self._receive(step, block, before, readers.pop(step.block, []))
                latest[step.block] = move
                lane.incoming.append(move)
            else:
                memory = self._result if before is not None or self._owns else self._source
                outgoing = Outgoing(self, block, memory, self._tag, before or own.get(step.block))
                lane.outgoing.append(outgoing)
                if before is not None or in_place or self._owns:
                    readers.setdefault(step.block, []).append((outgoing, lane))
            self.left += 1
        self.moved()

    @property
    def _owns(self) -> bool:
        """What the rank sends first is nothing that it contributes to a block, but the block itself."""
        return self.head.collective not in _COMBINING

    def _settle(self) -> dict[int, Rounded]:
        """Blocks that this rank alone brings, or nobody else has anything to do with, are results from the start.
        Returns those that are still to be rounded."""
        rounded: dict[int, Rounded] = {}
        if not self._owns and self._size > 1:
            return rounded
        coming = {step.block for step in self.steps if isinstance(step, Receive)}
        for index, block in enumerate(self._blocks):
            if index in coming or not block.size:
                continue
            own, result = self._part(self._sources, block), self._part(self._results, block)
            if address_of(own) != address_of(result):
                result[:] = own
            if self._codec is not None and self._size > 1:
                rounded[index] = Rounded(self._codec, result)
        return rounded

    def _part(self, array: Array, block: Block) -> Array:
        item = array.itemsize
        return array[block.start // item : (block.start + block.size) // item]

    def _receive(
        self, step: Receive, block: Block, before: Incoming | None, readers: list[tuple[Outgoing, Lane]]
    ) -> Incoming:
        if not step.combine:
            return Placed(self, block, self._result, before, readers)
        base = self._sources if before is None else self._results
        arrays = self._part(base, block), self._part(self._results, block)
        move = Combined(self, block, self._result, before, readers, arrays, self._combine)
        if step.last:
            move.last(self._finish, self._codec if self.head.collective in _ROUNDED else None)
        return move

    def moved(self) -> None:
        """One of its moves is done, or a Head has come."""
        self.left -= 1
        if not self.left:
            self._through(self)


def _nobody(request: Request) -> None:
    del request


def _codec_of(text: str, dtype: np.dtype[Any]) -> Codec | None:
    """Raises ValueError. None: exact."""
    codec = codecs.get(text) if text else None
    if codec is None or not codec.number:
        return None
    if dtype != np.float32:
        raise ValueError(f"{text} is a codec of float32, not of {dtype.name}")
    return codec
