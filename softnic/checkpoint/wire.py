"""Reads whole parts of the protocol from a socket with a timeout. Raises EOFError at the end of the stream."""

from __future__ import annotations

from socket import socket

from softnic.checkpoint import protocol


def read_into(connection: socket, target: memoryview) -> None:
    """Fill a buffer. Raises OSError (TimeoutError if no byte came for the socket's timeout), EOFError."""
    filled = 0
    while filled < len(target):
        count = connection.recv_into(target[filled:])
        if not count:
            raise EOFError("the connection was closed")
        filled += count


def read_exactly(connection: socket, size: int) -> bytes:
    """Return the next `size` bytes. Raises as read_into."""
    data = bytearray(size)
    read_into(connection, memoryview(data))
    return bytes(data)


def read_head(connection: socket) -> protocol.Head:
    """Return the head of the next frame. Raises as read_into, and ProtocolError."""
    return protocol.parse_head(read_exactly(connection, protocol.FRAME_BYTES))


def read_body(connection: socket, length: int) -> bytes:
    """Return the body of a frame, whose length its head has bounded. Raises as read_into."""
    return read_exactly(connection, length)
