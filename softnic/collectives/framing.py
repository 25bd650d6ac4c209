"""Frames on a connection that carries nothing else: a length, 4 bytes little-endian, and a msgpack array whose first
element names its kind.

What comes from a peer is checked here: legal frames, however their bytes arrive, or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from softnic.ipc.work_queue import MAX_PACKET

Frame = TypeVar("Frame")

MAX_FRAME = MAX_PACKET
"""Bytes, the length included: nothing that is said is longer than a Post."""
MOST_TEXT = 2000
_encode = msgspec.msgpack.Encoder().encode


def pack(frame: msgspec.Struct) -> bytes:
    body = _encode(frame)
    return len(body).to_bytes(4, "little") + body


def shortened(text: str) -> str:
    """Of a text that goes into a frame: as much as anybody reads."""
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."


class Reader(Generic[Frame]):
    """Makes frames of the bytes of a connection. `whose` they are is what errors say."""

    def __init__(self, decode: Callable[[bytes], Frame], whose: str) -> None:
        self._decode = decode
        self._whose = whose
        self._data = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole now. Raises ValueError where the bytes are no frames."""
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= 4:
                end = start + 4 + int.from_bytes(self._data[start : start + 4], "little")
                if end - start > MAX_FRAME:
                    raise ValueError(f"what arrives is no frame of a {self._whose}")
                if len(self._data) < end:
                    return
                body = bytes(self._data[start + 4 : end])
                start = end
                yield self._frame(body)
        finally:
            del self._data[:start]

    def _frame(self, body: bytes) -> Frame:
        try:
            return self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"what arrives is no frame of a {self._whose}: {error}") from None
