"""Shares of sums among the ranks of a host by its memory, where they have no GPUs of their own.

Every rank copies what it has to registered memory and says to the others where that is. They map it, copy what they
need of it to their GPUs, and say so. Mappings are kept, as registered memory is reused.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np
import torch

from softnic.collectives.elements import Array
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.scratch import IDLE_BYTES
from softnic.torch.devices import page_locker
from softnic.torch.encoded import Result, Steps
from softnic.torch.exec_context import ExecContext, tag_of
from softnic.torch.hosts import RankPlace

_NOTE = 3
"""Numbers of a message: a file descriptor of the sender, the inode of its file, and where its elements begin."""


class MemoryShares:
    """A ShareExchange (local.py) of these ranks, of which this one has a place, by the ids of their processes."""

    numbers = 4

    def __init__(self, ranks: Sequence[int], place: int, processes: Sequence[int], device: torch.device) -> None:
        self._place = place
        self._others = [(index, rank) for index, rank in enumerate(ranks) if index != place]
        self._processes = processes
        self._lock_pages = page_locker(device)
        self._mapped: dict[tuple[int, int], Array] = {}
        """By process and inode; least recently used first."""

    def scatter(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        rows = target.view(1 + len(self._others), -1)
        yield from self._exchanged(context, number, source, self._place * rows.shape[1], rows)

    def gather(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        yield from self._exchanged(context, number + 2, source, 0, target.view(1 + len(self._others), -1))

    def _exchanged(
        self, context: ExecContext, number: int, source: torch.Tensor, start: int, rows: torch.Tensor
    ) -> Steps:
        """Copy each rank's `source`, from `start` on, to its row."""
        pool, streams = context.pool(source.device), context.streams(source.device)
        memory = pool.allocate(source.nbytes)
        with streams.kernels():
            rows[self._place].copy_(source[start : start + rows.shape[1]])
        copy = (source, torch.from_numpy(memory.bytes).view(source.dtype))
        (copied,) = context.watched([streams.download([copy], [streams.mark()])])
        yield copied.query
        file = memory.region.fd
        notes = yield from self._told(context, number, (file, os.fstat(file).st_ino, memory.offset))
        copies = []
        for (index, rank), note in zip(self._others, notes, strict=True):
            begin = note[2] + start * source.itemsize
            given = self._mapping(index, *note[:2])[begin : begin + rows[index].nbytes]
            if begin < 0 or given.nbytes < rows[index].nbytes:
                raise ArgumentError(f"rank {rank} has no share in the memory that it names", rank=rank)
            copies.append((torch.from_numpy(given).view(source.dtype), rows[index]))
        (uploaded,) = context.watched([streams.upload(copies, [streams.mark()])])
        yield uploaded.query
        yield from self._told(context, number + 1, (0,) * _NOTE)
        pool.free(memory)

    def _told(self, context: ExecContext, number: int, note: Sequence[int]) -> Result[list[list[int]]]:
        """Send a message to each other rank; return theirs."""
        pool, tag = context.pool(), tag_of(number)
        memory = [pool.allocate(8 * _NOTE) for _ in range(1 + len(self._others))]
        own, *theirs = [each.bytes.view(np.int64) for each in memory]
        own[:] = note
        ranks = [rank for _, rank in self._others]
        receiving = [context.loop.receive(rank, tag, each) for rank, each in zip(ranks, theirs, strict=True)]
        sending = [context.loop.send(rank, tag, own) for rank in ranks]
        yield lambda: all([each.is_complete for each in receiving]) and all([each.is_complete for each in sending])
        found = [each.tolist() for each in theirs]
        for each in memory:
            pool.free(each)
        return found

    def _mapping(self, index: int, file: int, inode: int) -> Array:
        """Return the memory that a rank's file is. Raises CommError."""
        process = self._processes[index]
        found = self._mapped.pop((process, inode), None)
        if found is None:
            found = mapped(process, file, inode)
            self._lock_pages(found)
        self._mapped[process, inode] = found
        most = IDLE_BYTES * len(self._others)
        while len(self._mapped) > len(self._others) and sum(each.nbytes for each in self._mapped.values()) > most:
            del self._mapped[next(iter(self._mapped))]
        return found

    def close(self) -> None:
        self._mapped.clear()


def mapped(process: int, file: int, inode: int) -> Array:
    """Return the memory that a file descriptor of a process of this user stands for. Raises CommError."""
    try:
        own = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(own).st_ino != inode:
                raise OSError("it is another file")
            return np.frombuffer(mmap.mmap(own, 0), np.uint8)
        finally:
            os.close(own)
    except (OSError, ValueError) as error:
        raise CommError(f"the memory of process {process} of this host cannot be mapped: {error}") from error


def connect(ranks: Sequence[int], place: int, places: Sequence[RankPlace], device: torch.device) -> MemoryShares:
    """Return the exchange of the ranks of this host, given their places. Raises CommError."""
    for each in places:
        if mapped(each.process, each.file, each.inode)[: len(each.token)].tobytes() != each.token.encode():
            raise CommError(f"process {each.process} is not that of a rank of this host")
    return MemoryShares(ranks, place, [each.process for each in places], device)
