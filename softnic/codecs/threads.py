"""The number of threads for large arrays: by default this process's share of the cores that it may use.

Results are identical for any number. Starting a thread costs about ten microseconds, so none is started for less than
BYTES_A_THREAD of floats. `SOFTNIC_THREADS=n` in the environment sets a limit; 1 means the caller's only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from softnic._native import ffi, lib

VARIABLE = "SOFTNIC_THREADS"
BYTES_A_THREAD = 4 << 20
"""Floats that take a thread a third of a millisecond or more."""

_allowed: int | None = None
"""The configured limit; None: the share of the cores."""
_processes = 1
"""That share the cores."""


def threads() -> int:
    """Return the maximum number of threads of one call."""
    return min(int(lib.SN_MOST_THREADS), _allowed or max(1, len(os.sched_getaffinity(0)) // _processes))


def share_cores(processes: int) -> None:
    """Have this process use its share of the cores, which as many processes have between them."""
    global _processes
    _processes = processes


def threads_for(size_bytes: int) -> int:
    """Return the number of threads for an array of this size."""
    worthwhile = size_bytes // BYTES_A_THREAD
    return min(worthwhile, threads()) if worthwhile > 1 else 1


def copy(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    """Copy an array to another one of its size, which it does not overlap."""
    number = threads_for(target.nbytes)
    if number == 1 or source.dtype != target.dtype or not (source.flags.c_contiguous and target.flags.c_contiguous):
        target[:] = source
        return
    out = ffi.from_buffer("uint8_t[]", target.reshape(-1).view(np.uint8), require_writable=True)
    lib.sn_parallel_copy(number, ffi.from_buffer("uint8_t[]", source.reshape(-1).view(np.uint8)), target.nbytes, out)


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
