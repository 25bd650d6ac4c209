"""Frames on a stream: a length of 4 bytes, little-endian, and a msgpack array whose first element is the kind.

Bytes of a peer are checked here: however they are cut, they make legal frames or raise ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from softnic.ipc.work_queue import MAX_PACKET

Frame = TypeVar("Frame")

MAX_FRAME = MAX_PACKET
"""Bytes, the length included. No frame is longer than a work request."""
MAX_TEXT = 2000
_encode = msgspec.msgpack.Encoder().encode


def pack(frame: msgspec.Struct) -> bytes:
    """Return the bytes of a frame."""
    body = _encode(frame)
    return len(body).to_bytes(4, "little") + body


def shortened(text: str) -> str:
    """Return a text cut to MAX_TEXT characters."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


class FrameReader(Generic[Frame]):
    """Splits the bytes of a stream into frames of at most `limit` bytes. `sender` names their origin in errors."""

    def __init__(self, decode: Callable[[bytearray], Frame], sender: str, limit: int = MAX_FRAME) -> None:
        self._decode = decode
        self._sender = sender
        self._limit = limit
        self._data = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether no part of a frame waits for the rest."""
        return not self._data

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yield the frames that are complete now. Raises ValueError where the bytes are not frames."""
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= 4:
                end = start + 4 + int.from_bytes(self._data[start : start + 4], "little")
                if end - start > self._limit:
                    raise ValueError(f"the bytes are not a frame of a {self._sender}")
                if len(self._data) < end:
                    return
                body = self._data[start + 4 : end]
                start = end
                yield self._frame(body)
        finally:
            del self._data[:start]

    def _frame(self, body: bytearray) -> Frame:
        try:
            return self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"the bytes are not a frame of a {self._sender}: {error}") from None
