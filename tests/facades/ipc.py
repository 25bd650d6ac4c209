"""The protocols between a program and its NIC: control protocol, work queue."""

from __future__ import annotations

from softnic import socket
from softnic.ipc import control, socket_state
from softnic.ipc import regions as regions
from softnic.ipc import work_queue as work_queue
from softnic.ipc.client import Client
from softnic.ipc.collectives_info import (
    CollectivesInfo,
    CommunicatorInfo,
    FailedCommunicatorInfo,
    OperationInfo,
    QueryCollectives,
    RankLinkInfo,
)
from softnic.ipc.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC
from softnic.ipc.regions import Region as Region
from softnic.ipc.work_queue import (
    MAX_WORK_REQUESTS,
    CancelRequest,
    RecvRequest,
    SendRequest,
    StagedPart,
    WorkCompletion,
    WorkFailed,
    WorkRequest,
)

__all__ = [
    "MAX_WORK_REQUESTS",
    "NIC_BLOCKS",
    "NIC_CODEC",
    "SOL_NIC",
    "CancelRequest",
    "Client",
    "CollectivesInfo",
    "CommunicatorInfo",
    "FailedCommunicatorInfo",
    "OperationInfo",
    "QueryCollectives",
    "RankLinkInfo",
    "RecvRequest",
    "Region",
    "SendRequest",
    "StagedPart",
    "WorkCompletion",
    "WorkFailed",
    "WorkRequest",
    "control",
    "regions",
    "stream_number",
    "work_queue",
]


def stream_number(connection: socket.socket) -> int:
    """Return the number that the NIC has given the stream of a socket."""
    return socket_state.stream_of(connection.fileno()).stream
