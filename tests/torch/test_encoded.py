"""Messages of encoded words: what arrives is what the host's codec decodes, and what is malformed is one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic.codecs import DecodeError
from softnic.collectives.elements import Array
from softnic.comm.errors import ArgumentError
from softnic.comm.scratch import Scratch
from softnic.torch.encoded import Course, Incoming, Port, send
from softnic.torch.exec_context import ExecContext
from tests.torch.host_slots import HostSlots
from tests.torch.stand_in import Event, StandIn

CODECS = ("rht:4", "bfp:7", "exact:32", "exact:16")


class Streams(StandIn):
    """A stand-in whose copies are made at once."""

    def __init__(self) -> None:
        pass

    def download(self, copies: Any, after: Any) -> Event:  # noqa: ARG002
        for source, target in copies:
            target.copy_(source)
        return self.mark()

    upload = download


class Loop:
    """Keeps the messages that are sent, and gives the one message that it has to whoever receives."""

    def __init__(self, message: bytes = b"") -> None:
        self.sent: list[tuple[int, bytes]] = []
        self._message = message

    def send(self, rank: int, _: int, array: Array) -> Any:
        self.sent.append((rank, array.tobytes()))
        return SimpleNamespace(is_complete=True)

    def receive_sized(self, _source: int, _tag: int, room: Callable[[int], Array]) -> Any:
        room(len(self._message))[:] = np.frombuffer(self._message, np.uint8)
        return SimpleNamespace(is_complete=True)


def port(codec: str, loop: Loop) -> Port:
    pool, streams = Scratch(), Streams()
    context = SimpleNamespace(
        loop=loop, streams=lambda _: streams, pool=lambda _: pool, watched=lambda events: events, spared_bytes=0
    )
    return Port(cast(ExecContext, context), torch.device("cpu"), HostSlots(codecs.get(codec)), range(8))


def sent(codec: str, words: torch.Tensor) -> bytes:
    loop = Loop()
    assert Course(send(port(codec, loop), words, [3, 5], 7)).advance()
    first, second = loop.sent
    assert (first[0], second[0]) == (3, 5)
    assert first[1] == second[1]
    return first[1]


def decoded(codec: str, message: bytes, words: torch.Tensor, *, add: bool = False) -> Incoming:
    """Decode a message from rank 4, or add it to words. Returns it."""
    incoming = Incoming(port(codec, Loop(message)), words.numel(), 4, 7)
    if incoming.has_arrived():
        incoming.decode(words, add=add)
    return incoming


@st.composite
def rows(draw: st.DrawFn, codec: str) -> torch.Tensor:
    """Draw words whose blocks are ordinary, of zeros, or have a word that is huge, infinite or no number."""
    block = 16 if codec.startswith("bfp") else 128
    kinds = draw(st.lists(st.sampled_from(["", "", "zeros", "huge", "nan"]), min_size=1, max_size=70))
    found = torch.randn(len(kinds), block, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    for words, kind in zip(found, kinds, strict=True):
        if kind == "zeros":
            words.zero_()
        elif kind:
            words[draw(st.integers(0, block - 1))] = 3e38 if kind == "huge" else torch.nan
    return found.flatten()


def _bits(words: torch.Tensor) -> Array:
    bits: Array = words.numpy().view(np.uint32)
    return bits


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data(), add=st.booleans())
def test_words_arrive_as_the_host_decodes_them(codec: str, data: st.DataObject, add: bool) -> None:
    words = data.draw(rows(codec))
    whole = codecs.get(codec)
    expected = torch.from_numpy(np.array(whole.decode(whole.encode(words.numpy()), words.numel())))
    found = torch.full_like(words, 0.25)
    if add:
        expected = found + expected
    assert decoded(codec, sent(codec, words), found, add=add).is_free()
    assert np.array_equal(_bits(found), _bits(expected))


@pytest.mark.parametrize("codec", CODECS)
def test_ordinary_words_are_sent_as_their_body(codec: str) -> None:
    words = torch.randn(128 * 24, generator=torch.Generator().manual_seed(1))
    body, message = codecs.get(codec).encode(words.numpy()), sent(codec, words)
    assert body in message
    index = 0 if HostSlots(codecs.get(codec)).slot else 2 * 24
    assert len(message) <= len(body) + index + 16


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_a_damaged_message_is_one_error_or_other_words(codec: str, data: st.DataObject) -> None:
    words = data.draw(rows(codec))
    message = bytearray(sent(codec, words))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(message)))
    refused = None
    try:
        decoded(codec, bytes(message[: cut or None]), words)
    except DecodeError:
        pass  # of the host's codec, which plays the device's: kernels give some words
    except ArgumentError as error:
        refused = error
    assert refused is None or (refused.rank == 4 and "where encoded words are expected" in str(refused))


def damaged() -> Iterator[tuple[str, bytes]]:
    """Yield what is wrong with a message, in the text of the error, and the message: of four blocks of rht:4."""
    slots = np.array([66, 66], np.int32).tobytes()
    mixed = np.array([2, 66], np.int32).tobytes()
    yield "0 bytes", b""
    yield "of slots", bytes(3 * 66) + slots
    yield "5000 bytes", bytes(5000)
    yield "blocks of sizes", np.array([2, 66, 66, 67], np.int16).tobytes() + bytes(2 + 66 + 66 + 67) + mixed
    yield "without the sizes", np.array([2, 66, 66], np.int16).tobytes() + bytes(1) + mixed
    yield "with a body of 200", np.array([2, 66, 66, 66], np.int16).tobytes() + bytes(190) + mixed
    yield "with a body of 200", np.array([2, 66, 66, 66], np.int16).tobytes() + bytes(208) + mixed


@pytest.mark.parametrize(("text", "message"), [*damaged()])
def test_malformed_messages_are_refused(text: str, message: bytes) -> None:
    with pytest.raises(ArgumentError, match=f"rank 4 sent .*{text}"):
        decoded("rht:4", message, torch.zeros(4 * 128))
