"""Execution of a collective by the NIC: its memory, the work request, and the result.

Registered buffers are the NIC's to read and write until the request is complete. For others there is scratch memory.
Contributions are copied there when a call is posted, long ones in chunks while the NIC already sends the first ones;
the result is copied back when it is complete.

Elements that cross the network as float32 (softnic/collectives/elements.py) are converted as they are copied, and their
results are converted back: from the same float32 on every rank, and so to the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.codecs import threads
from softnic.collectives import schedule
from softnic.collectives.elements import Array, carried, convert, name_of
from softnic.comm.connections import CommConnections
from softnic.comm.nic_memory import Address, NicMemory
from softnic.comm.offload_queue import OffloadQueue, PostedRequest
from softnic.comm.scratch import Allocation
from softnic.ipc.work_queue import WorkRequest
from softnic.mpi.collectives.parts import BlockArgs, CollectiveArgs

CHUNK_BYTES = 1 << 20
"""Copied at a time, by each thread more. The NIC starts at once with contributions of more; a multiple of 64."""


def post(connections: CommConnections, call: str, args: CollectiveArgs | BlockArgs) -> PostedRequest:
    """Have the NIC execute a collective. A single rank is done at once. Raises CommError, OSError and ValueError."""
    rank, size = connections.progress.rank, len(connections.progress.peers) + 1
    if size == 1:
        args.run_alone()
        return PostedRequest(call)
    if connections.progress.mesh is not None:
        place = args.collective, args.algorithm, rank, size, args.root
        connections.progress.want_ranks(schedule.peers(*place))
    queue, memory = connections.queue, connections.memory
    assert queue is not None
    assert memory is not None
    staged = _StagedBlocks(args, memory) if isinstance(args, BlockArgs) else _StagedCollective(args, rank, memory)
    request = queue.post(call, lambda number: staged.describe(number, call), staged.finish)
    staged.copy_chunks(queue, request, rank, size)
    return request


def run(connections: CommConnections, call: str, args: CollectiveArgs | BlockArgs) -> None:
    """Have the NIC execute a collective, and wait for it."""
    request = post(connections, call, args)
    if not request.settled:
        connections.matcher.wait(request, call)
    request.result()


class _Staged:
    """A collective whose memory is registered: the caller's where it is, scratch memory otherwise.

    A subclass sets `_work`, `_source` and `_result`: the memory of all blocks, and its addresses.
    """

    _work: Array
    _source: Address
    _result: Address

    def __init__(self, args: CollectiveArgs | BlockArgs, dtype: np.dtype[Any], memory: NicMemory) -> None:
        self._collective = args
        self._memory = memory
        self._allocation: Allocation | None = None
        self._contribution: dict[int, Array] = {}
        """What is to be copied to the NIC's memory, by block; what is registered is used where it lies."""
        self._in_chunks = False
        self._given_dtype = dtype
        self._dtype, self._codec = carried(dtype, args.options.codec)
        self._converts = self._dtype != dtype

    def _allocate(self, count: int) -> Address:
        self._allocation, address = self._memory.allocate(count * self._dtype.itemsize)
        self._work = self._allocation.bytes.view(self._dtype)
        return address

    def _copy(self, source: Array, target: Array) -> None:
        if self._converts:
            convert(source, target)
        else:
            threads.copy(source, target)

    def _begin_copying(self, contribution: dict[int, Array]) -> None:
        """Copy a contribution, or leave it to `copy_chunks` if it is long."""
        blocks = self._collective.blocks
        self._contribution = contribution
        self._in_chunks = sum(self._work[blocks[block]].nbytes for block in contribution) > CHUNK_BYTES
        if not self._in_chunks:
            for block, data in contribution.items():
                self._copy(data, self._work[blocks[block]])

    def copy_chunks(self, queue: OffloadQueue, request: PostedRequest, rank: int, size: int) -> None:
        """Copy a long contribution, in the order in which blocks are used, while the NIC works on what is there."""
        if not self._in_chunks:
            return
        args, item = self._collective, self._dtype.itemsize
        steps = schedule.plan(args.collective, args.algorithm, rank, size, args.root)
        several = threads.threads_for(self._work.nbytes)
        count = (CHUNK_BYTES if several == 1 else several * threads.BYTES_A_THREAD) // item
        for block in dict.fromkeys(step.block for step in steps if step.block in self._contribution):
            data, target = self._contribution[block], self._work[args.blocks[block]]
            for start in range(0, data.size, count):
                end = min(start + count, data.size)
                self._copy(data[start:end], target[start:end])
                queue.stage(request, block, end * item)

    def describe(self, number: int, call: str) -> WorkRequest:
        """Return the work request of this number."""
        args = self._collective
        op = args.op.name if isinstance(args, CollectiveArgs) and args.op is not None else args.op_name
        return WorkRequest(
            number,
            f"{call} of {name_of(self._given_dtype)}" if self._converts else call,  # all ranks must agree on it
            args.collective,
            args.algorithm,
            name_of(self._dtype),
            args.counts,
            self._source,
            self._result,
            op,
            args.root,
            str(self._codec) if self._codec is not None else "",
            self._in_chunks,
        )

    def finish(self) -> None:
        """Copy the result to the caller's memory, once the NIC is done. May be called again if it was interrupted."""
        try:
            self._deliver()
        except Exception:  # of an operator of the program, for example
            self._release()
            raise
        self._release()

    def _release(self) -> None:
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            self._memory.scratch.free(allocation)

    def _deliver(self) -> None:
        raise NotImplementedError


class _StagedCollective(_Staged):
    """A collective on whole buffers. Raises OSError."""

    def __init__(self, args: CollectiveArgs, rank: int, memory: NicMemory) -> None:
        super().__init__(args, args.source.dtype, memory)
        self._args = args
        self._rank = rank
        address = None if self._converts or args.result is None else memory.address_of(args.result)
        if address is not None and args.result is not None:
            self._work = args.result
        else:
            address = self._allocate(args.count)
        self._result = self._source = address
        self._begin_copying(self._find_contribution())

    def _find_contribution(self) -> dict[int, Array]:
        args = self._args
        if args.given is not None:
            return {self._rank: args.given}
        if self._work is args.source:
            return {}
        own = args.own_blocks(self._rank)
        if own is None and not self._converts:
            address = self._memory.address_of(args.source)
            if address is not None:
                self._source = address
                return {}
        return {block: args.source[args.blocks[block]] for block in (range(len(args.counts)) if own is None else own)}

    def _deliver(self) -> None:
        args = self._args
        sends_result = args.collective == "bcast" and self._rank == args.root and self._codec is None
        if args.own is not None:
            self._copy(self._work[args.blocks[self._rank]], args.own)
        elif args.result is not None and self._work is not args.result and not sends_result:
            self._copy(self._work, args.result)
        args.write_back()


class _StagedBlocks(_Staged):
    """A collective on blocks, in scratch memory. Raises OSError."""

    def __init__(self, args: BlockArgs, memory: NicMemory) -> None:
        super().__init__(args, args.dtype, memory)
        self._args = args
        self._result = self._source = self._allocate(sum(args.counts))
        self._begin_copying(dict(args.contributions))
        args.begin()

    def _deliver(self) -> None:
        args = self._args
        for block, target in args.results.items():
            self._copy(self._work[args.blocks[block]], target)
        if args.finish is None:
            args.end(())
        else:
            args.end([self._taken(part) for part in args.blocks])

    def _taken(self, part: slice) -> Array:
        """Return a block as elements of the caller's type."""
        if not self._converts:
            return self._work[part]
        taken = np.empty(part.stop - part.start, self._given_dtype)
        self._copy(self._work[part], taken)
        return taken
