"""A data connection whose NIC reads and writes registered memory itself: records instead of bytes.

The same queues as ever (channel.py), but what moves between process and NIC says where the bytes of a message lie, or
are to go, and how far they are (softnic/ipc/records.py). Memory that is not registered goes through the same
connection as it is. So both may meet in one call, and the other rank need not know.

A message counts as sent when its memory is this rank's again: acknowledged by the other NIC, or copied by this one.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from softnic.comm.channel import BROKEN, READ_BYTES, Incoming, Outgoing
from softnic.ipc import regions
from softnic.ipc.records import BYTES, FLAG_TELL, PLACED, RECEIVE, RECORD, SEND, SENT, TAG, TAG_RECORD
from softnic.ipc.regions import Region

LEAST_BYTES = 16 << 10
"""A message shorter than this is not worth a record about it: its bytes go through the socket."""
_EMPTY = memoryview(b"")
_RECORDS_AT_ONCE = 64


def is_worth_it(data: memoryview) -> bool:
    """Whether a message is registered, and long enough to be sent or received as such."""
    return data.nbytes >= LEAST_BYTES and regions.find(data) is not None


class _Asked:
    """What the NIC was asked to receive: the rest of it, and the padding behind it."""

    __slots__ = ("incoming", "pad", "window")

    def __init__(self, incoming: Incoming, window: memoryview, pad: int) -> None:
        self.incoming = incoming
        self.window = window
        self.pad = pad


class Direct:
    """The registered mode of a channel. `number` says what the NIC calls a region, and raises OSError if it has none.

    `stash` is what came as bytes before.
    """

    def __init__(self, connection: socket.socket, number: Callable[[Region], int], stash: bytes) -> None:
        self._connection = connection
        self._number = number
        self._stash = memoryview(stash)
        self._asked: deque[_Asked] = deque()
        self._owed: deque[tuple[Outgoing, int]] = deque()
        """By message, what is lent to the NIC."""
        self._out = bytearray()
        """Records to be written, then the body of the last of them, which belongs to a message."""
        self._body = _EMPTY
        self._behind = bytearray()
        """Records that came up while a body was on its way: nothing may come between its bytes."""
        self._speaker: Outgoing | None = None
        self._header = memoryview(bytearray(RECORD.size))
        self._have = 0
        self._inline = 0
        """Left of a BYTES record that comes in."""

    @property
    def pending(self) -> bool:
        """The NIC has memory of this rank's in use, or is about to."""
        return bool(self._asked or self._owed or self._out or self._behind)

    def home(self, data: memoryview) -> tuple[int, int] | None:
        """The region and offset of bytes, if they are registered and the NIC takes them."""
        place = regions.find(data)
        if place is None:
            return None
        try:
            return self._number(place.region), place.offset
        except OSError:
            return None  # the socket will do, or has an error of its own

    def adopt(self, outgoing: Outgoing) -> None:
        """Finds out how a message is to go."""
        if outgoing.data.nbytes >= LEAST_BYTES:
            outgoing.home = self.home(outgoing.data)

    def tag(self, tos: int, codec: str) -> None:
        """For what is queued from now on, nothing else being queued."""
        self._out += TAG_RECORD.pack(TAG, 0, tos, 0, codec.encode())

    def wants(self, incoming: deque[Incoming], outgoing: deque[Outgoing]) -> int:
        """The events to poll for. Asks for what is at the head of `incoming`."""
        self._ask(incoming)
        mask = select.POLLIN if self._asked or self._owed else 0
        if self._out or self._body or self._speakable(outgoing):
            mask |= select.POLLOUT
        return mask

    def handle(self, events: int, outgoing: deque[Outgoing]) -> None:
        """Raises BlockingIOError and OSError as sockets do, also where the connection was closed."""
        if events & select.POLLOUT:
            with suppress(BlockingIOError):
                self._write(outgoing)
        if events & (select.POLLIN | BROKEN):
            self._read()

    # -- sending -----------------------------------------------------------------------------------------------------

    def _speakable(self, outgoing: deque[Outgoing]) -> bool:
        while outgoing and outgoing[0].posted:
            outgoing.popleft()
        return bool(outgoing) and outgoing[0].sendable and outgoing[0] is not self._speaker

    def _write(self, outgoing: deque[Outgoing]) -> None:
        while not self._body and self._speakable(outgoing):
            self._say(outgoing[0])
        self._write_records()
        while self._body:
            assert self._speaker is not None
            count = self._connection.send(self._body)
            self._body = self._body[count:]
            self._speaker.sent += count
        self._speaker = None
        self._out += self._behind
        self._behind.clear()
        self._write_records()

    def _write_records(self) -> None:
        while self._out:
            del self._out[: self._connection.send(self._out)]

    def _say(self, message: Outgoing) -> None:
        """Puts what is ready of a message into a record."""
        count = max(0, message.ready - message.sent)
        last = message.ready == message.data.nbytes
        pad = message.pad - max(0, message.sent - message.data.nbytes) if last else 0
        if message.home is None or not count:
            body = message.data[message.sent : message.sent + min(count, READ_BYTES)]
            if body.nbytes < count:
                pad = 0
            self._out += RECORD.pack(BYTES, 0, pad, 0, 0, 0, body.nbytes)
            self._body = body
            self._speaker = message if body else None
            message.sent += pad
            return
        flags = FLAG_TELL if last and message.tell else 0
        region, offset = message.home
        self._out += RECORD.pack(SEND, flags, pad, 0, region, offset + message.sent, count)
        self._owed.append((message, count))
        message.lent += count
        message.sent += count + pad

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _ask(self, incoming: deque[Incoming]) -> None:
        while incoming and incoming[0].place is not None:
            message = incoming[0]
            if message.asked < message.received:
                message.asked = min(message.received, message.size)  # it came before this mode began
            if message.asked == message.size:
                self._post(message, _EMPTY, message.size + message.pad - message.received)
            while message.asked < message.size:
                window = message.window_to_ask()
                if not window:
                    return
                message.asked += window.nbytes
                self._post(message, window, message.pad if message.asked == message.size else 0)
            incoming.popleft()

    def _post(self, message: Incoming, window: memoryview, pad: int) -> None:
        if self._stash and window:
            count = min(len(window), len(self._stash))
            window[:count] = self._stash[:count]
            window, self._stash = window[count:], self._stash[count:]
            message.arrived(count)
        if self._stash and pad:
            count = min(pad, len(self._stash))
            pad, self._stash = pad - count, self._stash[count:]
            message.arrived(count)
        if not window:
            message.arrived(pad)
        if not window and not pad:
            return
        home = self.home(window) if window.nbytes >= LEAST_BYTES else None
        region, offset = home or (0, 0)
        records = self._behind if self._body else self._out
        records += RECORD.pack(RECEIVE, 0, pad, message.step, region, offset, window.nbytes)
        if window:
            self._asked.append(_Asked(message, window, pad))

    def _read(self) -> None:
        for _ in range(_RECORDS_AT_ONCE):
            if not self._asked and not self._owed:
                return
            if self._inline:
                window = self._asked[0].window[: self._inline]
                count = self._connection.recv_into(window)
                self._inline -= count
                self._arrived(count)
            else:
                count = self._connection.recv_into(self._header[self._have :])
                self._have += count
                if self._have == RECORD.size:
                    self._have = 0
                    self._take()
            if not count:
                raise ConnectionResetError("it closed the connection")

    def _take(self) -> None:
        kind, _, _, _, _, _, size = RECORD.unpack(self._header)
        if kind == SENT:
            self._returned(size)
        elif kind == PLACED:
            self._arrived(size)
        else:
            self._inline = size

    def _returned(self, size: int) -> None:
        while size:
            message, count = self._owed.popleft()
            back = min(size, count)
            size -= back
            message.lent -= back
            if back < count:
                self._owed.appendleft((message, count - back))

    def _arrived(self, count: int) -> None:
        asked = self._asked[0]
        asked.window = asked.window[count:]
        if not asked.window:
            self._asked.popleft()
            count += asked.pad
        asked.incoming.arrived(count)
