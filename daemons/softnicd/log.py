"""Log handler for standard error that never blocks, even if nobody reads the pipe or the terminal is stopped.

A line that would block is dropped; the next line that is written gives the number of dropped lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select

_ATOMIC_BYTES = select.PIPE_BUF
"""Bytes that a writable file descriptor takes without blocking (pipe(7))."""


class NonBlockingStreamHandler(logging.Handler):
    """Writes to a file descriptor, standard error by default, without ever waiting for it."""

    def __init__(self, fd: int = 2) -> None:
        super().__init__()
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._dropped = 0
        """Lines since the last one that was written."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record) + "\n"
        if self._dropped:
            text = f"({self._dropped} lines of this log were dropped: writing them would have blocked)\n{text}"
        data = text.encode(errors="backslashreplace")
        written = 0
        with contextlib.suppress(OSError):  # a full disk, or the reader has gone
            while written < len(data) and self._poll.poll(0):
                written += os.write(self._fd, data[written : written + _ATOMIC_BYTES])
        self._dropped = self._dropped + 1 if not written else 0
