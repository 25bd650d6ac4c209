"""Frames of an agreement among ranks (agreement.py), each a msgpack array as softnic/collectives/framing.py says."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from softnic.collectives import framing

MAX_BYTES = 1 << 20
"""Of a frame: a decision has an address of about 20 bytes for each rank."""


class Enter(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame of a connection: which agreement of the communicator it belongs to."""

    number: int
    """From 1."""


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What all agree on."""

    members: list[int]
    """Ranks that take part, in order."""
    failed: list[int]
    """The others."""
    flag: int
    """The bits that all members' flags have."""
    acknowledged: list[int]
    """Failed ranks that all members have acknowledged before."""
    addresses: list[tuple[str, int]]
    """Of the members, where they listen for the next communicator."""
    epoch: str
    """Random name of that."""


class Vote(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """What a rank brings, sent to the rank that it takes for the coordinator."""

    call: str
    flag: int
    acknowledged: list[int]
    address: tuple[str, int]
    ballot: int = -1
    """The coordinator whose proposal it has accepted last; -1: none."""
    accepted: Decision | None = None
    """That proposal."""


class Propose(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """From the coordinator to those that have voted."""

    decision: Decision


class Accept(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The sender has accepted the coordinator's proposal, and accepts none of a lower rank any more."""


class Commit(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """This is decided. Whoever receives it first passes it on to all others."""

    decision: Decision


class Refuse(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """The coordinator gives up, and says why."""

    text: str


Frame = Enter | Vote | Propose | Accept | Commit | Refuse
_decode: Callable[[bytearray], Frame] = msgspec.msgpack.Decoder(Frame).decode


def reader() -> framing.FrameReader[Frame]:
    """Return what splits the bytes of a connection into frames."""
    return framing.FrameReader(_decode, "communicator", MAX_BYTES)
