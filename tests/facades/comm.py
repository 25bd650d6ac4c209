"""The communicator below softnic.MPI: its messages, requests and buffers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from softnic.collectives import elements, framing
from softnic.collectives.elements import BFLOAT16, carried, convert, kind_of, name_of, named
from softnic.collectives.framing import MAX_FRAME, MAX_TEXT
from softnic.collectives.operations import AVG, MAX, MIN, PROD, SUM, Op
from softnic.comm import buffers, matching, messages, scratch
from softnic.comm.bootstrap.presence import LocalRanks, Presence
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Incoming as RecvOp
from softnic.comm.channel import Outgoing as SendOp
from softnic.comm.channel import Peer
from softnic.comm.communicator import Communicator
from softnic.comm.connections import Session
from softnic.comm.errors import ArgumentError, CommError, LaunchError
from softnic.comm.heartbeat import EVERY_S as HEARTBEAT_INTERVAL_S
from softnic.comm.heartbeat import PATIENCE_S as HEARTBEAT_TIMEOUT_S
from softnic.comm.heartbeat import Pulse as Heartbeat
from softnic.comm.offload_queue import Group as OffloadQueue
from softnic.comm.progress import Progress
from softnic.comm.registered import Direct
from softnic.comm.scratch import ARENA_BYTES, Scratch
from softnic.comm.scratch import Piece as Allocation
from softnic.comm.state import World as CommunicatorState
from softnic.comm.subsets import Group
from softnic.comm.transport import KEEPALIVE_S, TAG, USER_TIMEOUT_MS, Nic, Transport
from softnic.comm.waiting import Bell as Waker

__all__ = [
    "ARENA_BYTES",
    "AVG",
    "BFLOAT16",
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
    "CommError",
    "Communicator",
    "CommunicatorState",
    "Direct",
    "Group",
    "Heartbeat",
    "LaunchError",
    "LocalRanks",
    "Nic",
    "OffloadQueue",
    "Op",
    "Peer",
    "Presence",
    "Progress",
    "RecvOp",
    "Scratch",
    "SendOp",
    "Transport",
    "Waker",
    "buffers",
    "carried",
    "clear",
    "connections_of",
    "convert",
    "elements",
    "enter_call",
    "framing",
    "has_unsent",
    "held_bytes",
    "is_idle",
    "is_waited_for",
    "kind_of",
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
    "vanish",
    "wake",
]


def connections_of(comm: Communicator) -> Session:
    """Return the connections of a communicator that has made them."""
    session = comm._world._session
    assert session is not None
    return session


def vanish(comm: Communicator) -> None:
    """Close the connections of a rank as the end of its process does."""
    connections_of(comm).progress.close()
    comm._world._session = None


def enter_call(comm: Communicator, call: str, buffer: npt.NDArray[Any], op: Op, rank: int, sent: bytes) -> None:
    """Tell one rank that this one has entered a call, and send it a part of the data."""
    connections = connections_of(comm)
    channel = connections.progress.peers[rank].channel(tagged=False)
    channel.connection.send(sent)
    connections.progress.post(channel.peer, connections.head(call, buffer, op))


def send_control_bytes(comm: Communicator, data: bytes) -> None:
    """Send bytes to every other rank on the connection for control messages."""
    for peer in connections_of(comm).progress.peers.values():
        peer.control.send(data)


def offload_queue(comm: Communicator) -> OffloadQueue:
    """Return the queue to the NIC of a communicator's collectives."""
    queue = connections_of(comm).group
    assert queue is not None
    return queue


def has_unsent(queue: OffloadQueue) -> bool:
    """Return whether requests wait in the process because the NIC takes no more."""
    return bool(queue._unsent)


def is_waited_for(queue: OffloadQueue) -> bool:
    """Return whether a thread waits for a request of the queue."""
    return bool(queue._bells)


def held_bytes(comm: Communicator) -> int:
    """Return the bytes of messages of one rank, the largest, that are kept until they are received."""
    return max(connections_of(comm).matcher._held.values())


def scratch_of(comm: Communicator) -> Scratch:
    """Return the registered scratch memory of a communicator."""
    return connections_of(comm).pool


def is_idle(pool: Scratch) -> bool:
    """Return whether nothing of the scratch memory is in use."""
    return all(arena.idle for arena in pool._arenas)


def poll_heartbeat(heartbeat: Heartbeat, now: float) -> None:
    """Ask the NIC if it is time to; raise OSError if it is lost."""
    heartbeat.beat(now)


def on_heartbeat_reply(heartbeat: Heartbeat, now: float) -> None:
    """Note that the NIC was heard."""
    heartbeat.heard(now)


def wake(waker: Waker) -> None:
    """Make a waker readable."""
    waker.ring()


def clear(waker: Waker) -> None:
    """Make a waker unreadable."""
    waker.quiet()
