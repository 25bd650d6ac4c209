"""The communicator below softnic.MPI: its messages, requests and buffers."""

from __future__ import annotations

from softnic.comm import buffers, elements, framing, matching, scratch, wire
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Incoming as RecvOp
from softnic.comm.channel import Outgoing as SendOp
from softnic.comm.channel import Peer
from softnic.comm.communicator import Communicator
from softnic.comm.elements import BFLOAT16, carried, convert, kind_of, name_of, named
from softnic.comm.errors import ArgumentError, CommError, LaunchError
from softnic.comm.framing import MAX_FRAME, MOST_TEXT
from softnic.comm.group import Group as OffloadQueue
from softnic.comm.operations import AVG, MAX, MIN, PROD, SUM, Op
from softnic.comm.presence import Presence, RankProcesses
from softnic.comm.progress import Progress
from softnic.comm.pulse import EVERY_S as HEARTBEAT_INTERVAL_S
from softnic.comm.pulse import PATIENCE_S as HEARTBEAT_TIMEOUT_S
from softnic.comm.pulse import Pulse as Heartbeat
from softnic.comm.registered import Direct
from softnic.comm.scratch import ARENA_BYTES, Scratch
from softnic.comm.scratch import Piece as Allocation
from softnic.comm.subsets import Group
from softnic.comm.transport import KEEPALIVE_S, TAG, USER_TIMEOUT_MS, Nic, Transport
from softnic.comm.world import World as CommunicatorState

__all__ = [
    "ARENA_BYTES",
    "AVG",
    "BFLOAT16",
    "HEARTBEAT_INTERVAL_S",
    "HEARTBEAT_TIMEOUT_S",
    "KEEPALIVE_S",
    "MAX",
    "MAX_FRAME",
    "MIN",
    "MOST_TEXT",
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
    "Nic",
    "OffloadQueue",
    "Op",
    "Peer",
    "Presence",
    "Progress",
    "RankProcesses",
    "RecvOp",
    "Scratch",
    "SendOp",
    "Transport",
    "buffers",
    "carried",
    "convert",
    "elements",
    "framing",
    "kind_of",
    "matching",
    "name_of",
    "named",
    "raw",
    "scratch",
    "wire",
]
