"""What a program and its NIC say to each other: control protocol, work queue, records."""

from __future__ import annotations

from softnic import _streams, control, socket
from softnic import descriptors as work_queue
from softnic.client import Client
from softnic.control import NIC_BLOCKS, NIC_CODEC, SOL_NIC
from softnic.descriptors import MAX_POSTS as MAX_WORK_REQUESTS
from softnic.descriptors import Cancel as CancelRequest
from softnic.descriptors import Completed as WorkCompletion
from softnic.descriptors import Failed as WorkFailed
from softnic.descriptors import Post as WorkRequest
from softnic.records import BYTES, MAX_RECEIVES, PLACED, RECEIVE, RECORD, SEND, SENT, TAG, TAG_RECORD
from softnic.records import FLAG_TELL as FLAG_SIGNALED

__all__ = [
    "BYTES",
    "FLAG_SIGNALED",
    "MAX_RECEIVES",
    "MAX_WORK_REQUESTS",
    "NIC_BLOCKS",
    "NIC_CODEC",
    "PLACED",
    "RECEIVE",
    "RECORD",
    "SEND",
    "SENT",
    "SOL_NIC",
    "TAG",
    "TAG_RECORD",
    "CancelRequest",
    "Client",
    "WorkCompletion",
    "WorkFailed",
    "WorkRequest",
    "control",
    "stream_number",
    "work_queue",
]


def stream_number(connection: socket.socket) -> int:
    """Return the number that the NIC has given the stream of a socket."""
    return _streams.stream_of(connection.fileno()).stream
