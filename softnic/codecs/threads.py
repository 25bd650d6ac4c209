"""The number of threads for large arrays: by default the cores that the process may use.

Results are identical for any number. Starting a thread costs about ten microseconds, so none is started for less than
BYTES_A_THREAD of floats. `SOFTNIC_THREADS=n` in the environment sets a limit; 1 means the caller's only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from softnic._native import lib

VARIABLE = "SOFTNIC_THREADS"
BYTES_A_THREAD = 4 << 20
"""Floats that take a thread a third of a millisecond or more."""

_allowed: int | None = None
"""The configured limit; None: the number of cores."""


def threads() -> int:
    """Return the maximum number of threads of one call."""
    return min(int(lib.SN_MOST_THREADS), _allowed or len(os.sched_getaffinity(0)))


def threads_for(size_bytes: int) -> int:
    """Return the number of threads for an array of this size."""
    worthwhile = size_bytes // BYTES_A_THREAD
    return min(worthwhile, threads()) if worthwhile > 1 else 1


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Limit the threads of the whole process while the context is active."""
    global _allowed
    before, _allowed = _allowed, number
    try:
        yield
    finally:
        _allowed = before


def select_from_environment() -> None:
    """Set the limit of `SOFTNIC_THREADS`, if set. Raises ValueError naming the variable."""
    global _allowed
    text = os.environ.get(VARIABLE)
    if text:
        if not text.isascii() or not text.isdecimal() or int(text) == 0:
            raise ValueError(f"{VARIABLE}: {text!r} is no number of threads; 1 or more is expected")
        _allowed = int(text)
