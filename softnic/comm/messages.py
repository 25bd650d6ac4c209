"""Control messages between ranks: small frames on a connection that carries nothing else.

Five connections join two ranks. CONTROL carries these frames. The NICs read and write the other four: PLAIN carries
single messages as they are, TAGGED those that are compressed, WORDS the messages between the collective engines, DATA
the blocks of collectives. A process sends a Hello on them and nothing more. Frames are framed by framing.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from softnic.collectives import framing

VERSION = 4
"""Version of these frames; ranks with different versions refuse each other."""
CONTROL, PLAIN, TAGGED, WORDS, DATA = range(5)
CHANNELS = 5
"""Connections between two ranks."""


class Hello(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame on each of the connections, in both directions."""

    version: int
    size: int
    rank: int
    to: int
    """The rank that is expected to listen there."""
    channel: int


class Waiting(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """The sender has been waiting in a collective call for a while: it sends no message before it is complete."""

    number: int
    """Counts this communicator's collectives, from 1; 0: it no longer waits."""
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

    @property
    def compressed(self) -> bool:
        return self.codec not in ("", "raw")


class Abort(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The sender's call failed; it sends nothing more."""

    rank: int
    """The rank at fault, -1 if it is not a single one."""
    text: str


class Leave(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The sender has left this communicator after `number` collective calls."""

    number: int
    why: str = ""
    """Empty: it was asked to."""


class Joined(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The sender's NIC has taken over its connections: what they carry from now on does not reach its process."""


class Credit(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """The sender has received inline messages of `size` bytes, and takes as many more."""

    size: int


Frame = Hello | Waiting | Announce | Abort | Leave | Joined | Credit

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
