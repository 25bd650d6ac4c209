"""Execution of a collective by the NIC: its memory, the work request, and the result.

Registered buffers are the NIC's to read and write until the request is complete. For others there is scratch memory.
Contributions are copied there when a call is posted, long ones in chunks while the NIC already sends the first ones;
the result is copied back when it is complete.

Elements that cross the network as float32 (softnic/collectives/elements.py) are converted as they are copied, and their
results are converted back: from the same float32 on every rank, and so to the same bits.
"""

from __future__ import annotations

from softnic.collectives import schedule
from softnic.collectives.elements import carried, convert, name_of
from softnic.comm.buffers import Array
from softnic.comm.collective_args import CollectiveArgs
from softnic.comm.connections import CommConnections
from softnic.comm.nic_memory import NicMemory
from softnic.comm.offload_queue import OffloadQueue, PostedRequest
from softnic.comm.scratch import Allocation
from softnic.ipc.work_queue import WorkRequest

CHUNK_BYTES = 1 << 20
"""Copied at a time. The NIC starts at once with contributions of more; a multiple of 64."""


def post(connections: CommConnections, call: str, args: CollectiveArgs) -> PostedRequest:
    """Have the NIC execute a collective. A single rank is done at once. Raises CommError, OSError and ValueError."""
    rank, size = connections.progress.rank, len(connections.progress.peers) + 1
    if size == 1:
        args.run_alone()
        return PostedRequest(call)
    queue, memory = connections.queue, connections.memory
    assert queue is not None
    assert memory is not None
    staged = _StagedCollective(args, rank, size, memory)
    request = queue.post(call, lambda number: staged.describe(number, call), staged.finish)
    staged.copy_chunks(queue, request)
    return request


def run(connections: CommConnections, call: str, args: CollectiveArgs) -> None:
    """Have the NIC execute a collective, and wait for it."""
    request = post(connections, call, args)
    if not request.settled:
        connections.matcher.wait(request, call)


class _StagedCollective:
    """A collective whose memory is registered: the caller's where it is, scratch memory otherwise. Raises OSError."""

    def __init__(self, args: CollectiveArgs, rank: int, size: int, memory: NicMemory) -> None:
        self._args = args
        self._rank = rank
        self._size = size
        self._memory = memory
        self._allocation: Allocation | None = None
        self._dtype, self._codec = carried(args.source.dtype, args.options.codec)
        self._converts = self._dtype != args.source.dtype
        address = None if self._converts or args.result is None else memory.address_of(args.result)
        if address is not None and args.result is not None:
            self._work: Array = args.result
        else:
            self._allocation, address = memory.allocate(args.count * self._dtype.itemsize)
            self._work = self._allocation.bytes.view(self._dtype)
        self._result = self._source = address
        self._contribution = self._find_contribution()
        self._in_chunks = sum(self._work[args.blocks[block]].nbytes for block in self._contribution) > CHUNK_BYTES
        if not self._in_chunks:
            for block, data in self._contribution.items():
                self._copy(data, self._work[args.blocks[block]])

    def _find_contribution(self) -> dict[int, Array]:
        """Return what is to be copied to the NIC's memory, by block; what is registered is used where it lies."""
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

    def _copy(self, source: Array, target: Array) -> None:
        if self._converts:
            convert(source, target)
        else:
            target[:] = source

    def copy_chunks(self, queue: OffloadQueue, request: PostedRequest) -> None:
        """Copy a long contribution, in the order in which blocks are used, while the NIC works on what is there."""
        if not self._in_chunks:
            return
        args, item = self._args, self._dtype.itemsize
        steps = schedule.plan(args.collective, args.algorithm, self._rank, self._size, args.root)
        count = CHUNK_BYTES // item
        for block in dict.fromkeys(step.block for step in steps if step.block in self._contribution):
            data, target = self._contribution[block], self._work[args.blocks[block]]
            for start in range(0, data.size, count):
                end = min(start + count, data.size)
                self._copy(data[start:end], target[start:end])
                queue.stage(request, block, end * item)

    def describe(self, number: int, call: str) -> WorkRequest:
        """Return the work request of this number."""
        args = self._args
        return WorkRequest(
            number,
            f"{call} of {name_of(args.source.dtype)}" if self._converts else call,  # all ranks must agree on it
            args.collective,
            args.algorithm,
            name_of(self._dtype),
            args.counts,
            self._source,
            self._result,
            args.op.name if args.op is not None else args.op_name,
            args.root,
            str(self._codec) if self._codec is not None else "",
            self._in_chunks,
        )

    def finish(self) -> None:
        """Copy the result to the caller's memory, once the NIC is done. May be called again if it was interrupted."""
        args = self._args
        sends_result = args.collective == "bcast" and self._rank == args.root and self._codec is None
        if args.own is not None:
            self._copy(self._work[args.blocks[self._rank]], args.own)
        elif args.result is not None and self._work is not args.result and not sends_result:
            self._copy(self._work, args.result)
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            self._memory.scratch.free(allocation)
