"""Messages between the engines of a communicator: frames on the CONTROL streams of their NICs.

They are framed like those between processes (softnic/collectives/framing.py). A CollectiveHeader is never longer than
the work request that it was made from, so every request that can be posted can be announced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from softnic.collectives import framing
from softnic.collectives.schedule import EXCHANGES
from softnic.ipc.work_queue import WorkRequest

_MAX_SHOWN_COUNTS = 16
_TEXT_BYTES, _COUNT_BYTES = 16 << 10, 9
"""Limits of a header's texts, or of an abort's, and of a count in msgpack."""


class CollectiveHeader(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A rank takes part in a collective.

    It is sent to all ranks that blocks are exchanged with. Data of a rank is used only after its header was found to
    be equal. The fields are those of WorkRequest without the memory.
    """

    number: int
    """Stays the first field: C reads it from the bytes (native/collectives/engine_headers.c, first_number)."""
    call: str
    collective: str
    algorithm: str
    dtype: str
    counts: tuple[int, ...]
    op: str
    root: int
    codec: str

    def with_counts(self, counts: tuple[int, ...]) -> CollectiveHeader:
        """Return the header of an exchange between two ranks, of the elements that each sends the other."""
        return msgspec.structs.replace(self, counts=counts)

    def describe(self) -> str:
        """Return the call as a person would write it."""
        if self.call in ("Barrier", "Ibarrier"):
            return f"{self.call}()"
        parts = [f"{sum(self.counts)} x {self.dtype}"]
        if self.collective in EXCHANGES and len(self.counts) == 2:
            parts = [f"sends {self.counts[0]}, receives {self.counts[1]} x {self.dtype}"]
        if self.collective in ("reduce_scatter", "allgather") and len(self.counts) <= _MAX_SHOWN_COUNTS:
            parts.append(f"counts={list(self.counts)}")
        parts += [f"op={self.op}"] if self.op else []
        parts += [f"root={self.root}"] if self.root >= 0 else []
        parts += [f"codec={self.codec}, algorithm={self.algorithm}"] if self.codec else []
        return f"{self.call}({', '.join(parts)})"


def header_of(request: WorkRequest) -> CollectiveHeader:
    """Return the header that announces a work request."""
    return CollectiveHeader(
        request.number,
        request.call,
        request.collective,
        request.algorithm,
        request.dtype,
        request.counts,
        request.op,
        request.root,
        request.codec,
    )


class EngineAbort(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """The communicator's offloaded collectives have failed. The sender sends nothing more."""

    rank: int
    """The rank at fault, -1 if it is not a single one."""
    text: str


class EngineLeave(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The sender's process leaves in good order. A stream that ends without it is that of a process that has ended."""


EngineMessage = CollectiveHeader | EngineAbort | EngineLeave

_decode: Callable[[bytearray], EngineMessage] = msgspec.msgpack.Decoder(EngineMessage).decode


HEADER_START = framing.pack(CollectiveHeader(0, "", "", "", "", (), "", 0, ""))[4:6]
"""The bytes behind the length of a message that say that it is a CollectiveHeader."""


def pack(message: EngineMessage) -> bytes:
    """Return the frame of a message."""
    if isinstance(message, EngineAbort):
        message = EngineAbort(message.rank, framing.shortened(message.text))
    return framing.pack(message)


class EngineMessageReader(framing.FrameReader[EngineMessage]):
    """Splits the bytes of a stream into messages. `size`: number of ranks; a header has at most one count for each."""

    def __init__(self, size: int) -> None:
        super().__init__(_decode, "NIC", min(framing.MAX_FRAME, _TEXT_BYTES + _COUNT_BYTES * size))


MISMATCHED = "mismatched call: "
"""Begins the text of a failure by ranks that call different things."""


def mismatched(calls: Mapping[int, str]) -> str:
    """Return what ranks called, by the first rank of each call: `rank 0 called Bcast(...), ranks 1, 2 Barrier()`."""
    ranks: dict[str, list[int]] = {}
    for rank, call in sorted(calls.items()):
        ranks.setdefault(call, []).append(rank)
    said = [f"rank{'s' * (len(those) > 1)} {', '.join(map(str, those))}" for those in ranks.values()]
    first, *others = [f"{who} {call}" for who, call in zip(said, ranks, strict=True)]
    called = first.replace(f"{said[0]} ", f"{said[0]} called ", 1)
    return MISMATCHED + ", ".join([called, *others])
