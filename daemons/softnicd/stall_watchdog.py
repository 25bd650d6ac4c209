"""Stall watchdog: a process that ends a stopped or hung NIC (native/watchdog/watchdog.h).

The NIC increments a heartbeat in memory that both share from its event loop. It replaces a watchdog process that has
ended or was stopped itself; if the replacement ends at once, the next one is started after a growing delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
from collections.abc import Callable

from softnic._native import ffi, lib

HEARTBEAT_S: float = lib.SN_WATCHDOG_HEARTBEAT_MS / 1000
MARGIN_S = 0.5
"""A NIC is ended this long before a bound expires, so that its applications are notified in time."""
MAX_RESTART_DELAY_S = 60.0


class StallWatchdog:
    """The watchdog of this process.

    `stopped_s` bounds the time that this process may be stopped, `hung_s` the time without a heartbeat; None: no bound.
    """

    def __init__(self, name: str, stopped_s: float | None, hung_s: float | None) -> None:
        self._bounds = ffi.new("sn_watchdog_bounds *", [_ms(stopped_s), _ms(hung_s)])
        self._messages = (
            f"softnicd {name}: it was stopped, and its applications waited for it: it ends now\n".encode(),
            f"softnicd {name}: its event loop, or a queue, has hung for {hung_s or 0:g} s: it ends now\n".encode(),
        )
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._heartbeat = ffi.from_buffer("uint64_t *", self._memory)
        self._pid = 0
        """Of the watchdog process; 0: none runs."""
        self._restart_at = 0.0
        self._restart_delay_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the process. The bound on hangs applies from the first heartbeat (`run_on`)."""
        if self._bounds.stopped_ms or self._bounds.silent_ms:
            self._pid = max(0, lib.sn_stall_watchdog(self._heartbeat, self._bounds, *self._messages))

    def run_on(
        self, loop: asyncio.AbstractEventLoop, record: Callable[[str], None], goes_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Sends heartbeats from this loop, while `goes_on` returns that all else does, and restarts the process when it
        ends. `record` takes lines for the log."""
        if goes_on():
            self._heartbeat[0] += 1
        if self._bounds.stopped_ms or self._bounds.silent_ms:
            self._supervise(loop.time(), record)
        self._timer = loop.call_later(HEARTBEAT_S, self.run_on, loop, record, goes_on)

    def stop_heartbeat(self) -> None:
        """Sends the last heartbeat: the loop is about to end."""
        self._heartbeat[0] += 1
        if self._timer is not None:
            self._timer.cancel()

    def _supervise(self, now: float, record: Callable[[str], None]) -> None:
        if self._pid and _has_ended(self._pid):
            self._pid = 0
            self._restart_at = now + self._restart_delay_s
            self._restart_delay_s = min(MAX_RESTART_DELAY_S, max(HEARTBEAT_S, 2 * self._restart_delay_s))
        if self._pid:
            if now >= self._restart_at + MAX_RESTART_DELAY_S:
                self._restart_delay_s = 0.0
        elif now >= self._restart_at:
            self._restart_at = now
            self.start()
            outcome = "another was started" if self._pid else "none can be started"
            record(f"the NIC's stall watchdog had ended: {outcome}")


def _ms(bound_s: float | None) -> int:
    return 0 if bound_s is None else max(1, round((bound_s - MARGIN_S) * 1000))


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; reaps it. A stopped child is killed, and has ended at the next call."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return True
    if found and os.WIFSTOPPED(status):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return False
    return bool(found)
