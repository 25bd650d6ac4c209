"""What one rank has to write to another: frames, and inline messages out of the memory that programs send.

Everything leaves in order. Inline messages have credit: bytes that the receiver has not yet received. A message that
finds none when its turn comes is announced, and goes by the NIC's requests (zerocopy_channel.py) instead; as long as
the connection takes nothing, nothing is decided.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import islice

from softnic.comm import messages
from softnic.comm.zerocopy_channel import SendOp

CREDIT_BYTES = 4 << 20
"""Limit of inline messages that one rank has sent to another and that were not received."""
COPY_BYTES = 4 << 10
"""What is left of a message of up to this size is copied, and its memory may be used again."""
_MOST_PIECES = 64
"""Written at a time."""
SENT = SendOp(memoryview(b""))
"""A message that was written at once."""


class Outbox:
    """What has not been written to a connection.

    Parameters
    ----------
    fd
        Of the connection, which does not block; -1: there is none yet.
    request
        Has the NIC send a message that is announced.
    """

    __slots__ = ("_fd", "_pieces", "_request", "_undecided", "credit", "frames")

    def __init__(self, fd: int, request: Callable[[messages.Announce, SendOp], None]) -> None:
        self._fd = fd
        self._request = request
        self._pieces: deque[tuple[bytes | memoryview, SendOp | None]] = deque()
        """To be written, and the message whose memory is free then."""
        self._undecided: deque[tuple[messages.Announce, SendOp] | bytes] = deque()
        """Messages that found no credit, while `_pieces` were to be written; and all behind them."""
        self.credit = CREDIT_BYTES
        """Bytes of inline messages that may be sent."""
        self.frames = 0
        """Pieces that no request waits for."""

    def connect(self, fd: int) -> None:
        """Write to this connection from now on."""
        self._fd = fd
        self.flush()

    def __bool__(self) -> bool:
        """Whether something has not been written."""
        return bool(self._pieces)

    def post(self, frame: bytes) -> None:
        """Write a frame, now or when the connection takes it."""
        self.frames += 1
        if self._undecided:
            self._undecided.append(frame)
        elif self._pieces:
            self._pieces.append((frame, None))
        else:
            self._pieces.append((frame, None))
            self.flush()

    def post_first(self, frame: bytes) -> None:
        """Write a frame before all others, of which nothing was written yet."""
        self.frames += 1
        self._pieces.appendleft((frame, None))

    def send(self, announce: messages.Announce, data: memoryview, message: SendOp | None = None) -> SendOp:
        """Write a message that can be an inline one, and return it; it is complete when its memory is free."""
        if self._undecided or announce.size > self.credit:
            return self.request(announce, data, message, inline=True)
        self.credit -= announce.size
        header = messages.inline_header(announce)
        if not self._pieces:
            written = self._write([header, data] if announce.size else [header])
            if written == len(header) + announce.size:
                if message is not None:
                    message.posted = announce.size
                return message or SENT
            header, data = header[written:], data[max(0, written - len(header)) :]
        self._append(header, data, message := message or SendOp(data, size=announce.size))
        return message

    def request(
        self, announce: messages.Announce, data: memoryview, message: SendOp | None = None, *, inline: bool = False
    ) -> SendOp:
        """Announce a message, which the NIC sends, and return it. `inline`: it may still become an inline one."""
        message = message or SendOp(data, announce.codec if announce.compressed else "")
        if self._undecided or (inline and self._pieces):
            self._undecided.append((announce, message))
        else:
            self.post(messages.pack(announce))
            self._request(announce, message)
        return message

    def flush(self) -> None:
        """Write what the connection takes now. Errors are left to the reader of the connection."""
        while self._pieces:
            batch = [piece for piece, _ in islice(self._pieces, _MOST_PIECES)]
            written = self._write(batch)
            for piece in batch:
                if written < len(piece):
                    self._pieces[0] = (memoryview(piece)[written:], self._pieces[0][1])
                    return
                written -= len(piece)
                _, message = self._pieces.popleft()
                if message is None:
                    self.frames -= 1
                else:
                    message.posted = message.size
            if not self._pieces:
                self._decide()

    def clear(self) -> None:
        """Forget everything: the connection has ended."""
        self._pieces.clear()
        self._undecided.clear()
        self.frames = 0

    def _decide(self) -> None:
        """Choose the ways of messages, now that all before them is written."""
        while self._undecided and len(self._pieces) < _MOST_PIECES:
            first = self._undecided.popleft()
            if isinstance(first, bytes):
                self._pieces.append((first, None))
                continue
            announce, message = first
            assert message.data is not None
            if announce.size <= self.credit and messages.is_inline(announce):
                self.credit -= announce.size
                self._append(messages.inline_header(announce), message.data, message)
            else:
                self.frames += 1
                self._pieces.append((messages.pack(announce), None))
                self._request(announce, message)

    def _append(self, header: bytes, data: memoryview, message: SendOp) -> None:
        """Put an inline message behind the others."""
        if data.nbytes <= COPY_BYTES:
            self.frames += 1
            self._pieces.append((header + data, None))
            message.posted = message.size
            return
        if header:
            self.frames += 1
            self._pieces.append((header, None))
        self._pieces.append((data, message))

    def _write(self, pieces: list[bytes | memoryview]) -> int:
        """Return the bytes written; all, if the connection has ended."""
        if self._fd < 0:
            return 0
        try:
            return os.writev(self._fd, pieces)
        except BlockingIOError:
            return 0
        except OSError:
            return sum(len(piece) for piece in pieces)
