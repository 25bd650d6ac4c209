"""The stall watchdog: a process that ends a stopped or hung NIC (native/stall_watchdog.h).

The NIC counts a heartbeat up from its event loop, in memory that both share, and replaces a guard that has ended or
was stopped itself. A guard that ends again at once is replaced after a longer and longer time.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
from collections.abc import Callable

from softnic._native import ffi, lib

BEAT_S: float = lib.SN_WATCHDOG_HEARTBEAT_MS / 1000
END_S = 0.5
"""The guard begins to end the NIC this long before a bound is over, so that its programs are notified in time."""
LONGEST_PAUSE_S = 60.0


class Guard:
    """Of this process. `stopped_s` and `hung_s` are the bounds in seconds; None: no bound. Starts with `start`."""

    def __init__(self, name: str, stopped_s: float | None, hung_s: float | None) -> None:
        self._bounds = ffi.new("sn_watchdog_bounds *", [_ms(stopped_s), _ms(hung_s)])
        self._words = (
            f"softnicd {name}: it was stopped, and its programs waited for it: it ends now\n".encode(),
            f"softnicd {name}: its event loop has hung for {hung_s or 0:g} s: it ends now\n".encode(),
        )
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._beat = ffi.from_buffer("uint64_t *", self._memory)
        self._process = 0
        """Process id; 0: no guard runs."""
        self._replace_at = 0.0
        self._pause_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the guard. The bound to hanging holds once the event loop runs (`attend`)."""
        if self._bounds.stopped_ms or self._bounds.silent_ms:
            self._process = max(0, lib.sn_stall_watchdog(self._beat, self._bounds, *self._words))

    def attend(self, loop: asyncio.AbstractEventLoop, note: Callable[[str], None]) -> None:
        """Beats from this loop from now on, and looks after the guard. `note` takes what is worth telling."""
        self._beat[0] += 1
        now = loop.time()
        if self._bounds.stopped_ms or self._bounds.silent_ms:
            self._look(now, note)
        self._timer = loop.call_later(BEAT_S, self.attend, loop, note)

    def leave(self) -> None:
        """The loop is about to end: one last beat."""
        self._beat[0] += 1
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, now: float, note: Callable[[str], None]) -> None:
        if self._process and _over(self._process):
            self._process = 0
            self._replace_at = now + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, max(BEAT_S, 2 * self._pause_s))
        if self._process:
            if now >= self._replace_at + LONGEST_PAUSE_S:
                self._pause_s = 0.0
        elif now >= self._replace_at:
            self._replace_at = now
            self.start()
            note("the NIC's guard had ended: " + ("another was started" if self._process else "none can be started"))


def _ms(bound_s: float | None) -> int:
    return 0 if bound_s is None else max(1, round((bound_s - END_S) * 1000))


def _over(process: int) -> bool:
    """Whether a child has ended; if it was stopped, it is ended, and found over the next time. It leaves no zombie."""
    try:
        found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return True
    if found and os.WIFSTOPPED(status):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return False
    return bool(found)
