"""What the executors of a group say to each other: frames on connections that carry nothing else.

They are framed as those on a communicator's CONTROL connections (softnic/collectives/framing.py). A Head is as long as
the Post that it was made from at most, so what may be posted may be said.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from softnic.collectives import framing
from softnic.ipc.work_queue import Post

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

_decode: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


def pack(frame: Frame) -> bytes:
    if isinstance(frame, Abort):
        frame = Abort(frame.rank, framing.shortened(frame.text))
    return framing.pack(frame)


class Reader(framing.Reader[Frame]):
    """Of a WORDS connection."""

    def __init__(self) -> None:
        super().__init__(_decode, "group")
