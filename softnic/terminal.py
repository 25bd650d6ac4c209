"""What reaches the terminal: standard files that are open, and text of others without control characters."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def printable(text: str, keep: str = "") -> str:
    """Return a text that others chose with `?` for each character that a terminal would interpret.

    Parameters
    ----------
    text
        From a peer, a file, or another process: it may hold escape sequences.
    keep
        Characters to leave as they are, such as the newlines of a text of several lines.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else "?" for each in text)


def open_standard_files() -> None:
    """Open standard input, output and error where the process was started without them, as `>&-` does.

    Otherwise the next file or socket gets the number, and what is printed goes into it. Reading and writing them fails
    with EBADF, as before; lines for a standard error that nobody has are lost.
    """
    modes = ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))
    for number, mode in modes:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(opened := os.open(os.devnull, mode), number)
            if opened != number:
                os.close(opened)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def drop_unwritten(file: TextIO) -> None:
    """Drop what cannot be written to a standard file (full disk, reader gone), so that the exit code stays.

    Python flushes the file at exit, and exits with 120 if that fails.
    """
    try:
        file.flush()
    except OSError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, file.fileno())
        os.close(devnull)
