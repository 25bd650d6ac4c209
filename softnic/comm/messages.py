"""Frames between ranks, on a connection of their own: control messages, and messages of programs, inline.

Five connections join two ranks. CONTROL carries these frames, delimited as softnic/collectives/framing.py describes.
The other four are written and read by the NICs, after a Hello of the processes: PLAIN carries uncompressed messages,
TAGGED compressed ones, ENGINE_CONTROL the control messages of the collective engines, DATA the blocks of collectives.

A frame is a msgpack array, or an inline message: the byte INLINE_MARK, which msgpack has not, the index of its type in
TYPES, the tag, the number, and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from softnic.collectives import framing
from softnic.ipc.control import MOST_QUEUES

VERSION = 10
"""Version of these frames; ranks with different versions refuse each other."""
INLINE_MARK = 0xC1
TYPES = (
    "", "uint8", "int8", "bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
    "float16", "bfloat16", "complex64", "complex128", "float128", "complex256",
)  # fmt: skip
"""Element types of inline messages. Empty: a pickled object."""
_TYPE_CODES = {name: code for code, name in enumerate(TYPES)}
_INLINE = struct.Struct("<IBBQQ")
"""Length of what follows, INLINE_MARK, type, tag, number."""
_LENGTH_BYTES = 4
_LEAST_INLINE = _INLINE.size - _LENGTH_BYTES
"""Length of an inline message without data."""
_MOST = framing.MAX_FRAME - _LENGTH_BYTES
MAX_INLINE = framing.MAX_FRAME - _INLINE.size
"""Longest inline message."""
CONTROL, PLAIN, TAGGED, ENGINE_CONTROL, DATA = range(5)
CHANNELS = 5
"""Connections between two ranks on the first lane."""
LANE_CHANNELS = 2
"""Those on each further lane: as ENGINE_CONTROL, and as DATA."""
MOST_CHANNELS = CHANNELS + LANE_CHANNELS * (MOST_QUEUES - 1)
CALL = MOST_CHANNELS
"""In a Hello, for a connection that only asks a higher rank to connect."""
SURVIVE = CALL + 1
"""In a Hello, for a connection of an agreement among those that are left (softnic/comm/survival/regroup.py)."""


def lane_of(channel: int) -> int:
    """Return the lane of a channel."""
    return 0 if channel < CHANNELS else 1 + (channel - CHANNELS) // LANE_CHANNELS


class Hello(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame of each direction of each connection."""

    version: int
    size: int
    rank: int
    to: int
    """The rank that it is meant for."""
    channel: int
    proof: bytes = b""
    """That the sender has the secret of the job, if there is one."""
    queues: int = 1
    """Of the sender's NIC."""
    epoch: str = ""
    """The start of the job that the sender belongs to, if its ranks met by a store."""


class Waiting(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """The sender has waited in a collective call for some time, and sends no message before the call is complete."""

    number: int
    """Number of the collective in this communicator, from 1; 0: the sender no longer waits."""
    call: str


class Announce(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """A message of `size` bytes. It follows on PLAIN, or on TAGGED with a codec other than raw; or it is `data`."""

    tag: int
    size: int
    dtype: str
    """Empty: a pickled object."""
    codec: str = ""
    data: memoryview | None = None
    """An inline message: all of it."""
    number: int = 0
    """Of a synchronous message, whose receiver answers with Taken; 0: it is not synchronous."""

    @property
    def compressed(self) -> bool:
        return self.codec not in ("", "raw")


class Abort(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A call of the sender has failed; the sender sends nothing more."""

    rank: int
    """The rank at fault; -1: no single rank."""
    text: str


class Leave(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The sender has left the communicator after `number` collective calls."""

    number: int
    why: str = ""
    """Empty: by a call of its own, or at its end."""


class Joined(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The sender's NIC has taken over its connections: further bytes on them do not reach its process."""


class Credit(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """The sender has received inline messages of `size` bytes, and takes as many more."""

    size: int


class Taken(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """A receive of the sender has taken the synchronous message of this number."""

    number: int


class Paths(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """What the sender's NIC has measured (softnic/comm/paths.py)."""

    number: int
    """Of the large all-reduce that it is sent with."""
    rate: Annotated[float, msgspec.Meta(ge=0.0, lt=1e15)]
    """Of its link, in wire bytes per second; 0: not measured."""
    rtts: list[Annotated[float, msgspec.Meta(ge=0.0, lt=1e6)]]
    """Least round trip to each rank, in seconds."""
    wanted: bool = True
    """Schedules are to be made for these."""


class Gathered(msgspec.Struct, frozen=True, tag=9, array_like=True):
    """The first frame after Hello where not all ranks connect at the start: to the rank above in the tree when all
    below have sent theirs, then from there to those below."""

    queues: int
    """The fewest that a NIC has: of ranks below, then of all."""


Frame = Hello | Waiting | Announce | Abort | Leave | Joined | Credit | Taken | Paths | Gathered

_decode: Callable[[bytearray], Frame] = msgspec.msgpack.Decoder(Frame).decode


def inline_header(announce: Announce) -> bytes:
    """Return the frame of an inline message up to its data. Its type is one of TYPES."""
    length = _INLINE.size - _LENGTH_BYTES + announce.size
    return _INLINE.pack(length, INLINE_MARK, _TYPE_CODES[announce.dtype], announce.tag, announce.number)


def is_inline(announce: Announce) -> bool:
    """Return whether a message can be an inline one."""
    return announce.size <= MAX_INLINE and not announce.codec and announce.dtype in _TYPE_CODES


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    if isinstance(frame, Announce) and frame.data is not None and frame.data.nbytes == frame.size and is_inline(frame):
        return inline_header(frame) + frame.data
    if isinstance(frame, Abort):
        frame = Abort(frame.rank, framing.shortened(frame.text))
    elif isinstance(frame, Leave):
        frame = Leave(frame.number, framing.shortened(frame.why))
    return framing.pack(frame)


class Reader(framing.FrameReader[Frame]):
    """Splits the bytes of a CONTROL connection into frames. The data of inline messages are views of what is fed."""

    def __init__(self) -> None:
        super().__init__(_decode, "communicator")
        self._missing = 0
        """Bytes, at least, before the next frame is complete."""
        self.start: tuple[Announce, memoryview] | None = None
        """An inline message, and the start of its data, whose rest is not to be fed."""

    def feed(self, data: bytes | memoryview, least: int = framing.MAX_FRAME) -> Iterator[Frame]:
        """Yield the frames that are complete now. Raises ValueError where the bytes are not frames.

        An inline message of which `least` bytes are missing, or more, is in `start` afterwards.
        """
        view = memoryview(data)
        while self._data and len(view) >= self._missing:
            head, view = self._data + view[: self._missing], view[self._missing :]
            self._missing = self._size(head) - len(head)
            self._data = head if self._missing else bytearray()
            if not self._missing:
                yield self._complete(memoryview(bytes(head)))
        if self._data:
            self._missing -= len(view)
            self._data += view
            return
        start, count, unpack = 0, len(view), _INLINE.unpack_from
        try:
            while (left := count - start) >= _LENGTH_BYTES:
                if left >= _INLINE.size:  # first of all the usual frame
                    length, mark, code, tag, number = unpack(view, start)
                    end = start + _LENGTH_BYTES + length
                    if mark == INLINE_MARK and _LEAST_INLINE <= length <= _MOST and end <= count and code < len(TYPES):
                        data = view[start + _INLINE.size : end]
                        start = end
                        yield Announce(tag, data.nbytes, TYPES[code], "", data, number)
                        continue
                size = self._size(view[start : start + _LENGTH_BYTES])
                frame = view[start : start + size]
                if left < size:
                    self._missing = size - left
                    if self._missing >= least and left >= _INLINE.size and frame[_LENGTH_BYTES] == INLINE_MARK:
                        start = count
                        self.start = self._announce(frame, size - _INLINE.size), frame[_INLINE.size :]
                    return
                start += size
                yield self._complete(frame)
            self._missing = _LENGTH_BYTES - left
        finally:
            self._data += view[start:]

    def _size(self, data: bytearray | memoryview) -> int:
        """Return the size of a frame that starts so. Raises ValueError if there is no such frame."""
        size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        if size > framing.MAX_FRAME:
            raise ValueError("the bytes are not a frame of a communicator")
        return size

    def _complete(self, frame: memoryview) -> Frame:
        if len(frame) > _LENGTH_BYTES and frame[_LENGTH_BYTES] == INLINE_MARK:
            return self._inline(frame)
        return self._frame(bytearray(frame[_LENGTH_BYTES:]))

    def _inline(self, frame: memoryview) -> Announce:
        if len(frame) < _INLINE.size:
            raise ValueError("the bytes are not a frame of a communicator")
        return self._announce(frame, len(frame) - _INLINE.size, frame[_INLINE.size :])

    def _announce(self, frame: memoryview, size: int, data: memoryview | None = None) -> Announce:
        _, _, code, tag, number = _INLINE.unpack_from(frame)
        if code >= len(TYPES):
            raise ValueError("the bytes are not a frame of a communicator")
        return Announce(tag, size, TYPES[code], "", data, number)
