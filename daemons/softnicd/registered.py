"""A stream in registered mode: its descriptor carries records (softnic/ipc/records.py) instead of bytes.

What is sent from a region is lent to TCP, which cuts frames straight out of it; what is too ragged for that (a tagged
range may only be cut every 64 bytes) is copied. What is received is copied into its region, if the NIC has not decoded
it to there already. The rest is a matter of order: what is asked for is done in the order of the stream.
"""

from __future__ import annotations

import dataclasses
import itertools
import socket
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from softnic import codecs
from softnic.ipc.records import (
    BYTES,
    FLAG_TELL,
    MAX_PAD,
    MAX_RECEIVES,
    PLACED,
    RECEIVE,
    RECORD,
    SEND,
    SENT,
    TAG,
    TAG_RECORD,
)
from softnic.tcp.direct_placement import PlacementCursor, address_of, append
from softnicd.regions import Regions

if TYPE_CHECKING:
    from softnicd.streams import Stream

READ_BYTES = 256 << 10
RECALL_BYTES = 1 << 20
"""If no more than this is lent and the program waits for it, it is copied."""
_PIECES = 64
_AT_ONCE = socket.MSG_DONTWAIT
_ZEROS = memoryview(bytes(MAX_PAD))
_KINDS = frozenset({SEND, BYTES, RECEIVE, TAG})
BLOCKED = -1
"""What `pull` returns when TCP takes no more."""


class RecordError(ValueError):
    """A program broke a rule of softnic/ipc/records.py; the text says which."""


class _Sending:
    """A SEND whose bytes are not all with TCP yet: what cannot be lent waits for space in the send buffer."""

    __slots__ = ("left", "memory", "offset")

    def __init__(self, memory: memoryview, offset: int, left: int) -> None:
        self.memory = memory
        self.offset = offset
        self.left = left


class _Receive:
    """A RECEIVE; no memory: as BYTES."""

    __slots__ = ("left", "memory", "offset", "pad", "step", "untold")

    def __init__(self, memory: memoryview | None, offset: int, left: int, pad: int, step: int) -> None:
        self.memory = memory
        self.offset = offset
        self.left = left
        self.pad = pad
        self.step = step
        self.untold = 0


class _Debt:
    """Bytes that the program has handed over and wants back: copied already, or lent."""

    __slots__ = ("loan", "size", "tell")

    def __init__(self, size: int, loan: bool) -> None:
        self.size = size
        self.loan = loan
        self.tell = False


class Records:
    """The records of a connected stream, from its byte `begins` on."""

    def __init__(self, stream: Stream, regions: Regions, begins: int) -> None:
        assert stream.connection is not None
        self.begins = begins
        self._stream = stream
        self._socket = stream.socket
        self._connection = stream.connection
        self._regions = regions
        self._buffer = memoryview(bytearray(RECORD.size))
        self._have = 0
        self._sending: _Sending | None = None
        self._bytes = 0
        """Left of a BYTES record."""
        self._pad = 0
        """Zeros to be sent when these are through."""
        self._receives: deque[_Receive] = deque()
        self._claims = PlacementCursor(stream.connection)
        self._debts: deque[_Debt] = deque()
        self._settled = 0
        """Of `lent.completed_bytes`: what has been taken off the debts."""
        self._returned = 0
        """Bytes that the program may have back and has not been told of."""
        self._tell = False
        self._out: deque[memoryview | bytes] = deque()
        """On the way to the program."""

    @property
    def lending(self) -> bool:
        return bool(self._debts)

    # -- from the program --------------------------------------------------------------------------------------------

    def pull(self) -> int:
        """Takes what the program wrote, up to some bytes of the stream. Returns their number, 0 at the end, BLOCKED if
        TCP is full.

        Raises BlockingIOError and OSError as the descriptor does, and RecordError.
        """
        while self._send_on():
            if self._bytes:
                space = self._connection.write_space()
                if not space:
                    return BLOCKED
                count = self._socket.recv_into(space, min(len(space), self._bytes, READ_BYTES), _AT_ONCE)
                self._connection.wrote(count)
                self._bytes -= count
                return count
            count = self._socket.recv_into(self._buffer[self._have :], 0, _AT_ONCE)
            if not count:
                return 0
            self._have += count
            if self._have == RECORD.size:
                self._have = 0
                self._take()
        return BLOCKED

    def _take(self) -> None:
        """One record."""
        kind, flags, pad, step, region, offset, size = RECORD.unpack(self._buffer)
        if kind not in _KINDS:
            raise RecordError(f"a record of kind {kind}, which programs do not send")
        if kind == TAG:
            self._tag(TAG_RECORD.unpack(self._buffer))
            return
        if pad > MAX_PAD:
            raise RecordError(f"a record with {pad} bytes of padding, which is at most {MAX_PAD}")
        if kind == BYTES:
            self._bytes, self._pad = size, pad
            return
        memory = self._part(region, offset, size) if kind == SEND or region else None
        if kind == RECEIVE:
            if len(self._receives) >= MAX_RECEIVES:
                raise RecordError(f"more than {MAX_RECEIVES} receives at a time")
            self._receives.append(_Receive(memory, offset, size, pad, step or size))
            return
        assert memory is not None
        self._sending, self._pad = _Sending(memory, offset, size), pad
        self._debts.append(_Debt(0, False))
        self._debts[-1].tell = bool(flags & FLAG_TELL)

    def _part(self, number: int, offset: int, size: int) -> memoryview:
        memory = self._regions.get(number)
        if memory is None:
            raise RecordError(f"the NIC has no region {number}")
        if offset + size > len(memory):
            raise RecordError(f"bytes {offset} to {offset + size} of a region that has {len(memory)}")
        return memory

    def _tag(self, record: tuple[int, int, int, int, bytes]) -> None:
        try:
            text = record[4].rstrip(b"\0").decode("ascii")
            codec = str(codecs.get(text)) if text else ""
        except ValueError as error:
            raise RecordError(str(error)) from None
        if record[2] > 0xFF:
            raise RecordError(f"{record[2]} is no type of service")
        self._stream.settings = dataclasses.replace(self._stream.settings, tos=record[2], codec=codec)
        self._connection.tag(self._stream.settings.tag)

    def _send_on(self) -> bool:
        """Hands TCP what was asked to be sent. Returns whether all of it is there."""
        sending = self._sending
        while sending is not None and sending.left:
            if not self._hand_over(sending):
                return False
        self._sending = None
        if not self._bytes and self._pad:
            self._pad -= self._connection.send(_ZEROS[: self._pad])
        return self._bytes > 0 or not self._pad

    def _hand_over(self, sending: _Sending) -> bool:
        """One part of a SEND: a loan, or a copy. Returns whether any went."""
        count, loan = append(self._connection, sending.memory, sending.offset, sending.left)
        sending.offset += count
        sending.left -= count
        self._owe(count, loan=loan)
        return count > 0

    def _owe(self, count: int, *, loan: bool) -> None:
        """Notes what is lent or copied, before the debt that says whether to tell."""
        last = self._debts[-1]
        if last.size and last.loan != loan:
            self._debts.append(_Debt(count, loan))
            self._debts[-1].tell, last.tell = last.tell, False
        else:
            last.size += count
            last.loan = loan

    # -- to the program ----------------------------------------------------------------------------------------------

    def push(self) -> None:
        """Moves what has arrived to where it belongs, and tells the program. Raises OSError as the descriptor does."""
        self._settle()
        while self._out or self._next():
            sent = self._socket.sendmsg(list(itertools.islice(self._out, _PIECES)), (), _AT_ONCE)
            while sent:
                first = memoryview(self._out[0])
                if len(first) > sent:
                    self._out[0] = first[sent:]
                    break
                sent -= len(first)
                self._out.popleft()

    def _settle(self) -> None:
        """Finds out which memory is the program's again."""
        if not self._debts:
            return
        lent = self._connection.snd.buffer.zerocopy
        if lent.outstanding and lent.outstanding <= RECALL_BYTES and self._debts[-1].tell and not self._sending:
            lent.copy_out()
        back = lent.completed_bytes - self._settled
        while self._debts:
            debt = self._debts[0]
            if debt.loan:
                count = min(back, debt.size)
                back -= count
                self._settled += count
            else:
                count = debt.size
            debt.size -= count
            self._returned += count
            if debt.size or (self._sending is not None and debt is self._debts[-1]):
                break
            self._tell |= debt.tell
            self._debts.popleft()

    def _next(self) -> bool:
        """Puts what the program is to have next into `_out`. Returns False if there is nothing."""
        if self._tell:
            self._out.append(RECORD.pack(SENT, 0, 0, 0, 0, 0, self._returned))
            self._tell, self._returned = False, 0
        forwarding = False
        while self._receives and not forwarding:
            first = self._receives[0]
            if first.left and self._connection.received:
                if first.memory is None:
                    self._forward(first)
                    forwarding = True
                else:
                    self._place(first.memory, first)
            if first.left or not self._skip(first):
                break
            self._receives.popleft()
        return bool(self._out)

    def _skip(self, receive: _Receive) -> bool:
        """Throws padding away. Returns whether all of it is."""
        count = min(receive.pad, self._connection.rcv.unread)
        if count:
            self._connection.consume(count)
            receive.pad -= count
        return not receive.pad

    def _forward(self, receive: _Receive) -> None:
        """The next bytes, as they are, through the descriptor."""
        views: list[memoryview] = []
        room = min(receive.left, READ_BYTES)
        for view in itertools.islice(self._connection.received, _PIECES):
            views.append(view[:room])
            room -= len(views[-1])
            if not room:
                break
        count = sum(map(len, views))
        self._out.append(RECORD.pack(BYTES, 0, 0, 0, 0, 0, count))
        self._out.extend(views)
        self._connection.consume(count)
        receive.left -= count

    def claim(self, sequence: int, size: int) -> npt.NDArray[np.uint8] | None:
        """The place of bytes that are about to be decoded (`softnic.nic.nic.Place`), if it was asked for."""
        start = self._claims.offset(sequence, size) if self._receives else None
        if start is None:
            return None
        for receive in self._receives:
            if start < receive.left:
                break
            start -= receive.left + receive.pad
        else:
            return None
        memory, first = receive.memory, receive.offset + start
        if memory is None or start < 0 or start + size > self._contiguous(receive):
            return None
        return np.frombuffer(memory, np.uint8, size, first)

    def _contiguous(self, receive: _Receive) -> int:
        """Bytes that follow one another in one region, from the first one that this receive lacks."""
        size, found = 0, False
        for other in self._receives:
            found = found or other is receive
            if found:
                if other.memory is not receive.memory or other.offset != receive.offset + size:
                    break
                size += other.left
                if other.pad:
                    break
        return size

    def _place(self, memory: memoryview, receive: _Receive) -> None:
        """The next bytes, to their region, unless they were decoded to there."""
        base = address_of(memory)
        count = 0
        for view in self._connection.received:
            some = min(len(view), receive.left)
            if address_of(view) != base + receive.offset:
                memory[receive.offset : receive.offset + some] = view[:some]
            receive.offset += some
            receive.left -= some
            count += some
            if not receive.left:
                break
        self._connection.consume(count)
        receive.untold += count
        if not receive.left or receive.untold >= receive.step:
            self._out.append(RECORD.pack(PLACED, 0, 0, 0, 0, 0, receive.untold))
            receive.untold = 0

    def withdraw(self) -> bool:
        """The program wants its memory back. Returns whether the connection cannot go on without it."""
        self._receives.clear()
        return bool(self._debts) or self._stream.unread() > 0
