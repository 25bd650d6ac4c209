"""Adapts a TCP connection to the collective engine's peer stream (softnic/collectives/stream.py)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from softnic._native import ffi, lib
from softnic.packet.segment import PLAIN, Tag
from softnic.tcp.connection import Connection
from softnic.tcp.direct_placement import PlacementCursor, append, set_rx_placement
from softnic.tcp.state import State
from softnic.tcp.zerocopy import address_of

COMPRESSED_TOS = 0x28
"""Type of service that selects compression (INCEPTIONN, section VI)."""

_FOUND = tuple((bool(found & lib.SN_STREAM_UNREAD), bool(found & lib.SN_STREAM_ENDED)) for found in range(4))
Memory = npt.NDArray[np.uint8]
Placement = Callable[[int, int], Memory | None]
"""Returns the memory for bytes [offset, offset + size) behind the next unread byte; None: nowhere in particular."""


class TcpPeerStream:
    """The byte stream over an established connection, which has no other reader or writer."""

    __slots__ = ("_arriving_ack", "_connection", "_cursor", "_placement", "_rcv", "_snd", "zerocopy_bytes")

    def __init__(self, connection: Connection) -> None:
        connection.set_nodelay(True)
        self._connection = connection
        self._rcv, self._snd = connection.rcv, connection.snd
        self._cursor = PlacementCursor(connection)
        self._placement: Placement | None = None
        self._arriving_ack: int | None = None
        """The acknowledgement of the segment that is being placed."""
        self.zerocopy_bytes = 0
        """Bytes sent without a copy since the beginning."""

    # Receiving

    @property
    def received(self) -> deque[memoryview]:
        return self._connection.received

    @property
    def unread(self) -> int:
        return self._rcv.unread

    @staticmethod
    def watch(control: Sequence[TcpPeerStream], others: Sequence[TcpPeerStream]) -> Callable[[], tuple[bool, bool]]:
        """Returns what tells whether one of `control` has unread bytes, and whether one of all streams is not open."""
        streams = (*control, *others)
        flows = ffi.new("sn_flow *[]", [stream._connection.c for stream in streams])
        look, first, count = lib.sn_look_at_streams, len(control), len(streams)

        def found(_alive: Sequence[TcpPeerStream] = streams) -> tuple[bool, bool]:
            return _FOUND[look(flows, first, count)]

        return found

    def consume(self, count: int) -> None:
        self._connection.consume(count)

    def read_into(self, memory: memoryview, start: int, limit: int) -> int:
        """Move up to `limit` of the next bytes to `memory[start:]`; bytes decoded to there already stay."""
        base, done = address_of(memory), 0
        for view in self._connection.received:
            count = min(len(view), limit - done)
            if not count:
                break
            if address_of(view) != base + start + done:
                memory[start + done : start + done + count] = view[:count]
            done += count
        self._connection.consume(done)
        return done

    def set_placement(self, placement: Placement | None) -> None:
        self._placement = placement
        if placement is not None:
            self._connection.set_blocks(True)  # a stream that receives blocks also sends blocks; control streams do not
        set_rx_placement(self._connection, None if placement is None else self._place)

    def _place(self, sequence: int, size: int, ack: int) -> Memory | None:
        assert self._placement is not None
        offset = self._cursor.offset(sequence, size)
        if offset is None:
            return None
        self._arriving_ack = ack
        try:
            return self._placement(offset, size)
        finally:
            self._arriving_ack = None

    # Sending

    def set_codec(self, codec: str | None) -> None:
        self._connection.tag(PLAIN if codec is None else Tag(COMPRESSED_TOS, codec))

    def send(self, data: bytes | memoryview) -> int:
        return self._connection.send(data)

    def send_zerocopy(self, memory: memoryview, start: int, size: int) -> tuple[int, bool]:
        sent, zerocopy = append(self._connection, memory, start, size)
        if zerocopy:
            self.zerocopy_bytes += sent
        return sent, zerocopy

    @property
    def completed_bytes(self) -> int:
        return self._snd.buffer.zerocopy.completed_bytes

    @property
    def zerocopy_pending(self) -> bool:
        return self._snd.buffer.zerocopy.outstanding > 0

    def reclaim(self, position: int) -> None:
        runs = self._snd.buffer.zerocopy
        missing = position - runs.completed_bytes
        if missing > 0 and missing > self._arriving_bytes():
            runs.copy_out(missing)

    def _arriving_bytes(self) -> int:
        """Returns how many zero-copy bytes the segment that is being placed acknowledges.

        A result comes with the acknowledgement of what it overwrites, and TCP processes a segment after it was placed.
        """
        return 0 if self._arriving_ack is None else self._snd.zerocopy_bytes_before(self._arriving_ack)

    @property
    def unsent(self) -> int:
        return self._snd.buffer.end - self._snd.snd_nxt

    # State

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
