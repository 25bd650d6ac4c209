"""Words that ranks send each other from device to device, encoded there: one message of this rank, or to it.

Blocks are encoded to slots. If all take what a slot has, the slots are the message: they are the body that the codec's
format has for these words. Else it is the size of each block, int16, and then the body, in which sizes differ. At the
end, from a multiple of 8 bytes on, are the least and the greatest size, two int32, from which sender and receiver see
which of both it is.

A message is encoded, copied to registered memory, sent, copied to the other device and decoded there. None of these
waits for another message, and nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch

from softnic.collectives.elements import Array
from softnic.comm.errors import ArgumentError
from softnic.comm.matching import REGISTERED_BYTES
from softnic.comm.scratch import Allocation
from softnic.mpi.progress_loop import Receiving, Sending
from softnic.torch.devices import Copies, Event
from softnic.torch.exec_context import ExecContext

Steps = Iterator[Callable[[], bool]]
"""Work in steps: a generator, each of whose values returns whether the next step can be made."""
Value = TypeVar("Value")
Result = Generator[Callable[[], bool], None, Value]
"""Steps with a result."""
_ALIGNMENT = 8
_TRAILER = 8
"""Bytes of the two sizes at the end."""
_INDEX = 2
"""Bytes of the size of a block."""


class SlotCodec(Protocol):
    """A codec of whole blocks of float32 words on a device: softnic.torch.gpu.codec.DeviceCodec."""

    block_words: int
    word_bytes: int
    """Of an element that is not encoded."""
    slot: int
    """Bytes of a slot, which most blocks take in a body, too; 0: most do not."""
    sizes: frozenset[int]
    """That blocks may have in a body."""

    def encode_slots(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slots of words, and the size of each block in a body, int32."""

    def decode_slots(self, slots: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode slots to words, or add them. Only if there are slots."""

    def body_of(self, words: torch.Tensor, slots: torch.Tensor, sizes: torch.Tensor, size: int) -> torch.Tensor:
        """Return the body of words whose blocks have different sizes, `size` together."""

    def decode_sizes(self, body: torch.Tensor, sizes: torch.Tensor, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode a body whose blocks have these sizes to words, or add it. Codecs of copies do not add."""

    def encode_rounded(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Do as `encode_slots`; the words become what is decoded of them."""

    def reduce_slots(
        self, contributions: torch.Tensor, words: torch.Tensor, *, decode: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the slots of contributions to words, one after the other, and encode the sum as `encode_slots` does.

        With `decode`, the words become what is decoded of it. Only if there are slots.
        """


class Course:
    """Steps that are made as they can be."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._can_go_on = next(steps, None)

    def advance(self) -> bool:
        """Make the steps that can be made; return whether there are no more. Raises what they raise."""
        while self._can_go_on is not None and self._can_go_on():
            self._can_go_on = next(self._steps, None)
        return self._can_go_on is None


class Port:
    """What messages between devices need: this rank's device and codec, and the group that they are sent in.

    Senders and receivers are given by their index among the `ranks`.
    """

    def __init__(self, context: ExecContext, device: torch.device, codec: SlotCodec, ranks: Sequence[int]) -> None:
        self.context = context
        self.device = device
        self.codec = codec
        self.ranks = ranks
        """Of the group, those that exchange messages."""
        self.streams = context.streams(device)
        self._pool = context.pool(device)

    def send(self, to: int, tag: int, message: Array, words: int) -> Sending:
        """Send a message. `words` is the number of words that it encodes."""
        if message.nbytes > REGISTERED_BYTES:  # shorter ones are not counted, as of any call
            self.context.spared_bytes += self.codec.word_bytes * words - message.nbytes
        return self.context.loop.send(self.ranks[to], tag, message)

    def receive(self, source: int, tag: int, room: Callable[[int], Array]) -> Receiving:
        return self.context.loop.receive_sized(self.ranks[source], tag, room)

    def allocate(self, size: int) -> Allocation:
        return self._pool.allocate(size)

    def free(self, memory: Allocation) -> None:
        self._pool.free(memory)

    def download(self, copies: Copies) -> Event:
        """Copy what kernels have made to the host."""
        event = self.streams.download(copies, [self.streams.mark()])
        self.context.watched([event])
        return event

    def upload(self, copies: Copies) -> Event:
        event = self.streams.upload(copies, ())
        self.context.watched([event])
        return event


def send(
    port: Port,
    words: torch.Tensor,
    to: Sequence[int],
    tag: int,
    encoded: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> Steps:
    """Encode words, unless their slots and sizes are given, and send them. The words must not change meanwhile."""
    with port.streams.kernels():
        slots, sizes = port.codec.encode_slots(words) if encoded is None else encoded
        extremes = torch.stack(torch.aminmax(sizes))
    memory = (yield from _slots_on_host(port, slots, extremes)) if port.codec.slot else None
    if memory is None:
        memory = yield from _body_on_host(port, words, slots, sizes, extremes)
    sendings = [port.send(each, tag, memory.bytes, words.numel()) for each in to]
    yield lambda: all([sending.is_complete for sending in sendings])
    port.free(memory)


def _slots_on_host(port: Port, slots: torch.Tensor, extremes: torch.Tensor) -> Result[Allocation | None]:
    """Copy slots to the host. Return the message, or None if they are none."""
    memory, copied = _copy(port, [slots], extremes)
    yield copied.query
    if _are_slots(memory.bytes, port.codec):
        return memory
    port.free(memory)
    return None


def _body_on_host(
    port: Port, words: torch.Tensor, slots: torch.Tensor, sizes: torch.Tensor, extremes: torch.Tensor
) -> Result[Allocation]:
    """Copy the body of words, and the sizes of its blocks, to the host. Return the message."""
    with port.streams.kernels():
        total = sizes.sum(0, keepdim=True, dtype=torch.int64)
    memory, copied = _copy(port, [total.view(torch.uint8)], extremes)
    yield copied.query
    size = int(memory.bytes[:_ALIGNMENT].view(np.int64)[0])
    port.free(memory)
    with port.streams.kernels():
        index = sizes.to(torch.int16).view(torch.uint8)
        body = port.codec.body_of(words, slots, sizes, size)
    memory, copied = _copy(port, [index, body], extremes)
    yield copied.query
    return memory


def _copy(port: Port, parts: Sequence[torch.Tensor], extremes: torch.Tensor) -> tuple[Allocation, Event]:
    """Copy the parts of a message to the host. Returns its memory, and when they are there."""
    size = sum(part.numel() for part in parts)
    trailer = -(-size // _ALIGNMENT) * _ALIGNMENT
    memory = port.allocate(trailer + _TRAILER)
    host = torch.from_numpy(memory.bytes)
    copies, start = [], 0
    for part in parts:
        copies.append((part, host[start : start + part.numel()]))
        start += part.numel()
    return memory, port.download([*copies, (extremes, host[trailer:].view(torch.int32))])


class Incoming:
    """A message with `count` words, which is copied to the device when it has arrived.

    `to`: to whom it is sent on. `row`: memory of the device for its slots.
    """

    def __init__(
        self,
        port: Port,
        count: int,
        source: int,
        tag: int,
        *,
        to: Sequence[int] = (),
        row: torch.Tensor | None = None,
    ) -> None:
        self._port, self._source, self._to, self._tag = port, source, to, tag
        self._blocks, self._row = count // port.codec.block_words, row
        self._memory: Allocation | None = None
        self._sendings: list[Sending] = []
        self._uploaded: Event | None = None
        self._used: Event | None = None
        """After which nothing on the device needs it any more."""
        self.slots: torch.Tensor | None = None
        """On the device, if all blocks fit theirs."""
        self._body: tuple[torch.Tensor, torch.Tensor] | None = None
        """A body and the sizes of its blocks, if not."""
        self._receiving = port.receive(source, tag, self._room)

    def _room(self, size: int) -> Array:
        codec = self._port.codec
        most = self._blocks * (_INDEX + max(codec.sizes)) + _ALIGNMENT + _TRAILER
        if not _TRAILER <= size <= most:
            raise self._malformed(f"{size} bytes")
        self._memory = self._port.allocate(size)
        return self._memory.bytes

    def has_arrived(self) -> bool:
        """Copy it to the device once it has arrived; return whether it has. Raises CommError."""
        if self._uploaded is not None:
            return True
        if not self._receiving.is_complete:
            return False
        assert self._memory is not None
        message = self._memory.bytes
        words = self._blocks * self._port.codec.block_words
        self._sendings = [self._port.send(each, self._tag, message, words) for each in self._to]
        if _are_slots(message, self._port.codec):
            self._take_slots(message)
        else:
            self._take_body(message)
        return True

    def _take_slots(self, message: Array) -> None:
        size = self._blocks * self._port.codec.slot
        if not size <= message.nbytes - _TRAILER < size + _ALIGNMENT:
            raise self._malformed(f"{message.nbytes} bytes of slots")
        self.slots = self._new(size) if self._row is None else self._row
        self._uploaded = self._port.upload([(torch.from_numpy(message[:size]), self.slots)])

    def _take_body(self, message: Array) -> None:
        if message.nbytes < _INDEX * self._blocks + _TRAILER:
            raise self._malformed(f"{message.nbytes} bytes without the sizes of blocks")
        index = message[: _INDEX * self._blocks].view(np.int16)
        if not self._port.codec.sizes.issuperset(np.unique(index).tolist()):
            raise self._malformed("blocks of sizes that there are not")
        sizes, start = index.astype(np.int32), index.nbytes
        size = int(sizes.sum())
        if not size <= message.nbytes - _TRAILER - start < size + _ALIGNMENT:
            raise self._malformed(f"{message.nbytes} bytes with a body of {size}")
        self._on_host = self._port.allocate(sizes.nbytes)
        self._on_host.bytes[:] = sizes.view(np.uint8)
        body, on_device = self._new(size), self._new(sizes.nbytes)
        self._body = body, on_device.view(torch.int32)
        given = torch.from_numpy(message[start : start + size])
        self._uploaded = self._port.upload([(given, body), (torch.from_numpy(self._on_host.bytes), on_device)])

    def _new(self, size: int) -> torch.Tensor:
        with self._port.streams.kernels():
            return torch.empty(size, dtype=torch.uint8, device=self._port.device)

    def _malformed(self, what: str) -> ArgumentError:
        rank = self._port.ranks[self._source]
        return ArgumentError(f"rank {rank} sent {what} where encoded words are expected", rank=rank)

    @property
    def uploaded(self) -> Event:
        """After which it is on the device, once it has arrived."""
        assert self._uploaded is not None
        return self._uploaded

    def decode(self, words: torch.Tensor, *, add: bool = False) -> None:
        """Decode it to words, or add it. Called within the streams' `kernels`, after `uploaded`."""
        if self.slots is not None:
            self._port.codec.decode_slots(self.slots, words, add=add)
        else:
            assert self._body is not None
            self._port.codec.decode_sizes(*self._body, words, add=add)
        self.used()

    def used(self) -> None:
        """Note that kernels so far are the last to need it."""
        self._used = self._port.streams.mark()

    def is_free(self) -> bool:
        """Return whether its memory has been used, and given back. Raises CommError."""
        if self._used is None or not self._used.query() or not all([each.is_complete for each in self._sendings]):
            return False
        if self._memory is not None:
            self._port.free(self._memory)
            if self._body is not None:
                self._port.free(self._on_host)
            self._memory = None
        return True


def _are_slots(message: Array, codec: SlotCodec) -> bool:
    """Return whether a message has slots, by the two sizes at its end."""
    least, greatest = message[-_TRAILER:].view(np.int32)
    return bool(codec.slot) and int(least) == int(greatest) == codec.slot
