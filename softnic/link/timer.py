"""A timer as a descriptor, precise to microseconds: epoll's own timeouts are whole milliseconds."""

from __future__ import annotations

import contextlib
import math
import os

from softnic._native import lib


class Timer:
    """Becomes readable at a time of `time.monotonic`. Linux only: raises OSError (ENOSYS) elsewhere."""

    def __init__(self) -> None:
        self._fd = _checked(lib.sn_timer_create())
        self._at: float | None = None

    def fileno(self) -> int:
        return self._fd

    def set(self, at_s: float | None) -> None:
        """Arms it for that time, at once if it is over; None disarms it. Cheap if that changes nothing."""
        if at_s == self._at:
            return
        _checked(lib.sn_timer_set(self._fd, 0 if at_s is None else max(1, math.ceil(at_s * 1e9))))
        self._at = at_s

    def acknowledge(self) -> None:
        """Takes the readiness away. To be called when the descriptor was readable."""
        self._at = None
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
