"""Adapts a TCP connection to the collective engine's peer stream (softnic/collectives/stream.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softnic._native import ffi, lib
from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.connection import Connection
from softnic.tcp.state import State

COMPRESSED_TOS = 0x28
"""Type of service that selects compression (INCEPTIONN, section VI)."""

_FOUND = tuple((bool(found & lib.SN_STREAM_UNREAD), bool(found & lib.SN_STREAM_ENDED)) for found in range(4))


class TcpPeerStream:
    """The byte stream over an established connection, which has no other reader or writer."""

    __slots__ = ("_connection", "_rcv", "flow")

    def __init__(self, connection: Connection) -> None:
        connection.set_nodelay(True)
        self._connection = connection
        self._rcv = connection.rcv
        self.flow = connection.c

    # Messages

    @property
    def unread(self) -> int:
        return self._rcv.unread

    def send(self, data: bytes | memoryview) -> int:
        return self._connection.send(data)

    # Blocks

    def send_blocks(self) -> None:
        self._connection.set_blocks(True)

    def tag_of(self, codec: str | None) -> tuple[int, int, bool, int]:
        connection = self._connection
        tag = PLAIN if codec is None else Tag(COMPRESSED_TOS, codec)
        tcp = connection.tcp
        return connection.snd.buffer.number_of(tag), tag.tos, tag.tos in tcp.offload_tos, tcp.cuts_of(tag).block

    @property
    def received(self) -> Any:
        return self._rcv.buffer

    def attach(self, steps: Any, headers: Any) -> None:
        self._connection.attach(steps, headers)

    def consumed(self, count: int) -> None:
        self._connection.consumed(count)

    def wake(self) -> None:
        self._connection.tcp.wake(self._connection)

    def reserve(self) -> None:
        self._connection.write_space()

    # State

    @staticmethod
    def watch(control: Sequence[TcpPeerStream], others: Sequence[TcpPeerStream]) -> Callable[[], tuple[bool, bool]]:
        """Returns what tells whether one of `control` has unread bytes, and whether one of all streams is not open."""
        streams = (*control, *others)
        flows = ffi.new("sn_flow *[]", [stream.flow for stream in streams])
        look, first, count = lib.sn_look_at_streams, len(control), len(streams)

        def found(_alive: Sequence[TcpPeerStream] = streams) -> tuple[bool, bool]:
            return _FOUND[look(flows, first, count)]

        return found

    @property
    def is_open(self) -> bool:
        return self._connection.established

    @property
    def is_ended(self) -> bool:
        return self._rcv.eof or self._connection.state is State.CLOSED

    @property
    def is_failed(self) -> bool:
        return bool(self._connection.error)

    @property
    def end_reason(self) -> str:
        connection = self._connection
        if connection.error_message:
            return connection.error_message
        return os.strerror(connection.error) if connection.error else "it closed its connection"

    def shutdown_write(self) -> None:
        self._connection.shutdown_write()

    def close(self, now: float) -> None:
        self._connection.close(now)

    def abort(self, now: float) -> None:
        self._connection.abort(now)


def peer_streams(connections: Mapping[int, Connection]) -> dict[int, TcpPeerStream]:
    """Return the byte streams over connections to other ranks, by rank."""
    return {rank: TcpPeerStream(connection) for rank, connection in connections.items()}
