"""The steps of a schedule under way: one block that is sent, or one that is received.

Moves feed each other: what is received is sent on behind that, and combined behind what was combined before it, by
`ready`. Bytes go from TCP's received views through one numpy call a view to where they belong; what is sent is lent to
TCP where it lies. Memory is overwritten only where TCP does not need it any more: what was lent and is not
acknowledged yet is copied then, which is the rare case, because what takes its place contains what was sent of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from softnic.codecs import Codec
from softnic.collectives.arithmetic import Array, Combine, Finish
from softnic.packet.segment import Tag
from softnic.tcp.connection import Connection
from softnic.tcp.direct_placement import address_of, append
from softnic.tcp.send_buffer import CUT

if TYPE_CHECKING:
    from softnic.collectives.collective_op import Request
    from softnic.collectives.peer_queue import Lane

LEAST_PART = 32 << 10
"""Bytes of a block that are sent on at a time while the rest of it still comes: fewer are not worth a segment."""
ROUNDED_AHEAD = 1 << 20
"""Bytes that are rounded at a time."""
_ZEROS = memoryview(bytes(CUT))


class Block:
    """Where a block lies: bytes [start, start + size) of a request's memory."""

    __slots__ = ("pad", "size", "start")

    def __init__(self, start: int, size: int, tagged: bool) -> None:
        self.start = start
        self.size = size
        self.pad = -size % CUT if tagged else 0
        """Zeros behind it on the wire."""


class Outgoing:
    """A block on its way out, behind `source`, if it is not there yet."""

    __slots__ = ("_loaned_before", "block", "handed", "lent", "memory", "pad", "request", "source", "tag")

    def __init__(
        self, request: Request, block: Block, memory: memoryview, tag: Tag, source: Incoming | Rounded | None
    ) -> None:
        self.request = request
        self.block = block
        self.memory = memory
        self.tag = tag
        self.source = source
        self.handed = 0
        """Bytes that TCP has, one way or the other; they may still be lent."""
        self.lent = 0
        """Of them, from the front."""
        self.pad = block.pad
        """Zeros still to be sent."""
        self._loaned_before = 0

    def give(self, lane: Lane) -> bool:
        """Hands TCP what is ready. Returns whether that was all."""
        size = self.block.size
        while self.handed < size:
            ready = size
            if self.source is not None:
                self.source.prepare(self.handed, lane.connection)
                ready = self.source.ready
            count = ready - self.handed
            if (ready < size and count < LEAST_PART) or not self._hand_over(lane, count):
                return False
        if self.pad:
            self.pad -= lane.connection.send(_ZEROS[: self.pad])
        return not self.pad

    def _hand_over(self, lane: Lane, count: int) -> bool:
        """A loan of at most `count` bytes, or a copy. Returns whether any went."""
        if not self.handed:
            lane.connection.tag(self.tag)
            self._loaned_before = lane.loaned
        sent, lent = append(lane.connection, self.memory, self.block.start + self.handed, count)
        self.handed += sent
        if lent:
            lane.loaned += sent
            self.lent = self.handed
        return sent > 0

    def take_back(self, lane: Lane, end: int) -> None:
        """Sees to it that TCP does not need the first `end` bytes any more, all of which it has."""
        lane.take_back(self._loaned_before + min(end, self.lent))


class Rounded:
    """A block that this rank has from the start, and that becomes what the others will have of it as it is sent: not
    all at once, which would keep a NIC from everything else for long."""

    __slots__ = ("_codec", "_floats", "ready", "size")

    def __init__(self, codec: Codec, floats: Array) -> None:
        self._codec = codec
        self._floats = floats
        self.size = floats.nbytes
        self.ready = 0
        """Bytes from the front that are rounded."""

    def prepare(self, handed: int, connection: Connection) -> None:
        """Rounds on, if TCP has so many bytes already, and is not far from having sent what it has."""
        unsent = connection.snd.buffer.end - connection.snd.snd_nxt
        if handed == self.ready < self.size and unsent < ROUNDED_AHEAD:
            end = min(self.size, self.ready + ROUNDED_AHEAD)
            part = self._floats[self.ready // 4 : end // 4]
            self._codec.roundtrip(part, out=part)
            self.ready = end


class Incoming:
    """A block on its way in. `before` is what came for the same block earlier, and this has to stay behind;
    `readers` is what is sent of the memory that this overwrites, with their lanes."""

    __slots__ = ("before", "block", "memory", "pad", "readers", "ready", "received", "request")

    def __init__(
        self,
        request: Request,
        block: Block,
        memory: memoryview,
        before: Incoming | None,
        readers: list[tuple[Outgoing, Lane]],
    ) -> None:
        self.request = request
        self.block = block
        self.memory = memory
        self.before = before
        self.readers = readers
        self.received = 0
        self.ready = 0
        """Bytes from the front that hold what they are to hold after this step."""
        self.pad = block.pad
        """Padding still to come."""

    def room(self) -> int:
        """Up to where the block may be written now."""
        before = self.before
        end = self.block.size if before is None else before.ready
        for outgoing, _ in self.readers:
            end = min(end, outgoing.handed)
        return end

    def prepare(self, handed: int, connection: Connection) -> None:
        """What comes in gets ready by itself."""

    def free(self, end: int) -> None:
        """Sees to it that nobody needs what is in the first `end` bytes, which are within `room`."""
        for outgoing, lane in self.readers:
            outgoing.take_back(lane, end)
        if end == self.block.size:
            self.readers.clear()

    def take(self, connection: Connection) -> bool:
        """Takes what has come, as far as it can be used now. Returns whether that was all."""
        if self.received < self.block.size:
            self._take_bytes(connection)
            if self.received < self.block.size:
                return False
        if self.pad:
            count = min(self.pad, connection.rcv.unread)
            connection.consume(count)
            self.pad -= count
        return not self.pad

    def _take_bytes(self, connection: Connection) -> None:
        raise NotImplementedError

    def place(self, start: int, size: int) -> npt.NDArray[np.uint8] | None:
        """The memory for `size` bytes that are `start` bytes behind the next, if they are to be there as they come."""
        del start, size
        return None


class Placed(Incoming):
    """A block that takes its place as it comes, where the NIC has not put it there already."""

    __slots__ = ()

    def _take_bytes(self, connection: Connection) -> None:
        end = self.room()
        if end <= self.received:
            return
        received, first = connection.received, self.received
        self.free(min(end, first + connection.rcv.unread))
        base = address_of(self.memory) + self.block.start
        for view in received:
            some = min(len(view), end - self.received)
            if not some:
                break
            if address_of(view) != base + self.received:
                start = self.block.start + self.received
                self.memory[start : start + some] = view[:some]
            self.received += some
        connection.consume(self.received - first)
        whole = self.received == self.block.size
        self.ready = self.received if whole else self.received - self.received % CUT

    def place(self, start: int, size: int) -> npt.NDArray[np.uint8] | None:
        first = self.received + start
        if first + size > self.room():
            return None
        self.free(first + size)
        return np.frombuffer(self.memory, np.uint8, size, self.block.start + first)


class Combined(Incoming):
    """A block that is combined, element by element, with what the rank holds of it: `base`, at first its own
    contribution, then the result. `last` finishes it, and rounds it by the codec."""

    __slots__ = ("_base", "_combine", "_finish", "_result", "_round")

    def __init__(
        self,
        request: Request,
        block: Block,
        memory: memoryview,
        before: Incoming | None,
        readers: list[tuple[Outgoing, Lane]],
        arrays: tuple[Array, Array],
        combine: Combine,
    ) -> None:
        super().__init__(request, block, memory, before, readers)
        self._base, self._result = arrays
        self._combine = combine
        self._finish: Finish | None = None
        self._round: Codec | None = None

    def last(self, finish: Finish | None, rounding: Codec | None) -> None:
        """All contributions are in it then."""
        self._finish = finish
        self._round = rounding

    def _take_bytes(self, connection: Connection) -> None:
        end = self.room()
        item = self._result.itemsize
        end -= end % item
        received, rcv = connection.received, connection.rcv
        if end <= self.received or rcv.unread < item:
            return
        self.free(min(end, self.received + rcv.unread))
        while self.received < end and rcv.unread >= item:
            view = received[0]
            count = min(len(view), end - self.received)
            count -= count % item
            if not count:  # an element in two views, or more
                view, count = memoryview(_front(connection, item)), item
            self._add(view[:count])
            connection.consume(count)
        self._complete()

    def _add(self, data: memoryview) -> None:
        part = np.frombuffer(data, self._result.dtype)
        first = self.received // self._result.itemsize
        end = first + part.size
        self._combine(part, self._base[first:end], out=self._result[first:end])
        self.received += len(data)

    def _complete(self) -> None:
        """Does what is done to the result where all contributions are in it."""
        upto = self.received
        if upto < self.block.size:
            upto -= upto % CUT
        if upto > self.ready and (self._finish is not None or self._round is not None):
            item = self._result.itemsize
            part = self._result[self.ready // item : upto // item]
            if self._finish is not None:
                self._finish(part)
            if self._round is not None:
                self._round.roundtrip(part, out=part)
        self.ready = upto


def _front(connection: Connection, count: int) -> bytes:
    """The next bytes, which are there."""
    parts = bytearray()
    for view in connection.received:
        parts += view[: count - len(parts)]
        if len(parts) == count:
            break
    return bytes(parts)
