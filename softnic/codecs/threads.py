"""How many threads large arrays are encoded, decoded, rounded and combined by: as many as the process may use cores.

Results are the same, to the bit, for any number. Starting a thread costs some ten microseconds, so none is started for
less than BYTES_A_THREAD of floats. `SOFTNIC_THREADS=n` in the environment allows so many instead, 1 none but the
caller's: for machines that have other work for their cores, and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from softnic._native import lib

VARIABLE = "SOFTNIC_THREADS"
BYTES_A_THREAD = 4 << 20
"""What one thread takes a third of a millisecond for, or more."""

_allowed: int | None = None
"""What was chosen; None: the cores."""


def threads() -> int:
    """The most that one call uses."""
    return min(int(lib.SN_MOST_THREADS), _allowed or len(os.sched_getaffinity(0)))


def threads_for(size_bytes: int) -> int:
    """The threads for an array of so many bytes."""
    worthwhile = size_bytes // BYTES_A_THREAD
    return min(worthwhile, threads()) if worthwhile > 1 else 1


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Allows calls so many threads meanwhile, in the whole process."""
    global _allowed
    before, _allowed = _allowed, number
    try:
        yield
    finally:
        _allowed = before


def select_from_environment() -> None:
    """Does as `SOFTNIC_THREADS` says, if it says anything. Raises ValueError naming it."""
    global _allowed
    text = os.environ.get(VARIABLE)
    if text:
        if not text.isascii() or not text.isdecimal() or int(text) == 0:
            raise ValueError(f"{VARIABLE}: {text!r} is no number of threads; 1 or more is expected")
        _allowed = int(text)
