"""Execution of a collective by the NIC: its memory, the work request, and the result.

Registered buffers are the NIC's to read and write until the request is complete. For others there is scratch memory:
contributions are copied there when a call is posted, and the result is copied back when it is complete.
"""

from __future__ import annotations

from softnic.collectives.elements import name_of
from softnic.comm.buffers import Array
from softnic.comm.collective_args import CollectiveArgs
from softnic.comm.connections import CommConnections
from softnic.comm.dtype_conversion import DtypeConversion
from softnic.comm.nic_memory import Address, NicMemory
from softnic.comm.offload_queue import PostedRequest
from softnic.comm.scratch import Allocation
from softnic.ipc.work_queue import WorkRequest


def post(connections: CommConnections, call: str, args: CollectiveArgs) -> PostedRequest:
    """Have the NIC execute a collective. A single rank is done at once. Raises CommError, OSError and ValueError."""
    rank, size = connections.progress.rank, len(connections.progress.peers) + 1
    if size == 1:
        args.run_alone()
        return PostedRequest(call)
    queue, memory = connections.queue, connections.memory
    assert queue is not None
    assert memory is not None
    staged = _StagedCollective(DtypeConversion(args, rank, size), rank, memory)
    return queue.post(call, lambda number: staged.describe(number, call), staged.finish)


def run(connections: CommConnections, call: str, args: CollectiveArgs) -> None:
    """Have the NIC execute a collective, and wait for it."""
    request = post(connections, call, args)
    if not request.settled:
        connections.matcher.wait(request, call)


class _StagedCollective:
    """A collective whose memory is registered: the caller's where it is, scratch memory otherwise. Raises OSError."""

    def __init__(self, conversion: DtypeConversion, rank: int, memory: NicMemory) -> None:
        self._conversion = conversion
        self._rank = rank
        self._memory = memory
        self._allocation: Allocation | None = None
        self._args = args = conversion.args
        address = None if conversion.converts or args.result is None else memory.address_of(args.result)
        if address is not None and args.result is not None:
            self._work: Array = args.result
        else:
            self._allocation, address = memory.allocate(args.count * conversion.dtype.itemsize)
            self._work = self._allocation.bytes.view(conversion.dtype)
            if conversion.converts:
                self._args = conversion.begin(self._work)
        self.result: Address = address
        self.source = self._place_source(self._work)

    def _place_source(self, work: Array) -> Address:
        """Put this rank's contribution where the NIC reads it."""
        args = self._args
        first = args.first_block(self._rank)
        if args.given is not None:
            work[args.blocks[self._rank]] = args.given
        elif args.collective in ("allgather", "bcast"):
            if first is not None and work is not args.source:
                work[args.blocks[first]] = args.source[args.blocks[first]]
        elif work is not args.source:
            address = self._memory.address_of(args.source)
            if address is not None:
                return address
            work[:] = args.source
        return self.result

    @property
    def _sends_result(self) -> bool:
        """Whether the result is what this rank has sent."""
        args = self._args
        return args.collective == "bcast" and self._rank == args.root and args.options.codec is None

    def describe(self, number: int, call: str) -> WorkRequest:
        """Return the work request of this number."""
        args, elements = self._args, name_of(self._conversion.elements)
        return WorkRequest(
            number,
            f"{call} of {elements}" if self._conversion.converts else call,  # all ranks must agree on it
            args.collective,
            args.algorithm,
            name_of(args.source.dtype),
            args.counts,
            self.source,
            self.result,
            args.op.name if args.op is not None else args.op_name,
            args.root,
            str(args.options.codec) if args.options.codec is not None else "",
        )

    def finish(self) -> None:
        """Copy the result to the caller's memory, once the NIC is done."""
        args = self._args
        if args.own is not None:
            args.own[:] = self._work[args.blocks[self._rank]]
        elif args.result is not None and self._work is not args.result and not self._sends_result:
            args.result[:] = self._work
        self._conversion.finish()
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            self._memory.scratch.free(allocation)
