"""Logging that never blocks: lines of text or JSON on standard error, or entries of systemd's journal.

A line that would block (nobody reads the pipe, the terminal is stopped, the journal's queue is full) is dropped; the
next line that is written gives the number of dropped lines. docs/monitoring.md lists the fields of JSON and journal.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import select
import socket
import struct
from pathlib import Path
from typing import Any

JOURNAL = Path("/run/systemd/journal/socket")
MAX_JOURNAL_BYTES = 32 << 10
"""Of the value of a field: an entry fits into a datagram."""
_ATOMIC_BYTES = select.PIPE_BUF
"""Bytes that a writable file descriptor takes without blocking (pipe(7))."""
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""syslog(3)'s."""


def log_fields(record: logging.LogRecord, nic: str) -> dict[str, Any]:
    """Return the fields of a log record, as lines of JSON have them."""
    time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    fields = {
        "time": time.isoformat(timespec="microseconds"),
        "level": record.levelname.lower(),
        "nic": nic,
        "pid": os.getpid(),
        "message": record.getMessage(),
        "source": f"{record.module}:{record.lineno}",
    }
    topic = getattr(record, "topic", "")
    trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
    return {**fields, **({"topic": topic} if topic else {}), **({"traceback": trace} if trace else {})}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, nic: str) -> None:
        super().__init__()
        self._nic = nic

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(log_fields(record, self._nic))


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
            text = self._about_dropped(record) + text
        data = text.encode(errors="backslashreplace")
        written = 0
        with contextlib.suppress(OSError):  # a full disk, or the reader has gone
            while written < len(data) and self._poll.poll(0):
                written += os.write(self._fd, data[written : written + _ATOMIC_BYTES])
        self._dropped = self._dropped + 1 if not written else 0

    def _about_dropped(self, record: logging.LogRecord) -> str:
        text = dropped_text(self._dropped)
        if not isinstance(self.formatter, JsonFormatter):
            return f"({text})\n"
        place = (record.name, logging.WARNING, record.pathname, record.lineno)
        return self.format(logging.LogRecord(*place, text, None, None)) + "\n"


def dropped_text(lines: int) -> str:
    """Return the line about lines that were dropped."""
    return f"{lines} lines of this log were dropped: writing them would have blocked"


class JournalHandler(logging.Handler):
    """Sends entries with fields to systemd's journal (systemd.io/JOURNAL_NATIVE_PROTOCOL).

    Raises OSError if there is no journal at `path`.
    """

    def __init__(self, nic: str, path: Path = JOURNAL) -> None:
        super().__init__()
        self._nic = nic
        self._dropped = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"no journal answers at {path}: {error.strerror}") from error

    def emit(self, record: logging.LogRecord) -> None:
        fields = log_fields(record, self._nic)
        message = fields["message"]
        if self._dropped:
            message = f"{message} ({dropped_text(self._dropped)})"
        entry = {
            "MESSAGE": message,
            "PRIORITY": str(_PRIORITIES.get(record.levelno, 6)),
            "SYSLOG_IDENTIFIER": "softnicd",
            "SOFTNIC_NIC": self._nic,
            "SOFTNIC_TOPIC": fields.get("topic", ""),
            "SOFTNIC_TRACEBACK": fields.get("traceback", ""),
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
        }
        try:
            self._socket.send(b"".join(_journal_field(name, value) for name, value in entry.items() if value))
            self._dropped = 0
        except OSError:
            self._dropped += 1

    def close(self) -> None:
        self._socket.close()
        super().close()


def _journal_field(name: str, value: str) -> bytes:
    data = value.encode(errors="backslashreplace")[:MAX_JOURNAL_BYTES]
    if b"\n" in data:
        return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name.encode() + b"=" + data + b"\n"


def log_handler(log_format: str, nic: str) -> logging.Handler:
    """Return the handler of `--log-format`. Raises OSError if there is no journal."""
    if log_format == "journald":
        return JournalHandler(nic)
    handler = NonBlockingStreamHandler()
    # A name may contain percent signs.
    text = logging.Formatter("softnicd {nic}: {message}", style="{", defaults={"nic": nic})
    handler.setFormatter(JsonFormatter(nic) if log_format == "json" else text)
    return handler
