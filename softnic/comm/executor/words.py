"""What the executors of a group say to each other: frames on connections that carry nothing else.

A frame is its length, 4 bytes little-endian, and a msgpack array whose first element names its kind, as on a
communicator's CONTROL connections. What comes from a peer is checked here: a legal frame or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from softnic.descriptors import MAX_PACKET, Post

MAX_FRAME = MAX_PACKET
"""Bytes; a Head says no more than the Post that it was made from."""
MOST_TEXT = 2000
_SHOWN_COUNTS = 16


class Head(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A rank takes part in a collective. It tells all that it exchanges blocks with: data of theirs is touched only
    after their Heads were found to say the same. The fields are those of Post, without the memory."""

    number: int
    call: str
    collective: str
    algorithm: str
    dtype: str
    counts: tuple[int, ...]
    op: str
    root: int
    codec: str

    def describe(self) -> str:
        """As a person would write the call."""
        parts = [f"{sum(self.counts)} x {self.dtype}"]
        if self.collective in ("reduce_scatter", "allgather") and len(self.counts) <= _SHOWN_COUNTS:
            parts.append(f"counts={list(self.counts)}")
        parts += [f"op={self.op}"] if self.op else []
        parts += [f"root={self.root}"] if self.root >= 0 else []
        parts += [f"codec={self.codec}"] if self.codec else []
        return f"{self.call}({', '.join(parts)}, algorithm={self.algorithm})"


def head_of(post: Post) -> Head:
    return Head(
        post.number,
        post.call,
        post.collective,
        post.algorithm,
        post.dtype,
        post.counts,
        post.op,
        post.root,
        post.codec,
    )


class Abort(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """The group is over, and why. Nothing more comes from the sender."""

    rank: int
    """The rank at fault, -1 where no single one is."""
    text: str


Frame = Head | Abort

_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


def pack(frame: Frame) -> bytes:
    if isinstance(frame, Abort) and len(frame.text) > MOST_TEXT:
        frame = Abort(frame.rank, frame.text[:MOST_TEXT] + "...")
    body = _encode(frame)
    return len(body).to_bytes(4, "little") + body


class Reader:
    """Makes frames of the bytes of a WORDS connection, however these arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole now. Raises ValueError where the bytes are no frames."""
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= 4:
                end = start + 4 + int.from_bytes(self._data[start : start + 4], "little")
                if end - start > MAX_FRAME:
                    raise ValueError("what arrives is no frame of a group")
                if len(self._data) < end:
                    return
                body = bytes(self._data[start + 4 : end])
                start = end
                yield _frame(body)
        finally:
            del self._data[:start]


def _frame(body: bytes) -> Frame:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"what arrives is no frame of a group: {error}") from None
