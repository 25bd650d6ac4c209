"""Blocks of a collective on their way in: put into place, or combined with what this rank holds, and passed on.

A block is passed on while it still comes in; what has to be combined first, a part at a time: receiving, adding and
sending of successive steps overlap. Nothing is copied but from socket to scratch (what is to be combined) or to its
place; and not even that where the arrays are registered memory, which NICs read and write themselves. There, several
parts of scratch are filled ahead of what is combined.

Where several ranks' parts of a block are combined here, each is so behind the one before it in the schedule, part by
part, whichever comes first: the order of additions, and so the bits, are the same in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from softnic.collectives.operations import Op
from softnic.comm import messages
from softnic.comm.buffers import Array, raw
from softnic.comm.channel import Incoming, Outgoing
from softnic.ipc import regions

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

Finish = Callable[[Array], None]
"""What is done to a part of a block, in place, once all ranks' contributions are in it."""


class Block(Incoming):
    """A block that comes in. Of its bytes, `done` are what the schedule wants of them."""

    __slots__ = ("done", "followers", "next")

    def __init__(self, size: int, pad: int, place: memoryview) -> None:
        super().__init__(size, pad, place)
        self.done = 0
        self.followers: list[Outgoing] = []
        """Messages that pass it on."""
        self.next: Combined | None = None
        """What is combined with it."""

    @property
    def complete(self) -> bool:
        return self.received == self.size + self.pad and self.done == self.size

    def _advance(self, done: int) -> None:
        self.done = done
        for follower in self.followers:
            follower.ready = done
        if self.next is not None:
            self.next.combine()


class Placed(Block):
    """A block that is received straight to its place."""

    __slots__ = ()

    def __init__(self, pad: int, result: Array) -> None:
        super().__init__(result.nbytes, pad, raw(result))

    def arrived(self, count: int) -> None:
        super().arrived(count)
        self._advance(self.size if self.received >= self.size else self.received // messages.UNIT * messages.UNIT)

    @property
    def step(self) -> int:
        return part_of(self.size) if self.followers else 0


class Combined(Block):
    """A block that is combined as it comes in: result = received op held. `behind`: the one that makes what is held."""

    __slots__ = ("_behind", "_finish", "_held", "_op", "_result", "_scratch")

    def __init__(
        self,
        pad: int,
        held: Array,
        result: Array,
        op: Op,
        scratch: Array,
        finish: Finish | None = None,
        behind: Block | None = None,
    ) -> None:
        super().__init__(result.nbytes, pad, raw(scratch))
        self._held = held
        self._result = result
        self._op = op
        self._finish = finish
        self._scratch = scratch.view(result.dtype)
        self._behind = behind
        if behind is not None:
            behind.next = self

    @property
    def open(self) -> bool:
        """Not while scratch is full of what has to wait."""
        if self.received < self.size:
            return self.received - self.done < min(CHUNK_BYTES, self.size - self.done)
        return self.received < self.size + self.pad

    def window(self) -> memoryview:
        assert self.place is not None
        return self.place[self.received - self.done : min(CHUNK_BYTES, self.size - self.done)]

    def arrived(self, count: int) -> None:
        super().arrived(count)
        self.combine()

    def combine(self) -> None:
        """As much as is there, here and in those behind."""
        end = min(self.done + CHUNK_BYTES, self.size)
        if self.done < end <= min(self.received, self._limit):
            self._add(end)

    @property
    def _limit(self) -> int:
        """The bytes of what is held that may be combined with yet."""
        return self.size if self._behind is None else self._behind.done

    def _add(self, end: int) -> None:
        size = self._scratch.itemsize
        part = slice(self.done // size, end // size)
        held, result = self._held[part], self._result[part]
        self._op.combine(self._scratch[: result.size], held, result)
        if self._finish is not None:
            self._finish(result)
        self._advance(end)


class Slots:
    """Registered scratch for what comes from one rank, in pieces of SLOT_BYTES. Ordinary one, if the system has no
    memory or descriptor for it: then what comes does so through the socket."""

    def __init__(self) -> None:
        try:
            scratch = regions.empty(SLOTS * SLOT_BYTES, np.uint8)
        except OSError:
            scratch = np.empty(SLOTS * SLOT_BYTES, np.uint8)
        self.free = deque(scratch[start : start + SLOT_BYTES] for start in range(0, scratch.nbytes, SLOT_BYTES))


class CombinedAhead(Combined):
    """A block that is combined as NICs bring it into slots, in order."""

    __slots__ = ("_ahead", "_part", "_slots")

    def __init__(
        self,
        pad: int,
        held: Array,
        result: Array,
        op: Op,
        slots: Slots,
        finish: Finish | None = None,
        behind: Block | None = None,
    ) -> None:
        super().__init__(pad, held, result, op, np.empty(0, np.uint8), finish, behind)
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

    def combine(self) -> None:
        while self._ahead:
            slot, start, end = self._ahead[0]
            upto = min(self.done + self._part, end)
            if min(self.received, self._limit) < upto:
                return
            self._scratch = slot[self.done - start : upto - start].view(self._result.dtype)
            self._add(upto)
            if upto == end:
                self._ahead.popleft()
                self._slots.free.append(slot)


def part_of(size: int) -> int:
    """Bytes of a registered block that are combined or passed on at a time."""
    part = min(MOST_PART_BYTES, max(LEAST_PART_BYTES, size // PARTS))
    return part - part % LEAST_PART_BYTES
