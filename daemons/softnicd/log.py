"""The NIC's log on standard error, which is somebody else's: a pipe that nobody reads, a terminal that is stopped.

A line that would have to wait is dropped, and the next one that is written says how many were. Nothing waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select

_AT_ONCE = select.PIPE_BUF
"""Bytes that a descriptor takes at least if it is writable at all (pipe(7))."""


class StandardError(logging.Handler):
    """Writes to a descriptor, standard error unless told, without ever waiting for it."""

    def __init__(self, descriptor: int = 2) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._dropped = 0
        """Lines since the last one that was written."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record) + "\n"
        if self._dropped:
            text = f"({self._dropped} lines of this log could not be written: nobody read them)\n{text}"
        data = text.encode(errors="backslashreplace")
        written = 0
        with contextlib.suppress(OSError):  # a full disk, a reader that has gone
            while written < len(data) and self._poll.poll(0):
                written += os.write(self._descriptor, data[written : written + _AT_ONCE])
        self._dropped = self._dropped + 1 if not written else 0
