"""What one rank reads from another: frames, and the data of inline messages, straight into the memory of receives."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

from softnic.comm import messages
from softnic.comm.zerocopy_channel import RecvOp

READ_BYTES = 256 << 10
_AHEAD_BYTES = 4 << 10
"""Read behind a message whose data is put in its place as it arrives."""
_LEAST_BYTES = 8 << 10
"""To come of a message whose data is put in its place as it arrives."""


class Inbox:
    """What arrives on a connection.

    Parameters
    ----------
    buffer
        Memory to read to. Several inboxes may share it: between calls nothing in it is needed.
    """

    __slots__ = ("_buffer", "_filling", "_places", "_reader")

    def __init__(self, buffer: memoryview | None = None) -> None:
        self._buffer = memoryview(bytearray(READ_BYTES)) if buffer is None else buffer
        self._reader = messages.Reader()
        self._filling: RecvOp | None = None
        """The message whose data arrives now."""
        self._places: list[memoryview] = []

    def read(self, connection: socket.socket) -> int:
        """Read once, and return the bytes read, 0 at the end. Raises OSError."""
        filling = self._filling
        if filling is None:
            self._places = [self._buffer]
        else:
            assert filling.data is not None
            self._places = [filling.data[filling.posted :], self._buffer[:_AHEAD_BYTES]]
        count = os.readv(connection.fileno(), self._places)
        return count or connection.recv_into(self._buffer)  # which knows of the NIC's error

    def is_full(self, count: int) -> bool:
        """Return whether a read took all that there was room for."""
        return count == sum([place.nbytes for place in self._places])

    def frames(self, count: int, begin: Callable[[messages.Announce], RecvOp]) -> Iterator[messages.Frame]:
        """Yield the frames that are complete after a read.

        Parameters
        ----------
        count
            What `read` has returned.
        begin
            Returns where to put an inline message of which only the start has arrived.

        Raises
        ------
        ValueError
            The bytes are not frames.
        """
        if (filling := self._filling) is not None:
            count -= (part := min(count, filling.size - filling.posted))
            filling.posted += part
            if filling.is_complete:
                self._filling = None
        if not count:
            return
        reader = self._reader
        yield from reader.feed(self._buffer[:count], _LEAST_BYTES)
        if reader.start is not None:
            announce, first = reader.start
            reader.start = None
            self._filling = filling = begin(announce)
            assert filling.data is not None
            filling.data[: first.nbytes] = first
            filling.posted = first.nbytes
