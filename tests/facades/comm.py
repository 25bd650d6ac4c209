"""The communicator below softnic.MPI: its messages, requests and buffers."""

from __future__ import annotations

from softnic.collectives import elements, framing
from softnic.collectives.elements import BFLOAT16, carried, convert, kind_of, name_of, named
from softnic.collectives.framing import MAX_FRAME, MAX_TEXT
from softnic.collectives.operations import ARRAY_OPS, AVG, MAX, MIN, PROD, SUM, ArrayOp
from softnic.comm import buffers, codec_choice, execution, matching, messages, scratch
from softnic.comm.bootstrap.presence import Presence, local_ranks
from softnic.comm.buffers import Array, raw
from softnic.comm.communicator import Communicator
from softnic.comm.connections import CommConnections
from softnic.comm.contexts import _comm_lock as comm_lock
from softnic.comm.contexts import _comm_lock_table as comm_lock_table
from softnic.comm.contexts import _commctx_inter as commctx_inter
from softnic.comm.contexts import _commctx_intra as commctx_intra
from softnic.comm.environment import _addressof as addressof
from softnic.comm.environment import _handleof as handleof
from softnic.comm.environment import _sizeof as sizeof
from softnic.comm.errors import ArgumentError, CommError, LaunchError
from softnic.comm.groups import Group
from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, Heartbeat
from softnic.comm.inbox import Inbox
from softnic.comm.offload_queue import Failure, OffloadQueue, PostedRequest
from softnic.comm.outbox import CREDIT_BYTES, Outbox
from softnic.comm.peer import Peer
from softnic.comm.progress import Progress
from softnic.comm.progress_loop import ProgressLoop, Receiving, Sending
from softnic.comm.scratch import ARENA_BYTES, Allocation, Scratch
from softnic.comm.state import CommunicatorState
from softnic.comm.transport import KEEPALIVE_S, TAG, USER_TIMEOUT_MS, NicConnection, Transport
from softnic.comm.waiting import Waker
from softnic.comm.zerocopy_channel import RecvOp, SendOp

__all__ = [
    "ARENA_BYTES",
    "ARRAY_OPS",
    "AVG",
    "BFLOAT16",
    "CREDIT_BYTES",
    "HEARTBEAT_INTERVAL_S",
    "HEARTBEAT_TIMEOUT_S",
    "KEEPALIVE_S",
    "MAX",
    "MAX_FRAME",
    "MAX_TEXT",
    "MIN",
    "PROD",
    "SUM",
    "TAG",
    "USER_TIMEOUT_MS",
    "Allocation",
    "ArgumentError",
    "Array",
    "ArrayOp",
    "CommError",
    "Communicator",
    "CommunicatorState",
    "Failure",
    "Group",
    "Heartbeat",
    "Inbox",
    "LaunchError",
    "NicConnection",
    "OffloadQueue",
    "Outbox",
    "Peer",
    "PostedRequest",
    "Presence",
    "Progress",
    "ProgressLoop",
    "Receiving",
    "RecvOp",
    "Scratch",
    "SendOp",
    "Sending",
    "Transport",
    "Waker",
    "addressof",
    "buffers",
    "carried",
    "clear",
    "codec_choice",
    "comm_lock",
    "comm_lock_table",
    "commctx_inter",
    "commctx_intra",
    "connections_of",
    "convert",
    "elements",
    "execution",
    "framing",
    "handleof",
    "has_unsent",
    "held_bytes",
    "is_idle",
    "is_waited_for",
    "kind_of",
    "local_ranks",
    "matching",
    "messages",
    "name_of",
    "named",
    "offload_queue",
    "on_heartbeat_reply",
    "poll_heartbeat",
    "raw",
    "scratch",
    "scratch_of",
    "send_control_bytes",
    "send_credit",
    "sizeof",
    "vanish",
    "wake",
]


def connections_of(comm: Communicator) -> CommConnections:
    """Return the connections of a communicator that has made them."""
    session = comm._state._connections
    assert session is not None
    return session


def vanish(comm: Communicator) -> None:
    """Close the connections of a rank as the end of its process does."""
    connections = connections_of(comm)
    connections.progress.close()
    if connections.queue is not None:
        for connection in (connections.queue._connection, *connections.queue._leases):
            connection.close()
    comm._state._connections = None


def send_control_bytes(comm: Communicator, data: bytes) -> None:
    """Send bytes to every other rank on the connection for control messages."""
    for peer in connections_of(comm).progress.peers.values():
        peer.control.send(data)


def send_credit(comm: Communicator, dest: int) -> int:
    """Return the bytes of inline messages that a rank may send to another one now."""
    return connections_of(comm).progress.peers[dest].outbox.credit


def offload_queue(comm: Communicator) -> OffloadQueue:
    """Return the queue to the NIC of a communicator's collectives."""
    queue = connections_of(comm).queue
    assert queue is not None
    return queue


def has_unsent(queue: OffloadQueue) -> bool:
    """Return whether requests wait in the process because the NIC's queue is full."""
    return bool(queue._unsent)


def is_waited_for(queue: OffloadQueue) -> bool:
    """Return whether a thread waits for a request of the queue."""
    return bool(queue.wakers)


def held_bytes(comm: Communicator) -> int:
    """Return the bytes of messages of one rank, the largest, that are kept until they are received."""
    return max(connections_of(comm).matcher._held.values())


def scratch_of(comm: Communicator) -> Scratch:
    """Return the registered scratch memory of a communicator."""
    return connections_of(comm).scratch


def is_idle(pool: Scratch) -> bool:
    """Return whether nothing of the scratch memory is in use."""
    return all(arena.is_idle for arena in pool._arenas)


def poll_heartbeat(heartbeat: Heartbeat, now: float) -> None:
    """Send a heartbeat to the NIC if one is due; raise OSError if the NIC is lost."""
    heartbeat.poll(now)


def on_heartbeat_reply(heartbeat: Heartbeat, now: float) -> None:
    """Record a reply of the NIC to a heartbeat."""
    heartbeat.on_reply(now)


def wake(waker: Waker) -> None:
    """Make a wakeup descriptor readable."""
    waker.wake()


def clear(waker: Waker) -> None:
    """Make a wakeup descriptor unreadable."""
    waker.clear()
