"""Watchdog: detects stopped applications and stalls of the daemon itself, twice a second."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
from typing import Protocol

from softnicd.collectives import OffloadedCollectives
from softnicd.event_log import EventLog
from softnicd.process_monitor import INTERVAL_S, ProcessMonitor
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream

TRIM_SEGMENTS = 10_000
"""Out-of-order segments dropped by connections before the C library's free memory is trimmed."""
STALL_S = 2.0
"""After a stall of this length, peers may have given this NIC up."""


class WatchedNic(Protocol):
    """A NIC as the watchdog sees it."""

    streams: StreamPump
    offloaded: OffloadedCollectives
    event_log: EventLog

    def now(self) -> float: ...

    def wake(self) -> None:
        """Requests a turn."""


class Watchdog:
    """Checks every INTERVAL_S until `close`. Without `peer_timeout_s` stopped applications are not looked for."""

    def __init__(self, nic: WatchedNic, peer_timeout_s: float | None, loop: asyncio.AbstractEventLoop) -> None:
        self._nic = nic
        self._loop = loop
        self._monitor = None if peer_timeout_s is None else ProcessMonitor(peer_timeout_s)
        self._reported: set[int] = set()
        """Lost applications that are in the event log."""
        self._trimmed = 0
        """The counter `out_of_order_pruned` when memory was last trimmed."""
        self._checked = nic.now()
        self._timer = loop.call_later(INTERVAL_S, self._check)

    def close(self) -> None:
        self._timer.cancel()

    def check_own_stall(self) -> None:
        """Detects that this NIC itself was stopped or got no CPU time."""
        now = self._nic.now()
        if (stalled_s := now - self._checked - INTERVAL_S) > STALL_S:
            self._nic.offloaded.on_local_stall(stalled_s, now)

    def _check(self) -> None:
        self.check_own_stall()
        self._checked = self._nic.now()
        self._timer = self._loop.call_later(INTERVAL_S, self._check)
        self._nic.event_log.flush_topics()
        self._trim_memory()
        try:
            if self._monitor is not None:
                self._end_stopped(self._monitor)
        except Exception:
            self._nic.event_log.internal_error("internal error in the process monitor")

    def _trim_memory(self) -> None:
        """Returns free memory to the system: the C library keeps many small blocks that are freed at once."""
        pruned = self._nic.streams.host.counters.out_of_order_pruned
        if pruned - self._trimmed >= TRIM_SEGMENTS:
            self._trimmed = pruned
            with contextlib.suppress(OSError, AttributeError):  # not glibc
                ctypes.CDLL(None).malloc_trim(0)

    def _end_stopped(self, monitor: ProcessMonitor) -> None:
        """Ends the connections of applications that have been stopped for too long."""
        now, streams = self._nic.now(), self._nic.streams.table.streams
        lost = monitor.poll((stream.pid for stream in streams.values()), now)
        self._reported &= {pid for pid, _ in lost}
        for pid, stopped_s in lost:
            own = [stream for stream in streams.values() if stream.pid == pid]
            ended = sum(self._end(stream, stopped_s, now) for stream in own)
            if pid not in self._reported:
                self._reported.add(pid)
                self._nic.event_log.counters.applications_lost += 1
                text = f"process {pid} has been stopped for {stopped_s:.1f} s: {ended} connections ended"
                self._nic.event_log.record_limited("processes stopped", text)
        if lost:
            self._nic.wake()

    def _end(self, stream: Stream, stopped_s: float, now: float) -> int:
        """Ends the connections of a stream; a listening one stays, since the application may continue. Returns their
        number."""
        if stream.listener is not None:
            waiting = 0
            while (connection := stream.listener.accept()) is not None:
                connection.abort(now)
                waiting += 1
            return waiting
        if stream.connection is None:
            return 0
        if stream.offloaded:
            self._nic.offloaded.fail_stopped(stream, stopped_s, now)
        else:
            why = f"this process was stopped for {stopped_s:.1f} s, so its NIC ended the connection"
            self._nic.streams.abort(stream, errno.ECONNABORTED, why, now)
        return 1
