"""Work requests of a process to its NIC, and their completions, as in RDMA verbs.

A process hands its NIC the connections of a communicator by `Join` (control protocol), and with it one end of a
SOCK_SEQPACKET pair, the work queue's socket: one message a packet, msgpack. A WorkRequest is a collective to be
executed; a SendRequest or RecvRequest is a single message, or a part of one. All name registered memory. The NIC starts
requests in the order in which they were posted, executes several at a time, and answers each by a WorkCompletion, in
any order; or all that are not complete by one WorkFailed, after which the queue is of no use. A NIC that has
MAX_WORK_REQUESTS in progress reads no further ones.

The memory of a request is the NIC's until its completion: what is sent must not change, and what is received has no
meaning. When the process closes the socket, or dies, the NIC releases all of it at once.
"""

from __future__ import annotations

import msgspec

MAX_WORK_REQUESTS = 1024
"""Requests of one queue in progress at a time."""
MAX_PACKET = 1 << 20
"""Bytes of a message: enough for the blocks of 65,536 ranks."""


class WorkRequest(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A collective. All ranks must agree on everything but the memory; in `gather`, `scatter` and `alltoall`, where a
    rank knows its own blocks alone, on each block that goes from one to another."""

    number: int
    """Counts this queue's collectives, from 1."""
    call: str
    """The user's call (`Iallreduce_comp`): for errors, and to be the same on all ranks."""
    collective: str
    """`allreduce`, `reduce`, `reduce_scatter`, `allgather`, `bcast`, `gather`, `scatter`, `alltoall`, `scan`, `exscan`:
    names the schedule."""
    algorithm: str
    """A name of softnic/collectives/schedule."""
    dtype: str
    """numpy's name, or `bfloat16`."""
    counts: tuple[int, ...]
    """Elements of each block, in the order in which they lie in `source` and `result`."""
    source: tuple[int, int]
    """Region and offset of this rank's contribution: all blocks."""
    result: tuple[int, int]
    """Region and offset of the results: all blocks. Blocks without a result for this rank are overwritten with
    anything. May be the same as `source`."""
    op: str = ""
    """SUM, PROD, MIN, MAX, AVG; empty where nothing is combined."""
    root: int = -1
    codec: str = ""
    """As in `bounded:10`; empty: exact."""
    staged: bool = False
    """Whether the contribution is not there yet: a StagedPart follows for each part of it."""


class StagedPart(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """The first `size` bytes of a block of this rank's contribution are in `source`: a multiple of 64, or all."""

    number: int
    """Of the WorkRequest, which is `staged`."""
    block: int
    size: int


class CancelRequest(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Gives a request up, and with it the communicator on all ranks: they cannot go on without this one. Ignored if the
    request is complete."""

    number: int
    """0: no request, but the communicator."""
    rank: int | None = None
    """The rank at fault, as the process has noticed; None: it gives up by itself."""
    text: str = ""
    """What has happened."""


class WorkCompletion(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The request is done, and all its memory is the process's again."""

    number: int
    rate: float = 0.0
    """The highest rate at which this rank's link carried what was sent meanwhile, in wire bytes per second; 0: nothing
    was sent for long enough (native/collectives/rate_meter.c)."""


class WorkFailed(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """No request that is not complete will be; all memory is the process's again."""

    rank: int
    """The rank at fault, -1 if it is not a single one."""
    text: str


class SendRequest(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The next bytes of the message stream to a rank."""

    number: int
    """Below 0, unique among the messages in progress."""
    call: str
    peer: int
    memory: tuple[int, int]
    """Region and offset."""
    size: int
    codec: str = ""
    """Empty: sent as they are. Otherwise floats of the compressed stream, followed there by zeros up to a multiple of
    64 bytes."""


class RecvRequest(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """Where the next bytes of the message stream from a rank go. The fields are those of SendRequest."""

    number: int
    call: str
    peer: int
    memory: tuple[int, int]
    size: int
    codec: str = ""


class LeaveRequest(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """The process closes the queue next, and has told the other ranks. Without it, the process has ended by itself."""


FromProcess = WorkRequest | StagedPart | CancelRequest | SendRequest | RecvRequest | LeaveRequest
FromNic = WorkCompletion | WorkFailed

encode = msgspec.msgpack.Encoder().encode
decode_from_process = msgspec.msgpack.Decoder(FromProcess).decode
"""Raises msgspec.MsgspecError for other bytes."""
decode_from_nic = msgspec.msgpack.Decoder(FromNic).decode
"""Raises msgspec.MsgspecError for other bytes."""
