"""What ranks say to each other beside the data: small frames on a connection that carries nothing else.

Five connections join two ranks: CONTROL for these frames, PLAIN for data as it is, TAGGED for floats that the NICs
compress. The frames say what follows on these two, so they carry data alone: on TAGGED every message is filled up to a
multiple of 64 bytes, the unit that a NIC cuts tagged ranges by (FORMAT.md). WORDS and DATA are handed to the NICs, for
the collectives that these execute; a process sends a Hello on them and nothing more. Frames are framed by framing.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from softnic.collectives import framing

VERSION = 2
CONTROL, PLAIN, TAGGED, WORDS, DATA = range(5)
CHANNELS = 5
"""Connections between two ranks."""
UNIT = 64
"""Bytes; messages on TAGGED are multiples of it."""


class Hello(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame on each of the connections, both ways."""

    version: int
    size: int
    rank: int
    to: int
    """The rank that is thought to listen there."""
    channel: int


class Head(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A rank enters a collective call. Each tells all others, and none leaves before all entered the same call."""

    number: int
    """Counts this communicator's collective calls, from 1."""
    call: str
    count: int = 0
    dtype: str = ""
    op: str = ""
    root: int = -1
    codec: str = ""
    counts: tuple[int, ...] = ()
    """Reduce_scatter: the elements that each rank gets."""
    algorithm: str = ""
    """Which of softnic/collectives/schedule's the blocks take. Users name it where they name a codec."""

    def describe(self) -> str:
        """As a person would write the call."""
        parts = [f"{self.count} x {self.dtype}"] if self.dtype else []
        parts += [f"op={self.op}"] if self.op else []
        parts += [f"root={self.root}"] if self.root >= 0 else []
        parts += [f"codec={self.codec}"] if self.codec else []
        parts += [f"recvcounts={list(self.counts)}"] if self.counts else []
        parts += [f"algorithm={self.algorithm}"] if self.algorithm and self.codec else []
        return f"{self.call}({', '.join(parts)})"


class Announce(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """A message of `size` bytes follows on PLAIN, or, where it names a codec other than raw, on TAGGED."""

    tag: int
    size: int
    dtype: str
    """Empty: a pickled object."""
    codec: str = ""
    number: int = 0
    """Of the collective call that it is a part of; 0: a Send."""

    @property
    def tagged(self) -> bool:
        return self.codec not in ("", "raw")


class Abort(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The sender's call failed; nothing more comes from it."""

    rank: int
    """The rank at fault, -1 where no single one is."""
    text: str


class Leave(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The sender is done with this communicator, after `number` collective calls."""

    number: int
    why: str = ""
    """Empty: it wanted to."""


class Joined(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The sender's NIC has taken WORDS and DATA over: what arrives there now is no program's any more."""


Frame = Hello | Head | Announce | Abort | Leave | Joined

_decode: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


def pack(frame: Frame) -> bytes:
    if isinstance(frame, Abort):
        frame = Abort(frame.rank, framing.shortened(frame.text))
    elif isinstance(frame, Leave):
        frame = Leave(frame.number, framing.shortened(frame.why))
    return framing.pack(frame)


def padding(size: int) -> int:
    """Bytes that follow a message of `size` bytes on TAGGED."""
    return -size % UNIT


class Reader(framing.FrameReader[Frame]):
    """Of a CONTROL connection."""

    def __init__(self) -> None:
        super().__init__(_decode, "communicator")
