"""What a process and its NIC say to each other about collectives that the NIC executes.

A process hands its NIC the connections of a communicator by `Join` (control protocol), and with it one end of a
SOCK_SEQPACKET pair, the group socket: one message a packet, msgpack. Post is a descriptor, as a driver gives one to a
card: what is to be done, and where in registered memory. The NIC executes the requests of a group in the order in
which they were posted, several at a time, and answers each by Completed, in any order; or all that are not over by one
Failed, after which the group is of no use. A NIC that has MAX_POSTS requests on its hands reads no further ones.

Memory that was posted is the NIC's until Completed: what it sends must not change, and what it writes means nothing.
When the process closes the group socket, or dies, the NIC lets go of all of it at once.
"""

from __future__ import annotations

import msgspec

MAX_POSTS = 1024
"""Requests of one group that a NIC has on its hands at a time."""
MAX_PACKET = 1 << 20
"""Bytes of a message: as many as the blocks of 65,536 ranks take."""


class Post(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A collective to be executed. What all ranks must agree on is all but the memory."""

    number: int
    """Counts this group's requests, from 1."""
    call: str
    """As the user wrote it (`Iallreduce_comp`): for errors, and to be the same on all ranks."""
    collective: str
    """`allreduce`, `reduce`, `reduce_scatter`, `allgather`, `bcast`: what the schedule is made for."""
    algorithm: str
    """A name that softnic/collectives/schedule has."""
    dtype: str
    """numpy's name, or `bfloat16`."""
    counts: tuple[int, ...]
    """Elements of each block, in the order in which they lie in `source` and `result`."""
    source: tuple[int, int]
    """Region and offset of this rank's contribution: all blocks."""
    result: tuple[int, int]
    """Region and offset of where results go: all blocks. What the rank gets no result for is overwritten with
    anything. May be the same as `source`."""
    op: str = ""
    """SUM, PROD, MIN, MAX, AVG; empty where nothing is combined."""
    root: int = -1
    codec: str = ""
    """As in `bounded:10`; empty: exact."""


class Cancel(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Gives a request up, and with it the group, on all ranks: a collective cannot go on without one of them. Of no
    effect on a request that is complete."""

    number: int


class Completed(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The result is in its place, and all memory of the request is the process's again."""

    number: int


class Failed(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The group is over; so are all requests that were not completed, and all memory is the process's again."""

    rank: int
    """The rank at fault, -1 where no single one is."""
    text: str


FromProcess = Post | Cancel
FromNic = Completed | Failed

encode = msgspec.msgpack.Encoder().encode
decode_from_process = msgspec.msgpack.Decoder(FromProcess).decode
"""Raises msgspec.MsgspecError for what is no such message."""
decode_from_nic = msgspec.msgpack.Decoder(FromNic).decode
