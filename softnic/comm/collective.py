"""Runs a schedule over arrays: turns its steps into messages that feed one another.

A block that is received is passed on while it still comes in, CHUNK_BYTES at a time where it has to be combined
first: receiving, adding and sending of successive ring steps overlap. Nothing is copied but from socket to scratch
(what is to be combined) or to its place; and not even that where the arrays are registered memory, which NICs read and
write themselves. There, several chunks of scratch are filled ahead of what is combined.

With a codec, floats travel on the TAGGED connection and arrive as decode(encode(x)). Whoever owns a block, the last
to add to it, keeps decode(encode(x)) of it too, so that all ranks end with the same bits: a second encoding changes
nothing any more (FORMAT.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softnic import memory
from softnic.codecs import Codec
from softnic.comm import wire
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Channel, Incoming, Outgoing
from softnic.comm.matching import Call
from softnic.comm.operations import Op
from softnic.comm.progress import Progress
from softnic.comm.schedule import Receive, Schedule, Send

CHUNK_BYTES = 1 << 17
"""Combined at a time: small enough for the cache, a multiple of every element size and of wire.UNIT."""
SLOT_BYTES = 1 << 20
SLOTS = 4
"""Of registered scratch, a source: what NICs may fill ahead. They decode straight into a slot what does not cross its
end, so slots are longer than what is combined at a time."""
PARTS = 8
"""A registered block is combined, and passed on, in at least so many parts: the next rank need not wait long."""
LEAST_PART_BYTES = 1 << 15
MOST_PART_BYTES = 1 << 18


class Placed(Incoming):
    """A block that is received straight to its place, and passed on behind that."""

    __slots__ = ("follower",)

    def __init__(self, pad: int, result: Array) -> None:
        super().__init__(result.nbytes, pad, raw(result))
        self.follower: Outgoing | None = None

    def arrived(self, count: int) -> None:
        super().arrived(count)
        if self.follower is not None:
            whole = self.received >= self.size
            self.follower.ready = self.size if whole else self.received // wire.UNIT * wire.UNIT

    @property
    def step(self) -> int:
        return 0 if self.follower is None else part_of(self.size)


class Combined(Incoming):
    """A block that is combined with this rank's contribution as it comes in: result = received op contribution."""

    __slots__ = ("_combined", "_contribution", "_op", "_result", "_round", "_scratch", "follower")

    def __init__(
        self, pad: int, contribution: Array, result: Array, op: Op, rounding: Codec | None, scratch: Array
    ) -> None:
        super().__init__(result.nbytes, pad, raw(scratch))
        self.follower: Outgoing | None = None
        self._contribution = contribution
        self._result = result
        self._op = op
        self._round = rounding
        self._scratch = scratch.view(result.dtype)
        self._combined = 0

    def window(self) -> memoryview:
        assert self.place is not None
        return self.place[self.received - self._combined : min(CHUNK_BYTES, self.size - self._combined)]

    def arrived(self, count: int) -> None:
        super().arrived(count)
        end = min(self.received, self.size)
        if end > self._combined and (end == self.size or end - self._combined == CHUNK_BYTES):
            self._add(end)

    def _add(self, end: int) -> None:
        size = self._scratch.itemsize
        chunk = slice(self._combined // size, end // size)
        contribution, result = self._contribution[chunk], self._result[chunk]
        self._op.arrays(self._scratch[: result.size], contribution, out=result)
        if self._round is not None:
            self._round.roundtrip(result, out=result)
        self._combined = end
        if self.follower is not None:
            self.follower.ready = end


class Slots:
    """Registered scratch for what comes from one rank, in pieces of SLOT_BYTES. Ordinary one, if the system has no
    memory or descriptor for it: then what comes does so through the socket."""

    def __init__(self) -> None:
        try:
            scratch = memory.empty(SLOTS * SLOT_BYTES, np.uint8)
        except OSError:
            scratch = np.empty(SLOTS * SLOT_BYTES, np.uint8)
        self.free = deque(scratch[start : start + SLOT_BYTES] for start in range(0, scratch.nbytes, SLOT_BYTES))


class CombinedAhead(Combined):
    """A block that is combined as NICs bring it into slots, in order."""

    __slots__ = ("_ahead", "_part", "_slots")

    def __init__(
        self, pad: int, contribution: Array, result: Array, op: Op, rounding: Codec | None, slots: Slots
    ) -> None:
        super().__init__(pad, contribution, result, op, rounding, np.empty(0, np.uint8))
        self._part = part_of(self.size)
        self._slots = slots
        self._ahead: deque[tuple[Array, int, int]] = deque()
        """Slots that were asked for, each with the bytes of the block that it is for."""

    @property
    def step(self) -> int:
        return self._part

    def window_to_ask(self) -> memoryview:
        if not self._slots.free:
            return memoryview(b"")
        slot = self._slots.free.popleft()
        end = min(self.asked + SLOT_BYTES, self.size)
        self._ahead.append((slot, self.asked, end))
        return raw(slot[: end - self.asked])

    def arrived(self, count: int) -> None:
        Incoming.arrived(self, count)
        while self._ahead:
            slot, start, end = self._ahead[0]
            upto = min(self._combined + self._part, end)
            if self.received < upto:
                return
            self._scratch = slot[self._combined - start : upto - start].view(self._result.dtype)
            self._add(upto)
            if upto == end:
                self._ahead.popleft()
                self._slots.free.append(slot)


def part_of(size: int) -> int:
    """Bytes of a registered block that are combined or passed on at a time."""
    part = min(MOST_PART_BYTES, max(LEAST_PART_BYTES, size // PARTS))
    return part - part % LEAST_PART_BYTES


@dataclass(frozen=True)
class Work:
    """The arrays of a collective on this rank: by block, what it contributes and where the result goes.

    Both may be the same arrays. `rounding` says that the owner of a block keeps what its codec decodes.
    """

    contributions: Sequence[Array]
    results: Sequence[Array]
    op: Op | None = None
    codec: Codec | None = None
    rounding: bool = True


class Runner:
    """Makes schedules into calls, over the connections of a Progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._scratch: dict[int, Array] = {}
        """By source: CHUNK_BYTES that are combined next."""
        self._slots: dict[int, Slots] = {}
        """By source, where that is in registered mode."""

    def call(self, head: wire.Head, schedule: Schedule, work: Work) -> Call:
        """Queues what may be sent; what is received is up to the call."""
        incoming: list[tuple[Channel, Incoming]] = []
        outgoing: list[Outgoing] = []
        latest: dict[int, Placed | Combined] = {}
        """By block: the receive that the next send of it passes on."""
        last: dict[Channel, Outgoing] = {}
        """Only at the end of the call is memory waited for that was sent."""
        self._use_registered(schedule, work)
        for step in schedule:
            if not work.results[step.block].nbytes:
                continue
            channel = self._channel(step.peer, work)
            if isinstance(step, Send):
                source = latest.get(step.block)
                data = (work.contributions if source is None else work.results)[step.block]
                message = Outgoing(raw(data), self._pad(work, data), ready=source is None)
                message.tell = False
                if source is not None:
                    source.follower = message
                if work.codec is not None:
                    self._progress.use_codec(channel, str(work.codec))
                channel.send(message)
                outgoing.append(message)
                last[channel] = message if message.home is not None else last.get(channel, message)
            else:
                latest[step.block] = self._receive(step, work, channel)
                incoming.append((channel, latest[step.block]))
        for message in last.values():
            message.tell = True
        return Call(head, self._progress, incoming, outgoing)

    def _use_registered(self, schedule: Schedule, work: Work) -> None:
        """Before any message of a channel is made: what they are depends on its mode."""
        for step in schedule:
            used = (work.contributions, work.results) if isinstance(step, Send) else (work.results,)
            for arrays in used:
                self._progress.use_registered(self._channel(step.peer, work), raw(arrays[step.block]))

    def _channel(self, peer: int, work: Work) -> Channel:
        return self._progress.peers[peer].channel(work.codec is not None)

    def _pad(self, work: Work, data: Array) -> int:
        return wire.padding(data.nbytes) if work.codec is not None else 0

    def _receive(self, receive: Receive, work: Work, channel: Channel) -> Placed | Combined:
        result = work.results[receive.block]
        pad = self._pad(work, result)
        if not receive.combine:
            return Placed(pad, result)
        assert work.op is not None
        contribution = work.contributions[receive.block]
        rounding = work.codec if receive.last and work.rounding else None
        if channel.direct is not None:
            if receive.peer not in self._slots:
                self._slots[receive.peer] = Slots()
            return CombinedAhead(pad, contribution, result, work.op, rounding, self._slots[receive.peer])
        if receive.peer not in self._scratch:
            self._scratch[receive.peer] = np.empty(CHUNK_BYTES, np.uint8)
        return Combined(pad, contribution, result, work.op, rounding, self._scratch[receive.peer])
