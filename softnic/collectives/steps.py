"""The steps of a schedule in progress: one block that is sent, or one that is received.

Steps feed each other: a received block is forwarded, or combined further, as far as it is `ready`. Received bytes go
through one call a view to where they belong; sent bytes are read by the stream where they lie. Memory that is
still being sent is copied before it is overwritten. That is rare: a block overwrites what was sent of it with a result
that contains it, so the sent bytes have been acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.collectives.operations import Array, Finish, Reducer
from softnic.collectives.stream import CODING_BLOCK, PeerStream

MIN_FORWARD_BYTES = 32 << 10
"""A block is forwarded in parts of at least this size while the rest is still being received."""
ROUND_AHEAD_BYTES = 1 << 20
"""Bytes that are rounded at a time."""
_ZEROS = memoryview(bytes(CODING_BLOCK))


class EngineOp:
    """Base of what the engine executes. `on_done` is called when `pending` reaches zero."""

    __slots__ = ("_on_done", "call", "number", "pending", "zerocopy_marks")

    def __init__(self, number: int, call: str) -> None:
        self.number = number
        self.call = call
        """The user's call, for error messages."""
        self.pending = 0
        """Steps and headers that are not done."""
        self.zerocopy_marks: dict[PeerStream, int] = {}
        """By stream, the `completed_bytes` at which it no longer reads this operation's memory."""
        self._on_done: Callable[[Any], object] | None = None

    def on_step_done(self) -> None:
        """Count one step, or the header of a rank, as done."""
        self.pending -= 1
        if not self.pending and self._on_done is not None:
            self._on_done(self)


class Block:
    """Bytes [start, start + size) of an operation's memory; on the wire, `pad` zeros follow."""

    __slots__ = ("pad", "size", "start")

    def __init__(self, start: int, size: int, compressed: bool) -> None:
        self.start = start
        self.size = size
        self.pad = -size % CODING_BLOCK if compressed else 0


class StagedBlock:
    """A block of this rank's contribution, which its process is still copying to where the NIC reads it."""

    __slots__ = ("ready", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.ready = 0
        """Bytes from the first on that are there."""

    def prepare(self, handed_over: int, stream: PeerStream) -> None:
        """Do nothing: the process reports what is ready."""


class SendStep:
    """A block to be sent, as far as `source` has made it ready (None: all of it is)."""

    __slots__ = (
        "_first_position", "_pad_left", "block", "codec", "handed_over", "memory", "op", "source", "zerocopied",
    )  # fmt: skip

    def __init__(
        self, op: EngineOp, block: Block, memory: memoryview, codec: str | None, source: BlockSource | None
    ) -> None:
        self.op = op
        self.block = block
        self.memory = memory
        self.codec = codec
        self.source = source
        self.handed_over = 0
        """Bytes that the stream has taken, by a copy or without."""
        self.zerocopied = 0
        """Of them, from the first on, those up to the last one taken without a copy."""
        self._pad_left = block.pad
        self._first_position = 0

    def advance(self, stream: PeerStream) -> bool:
        """Hand over what is ready; return whether that was the rest of it."""
        size = self.block.size
        while self.handed_over < size:
            ready = size
            if self.source is not None:
                self.source.prepare(self.handed_over, stream)
                ready = self.source.ready
            count = ready - self.handed_over
            if (ready < size and count < MIN_FORWARD_BYTES) or not self._hand_over(stream, count):
                return False
        if self._pad_left:
            self._pad_left -= stream.send(_ZEROS[: self._pad_left])
        return not self._pad_left

    def _hand_over(self, stream: PeerStream, count: int) -> bool:
        """Hand over at most `count` bytes; return whether the stream took any."""
        if not self.handed_over:
            stream.set_codec(self.codec)
            self._first_position = stream.zerocopy_bytes
        sent, zerocopy = stream.send_zerocopy(self.memory, self.block.start + self.handed_over, count)
        self.handed_over += sent
        if zerocopy:
            self.zerocopied = self.handed_over
        return sent > 0

    def reclaim(self, stream: PeerStream, end: int) -> None:
        """Ensure that the stream no longer reads the first `end` bytes, all of which it has taken."""
        stream.reclaim(self._first_position + min(end, self.zerocopied))


class RoundedBlock:
    """A block that this rank has from the start, rounded by the codec in parts as it is sent.

    Rounding a long block at once would keep the NIC from all other work.
    """

    __slots__ = ("_codec", "_floats", "_size", "_staged", "ready")

    def __init__(self, codec: Codec, floats: Array, staged: StagedBlock | None) -> None:
        self._codec = codec
        self._floats = floats
        self._size = floats.nbytes
        self._staged = staged
        self.ready = 0
        """Bytes rounded so far."""

    def prepare(self, handed_over: int, stream: PeerStream) -> None:
        """Round the next part when the stream has taken all parts before it and has little left to transmit."""
        there = self._size if self._staged is None else self._staged.ready
        if there < self._size and there - self.ready < MIN_FORWARD_BYTES:  # less is not handed over
            return
        if handed_over == self.ready < there and stream.unsent < ROUND_AHEAD_BYTES:
            end = min(there, self.ready + ROUND_AHEAD_BYTES)
            part = self._floats[self.ready // 4 : end // 4]
            self._codec.roundtrip(part, out=part)
            self.ready = end


Readers = list[tuple[SendStep, PeerStream]]
"""Sends that read the memory which a receive overwrites."""


class RecvStep:
    """A block to be received, behind what `before` has made ready of the same block, and behind `readers`."""

    __slots__ = ("before", "block", "memory", "op", "pad_left", "readers", "ready", "received")

    def __init__(
        self,
        op: EngineOp,
        block: Block,
        memory: memoryview,
        before: RecvStep | StagedBlock | None = None,
        readers: Readers | None = None,
    ) -> None:
        self.op = op
        self.block = block
        self.memory = memory
        self.before = before
        self.readers: Readers = [] if readers is None else readers
        self.received = 0
        self.ready = 0
        """Bytes from the first on that are final."""
        self.pad_left = block.pad

    def writable_end(self) -> int:
        """Return up to where the block may be written now."""
        before = self.before
        end = self.block.size if before is None else before.ready
        for step, _ in self.readers:
            end = min(end, step.handed_over)
        return end

    def prepare(self, handed_over: int, stream: PeerStream) -> None:
        """Do nothing: received bytes become ready by themselves."""

    def release(self, end: int) -> None:
        """Ensure that no stream reads the first `end` bytes, which are before `writable_end`."""
        for step, stream in self.readers:
            step.reclaim(stream, end)
        if end == self.block.size:
            self.readers.clear()

    def advance(self, stream: PeerStream) -> bool:
        """Take received bytes as far as they can be used now; return whether the block is complete."""
        if self.received < self.block.size:
            self._take(stream)
            if self.received < self.block.size:
                return False
        if self.pad_left:
            count = min(self.pad_left, stream.unread)
            stream.consume(count)
            self.pad_left -= count
        return not self.pad_left

    @property
    def missing(self) -> int:
        """Bytes still to be taken from the stream, padding included."""
        return self.block.size - self.received + self.pad_left

    def _take(self, stream: PeerStream) -> None:
        raise NotImplementedError

    def place(self, start: int, size: int) -> npt.NDArray[np.uint8] | None:
        """Return the memory for `size` bytes that begin `start` bytes behind the next one, if they are final as they
        arrive."""
        del start, size
        return None


BlockSource = RecvStep | RoundedBlock | StagedBlock
"""What makes a block ready to be sent."""


class CopyRecv(RecvStep):
    """A block that replaces what is in its place."""

    __slots__ = ()

    def _take(self, stream: PeerStream) -> None:
        end = self.writable_end()
        if end <= self.received:
            return
        self.release(min(end, self.received + stream.unread))
        self.received += stream.read_into(self.memory, self.block.start + self.received, end - self.received)
        whole = self.received == self.block.size
        self.ready = self.received if whole else self.received - self.received % CODING_BLOCK

    def place(self, start: int, size: int) -> npt.NDArray[np.uint8] | None:
        first = self.received + start
        if first + size > self.writable_end():
            return None
        self.release(first + size)
        return np.frombuffer(self.memory, np.uint8, size, self.block.start + first)


class ReduceRecv(RecvStep):
    """A block that `reducer` combines, element by element, with this rank's contribution, or the result so far."""

    __slots__ = ("_finish", "_reducer", "_result", "_rounding")

    def __init__(
        self,
        op: EngineOp,
        block: Block,
        memory: memoryview,
        before: RecvStep | StagedBlock | None,
        readers: Readers,
        result: Array,
        reducer: Reducer,
    ) -> None:
        super().__init__(op, block, memory, before, readers)
        self._result = result
        self._reducer = reducer
        self._finish: Finish | None = None
        self._rounding: Codec | None = None

    def set_last(self, finish: Finish | None, rounding: Codec | None) -> None:
        """Have the result finished and rounded: it contains the contributions of all ranks."""
        self._finish = finish
        self._rounding = rounding

    def _take(self, stream: PeerStream) -> None:
        end = self.writable_end()
        item = self._result.itemsize
        end -= end % item
        received = stream.received
        if end <= self.received or stream.unread < item:
            return
        self.release(min(end, self.received + stream.unread))
        while self.received < end and stream.unread >= item:
            view = received[0]
            count = min(len(view), end - self.received)
            count -= count % item
            if not count:  # an element that lies in two views or more
                view, count = memoryview(_first_bytes(stream, item)), item
            self._reducer(view[:count], self.received)
            self.received += count
            stream.consume(count)
        self._complete()

    def _complete(self) -> None:
        """Finish and round the part of the result that contains all contributions."""
        end = self.received
        if end < self.block.size:
            end -= end % CODING_BLOCK
        if end > self.ready and (self._finish is not None or self._rounding is not None):
            item = self._result.itemsize
            part = self._result[self.ready // item : end // item]
            if self._finish is not None:
                self._finish(part)
            if self._rounding is not None:
                self._rounding.roundtrip(part, out=part)
        self.ready = end


def _first_bytes(stream: PeerStream, count: int) -> bytes:
    """Return the next `count` bytes, all of which are there."""
    parts = bytearray()
    for view in stream.received:
        parts += view[: count - len(parts)]
        if len(parts) == count:
            break
    return bytes(parts)
