"""Control messages between ranks: small frames on a connection that carries nothing else.

Five connections join two ranks. CONTROL carries these frames, delimited as framing.py describes. The other four are
written and read by the NICs, after a Hello of the processes: PLAIN carries uncompressed messages, TAGGED compressed
ones, ENGINE_CONTROL the control messages of the collective engines, DATA the blocks of collectives.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from softnic.collectives import framing

VERSION = 5
"""Version of these frames; ranks with different versions refuse each other."""
CONTROL, PLAIN, TAGGED, ENGINE_CONTROL, DATA = range(5)
CHANNELS = 5
"""Connections between two ranks."""


class Hello(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame of each direction of each connection."""

    version: int
    size: int
    rank: int
    to: int
    """The rank that it is meant for."""
    channel: int


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


Frame = Hello | Waiting | Announce | Abort | Leave | Joined | Credit | Taken

_decode: Callable[[bytearray], Frame] = msgspec.msgpack.Decoder(Frame).decode


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    if isinstance(frame, Abort):
        frame = Abort(frame.rank, framing.shortened(frame.text))
    elif isinstance(frame, Leave):
        frame = Leave(frame.number, framing.shortened(frame.why))
    return framing.pack(frame)


class Reader(framing.FrameReader[Frame]):
    """Splits the bytes of a CONTROL connection into frames."""

    def __init__(self) -> None:
        super().__init__(_decode, "communicator")
