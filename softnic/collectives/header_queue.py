"""Messages from one other rank: the headers of collectives, which C compares with this rank's, and what ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from softnic._native import ffi, lib
from softnic.collectives.messages import HEADER_START, CollectiveHeader, EngineMessage, EngineMessageReader
from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.stream import PeerStream

MAX_EARLY_BYTES = 256 << 10
"""Limit of the bytes whose decoded headers are held; more stays in the stream, whose window then closes."""


class HeaderQueue:
    """Reads the control stream from another rank, of the `sn_engine` at `engine`.

    Blocks of a collective may be read from `queue` once its header matched. C compares headers byte by byte, and keeps
    those that come before this rank's own request. Python decodes what does not fit this. `size`: number of ranks.
    """

    __slots__ = ("_early_bytes", "_reader", "_received", "_stream", "c", "early")

    def __init__(self, stream: PeerStream, queue: PeerQueue, engine: Any, size: int) -> None:
        self._stream = stream
        self._received = stream.received
        self.c = ffi.new("sn_header_queue *", {"flow": stream.flow, "steps": queue.c})
        self.c.engine, self.c.start = engine, HEADER_START
        stream.attach(ffi.NULL, self.c)
        self._reader = EngineMessageReader(size)
        self.early: deque[CollectiveHeader] = deque()
        """Decoded headers that arrived before this rank's own request."""
        self._early_bytes = 0
        """Bytes decoded since there were none."""

    @property
    def expected(self) -> int:
        """Number of the first operation whose header has not come, or 0."""
        return int(self.c.first.op.number) if self.c.first else 0

    def expect(self, header: Any) -> None:
        """Expect an `sn_header`, which its operation keeps alive."""
        lib.sn_header_expect(self.c, header)

    def match(self) -> None:
        """Count the first header that is expected as matched."""
        lib.sn_header_queue_match(self.c)

    def receive(self) -> Iterator[EngineMessage]:
        """Compare what was received with what is expected, and yield the messages that Python has to look at.

        Raises ValueError where the bytes are not messages.
        """
        if used := lib.sn_header_queue_receive(self.c):
            self._stream.consumed(used)
        if not self.early:
            self._early_bytes = 0
        size = min(self._received.size, MAX_EARLY_BYTES - self._early_bytes)
        if self.c.in_python and size:
            self._early_bytes += size
            data = bytearray(size)
            lib.sn_receive_buffer_read(self._received, ffi.from_buffer(data), size)
            self._stream.consumed(size)
            yield from self._reader.feed(memoryview(data))

    def settle(self) -> None:
        """Have C go on if Python has nothing left of the stream."""
        if not self.early and self._reader.is_empty:
            self.c.in_python = False

    def discard(self) -> None:
        """Drop the unread bytes."""
        lib.sn_receive_buffer_clear(self._received)
        self.c.checked = 0
        self._stream.consumed(self._stream.unread)

    def clear(self) -> None:
        """Expect nothing any more."""
        lib.sn_header_queue_clear(self.c)
        self.early.clear()

    def close(self) -> None:
        """Detach from the stream, which nothing reads any more."""
        self.discard()
        self._stream.attach(ffi.NULL, ffi.NULL)
