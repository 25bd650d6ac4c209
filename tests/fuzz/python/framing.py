"""Frames on connections between ranks: of communicators, of engines, of the store.

However the bytes arrive, the same frames come of them, or the same refusal; a frame that was read is written and read
again as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from softnic.collectives import framing, messages
from softnic.comm import messages as rank_messages
from softnic.comm.bootstrap import store
from softnic.comm.bootstrap.store import frame_reader as store_reader

_READERS: tuple[Callable[[], framing.FrameReader[Any]], ...] = (
    rank_messages.Reader,
    lambda: messages.EngineMessageReader(4),
    store_reader,
)
_MOST_PIECES = 16
"""A frame of many bytes that come one by one takes most of the time, and shows no more than a short one does."""


def _read(reader: framing.FrameReader[Any], pieces: list[bytes]) -> tuple[list[msgspec.Struct], bool]:
    """The frames, and whether bytes behind them were refused."""
    frames: list[msgspec.Struct] = []
    try:
        for piece in pieces:
            frames.extend(reader.feed(piece))  # those before a refusal count, too
    except ValueError:
        return frames, True
    return frames, False


def feed(data: bytes) -> None:
    """Input: which reader (1 byte), bytes of a piece (1; more, where there would be too many), the bytes."""
    if len(data) < 2:
        return
    make, stream = _READERS[data[0] % len(_READERS)], data[2:]
    size = max(data[1] + 1, len(stream) // _MOST_PIECES)
    frames, refused = _read(make(), [stream])
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert _read(make(), pieces) == (frames, refused)
    written = b"".join(map(framing.pack, frames))
    assert _read(make(), [written]) == (frames, False)


def seeds() -> Iterator[bytes]:
    hello, abort = rank_messages.Hello(2, 4, 1, 0, 0), rank_messages.Abort(1, "why")
    head = rank_messages.Waiting(1, "Allreduce_comp")
    own: tuple[rank_messages.Frame, ...] = (
        hello,
        head,
        rank_messages.Announce(1, 400, "float32", "bounded:10"),
        rank_messages.Announce(1, 4, "uint8", "", memoryview(b"data")),
        rank_messages.Credit(4),
        abort,
        rank_messages.Leave(3),
        rank_messages.Joined(),
    )
    yield b"\x00\x06" + b"".join(map(rank_messages.pack, own))
    said = messages.CollectiveHeader(1, "Iallreduce", "allreduce", "ring", "float32", (50, 50), "SUM", -1, "bounded:10")
    yield b"\x01\x30" + messages.pack(said) + messages.pack(messages.EngineAbort(1, "why"))
    asked = (
        store.JoinStore("job"),
        store.SetKey("key", b"value"),
        store.GetKey("key"),
        store.KeyStored(),
        store.KeyValue(b"value"),
        store.Challenge(b"nonce", b"proof"),
        store.Prove(b"proof"),
        store.StoreRefused("why"),
    )
    yield b"\x02\xff" + b"".join(map(framing.pack, asked))
