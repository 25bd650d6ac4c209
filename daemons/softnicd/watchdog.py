"""Watchdog: detects stopped applications and stalls of the daemon itself, twice a second."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
from typing import Protocol

from softnic.tcp.listener import Listener
from softnicd.event_log import EventLog
from softnicd.process_monitor import INTERVAL_S, ProcessMonitor
from softnicd.queue import NicQueue
from softnicd.queues import Queues
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream

TRIM_SEGMENTS = 10_000
"""Out-of-order segments dropped by connections before the C library's free memory is trimmed."""
STALL_S = 2.0
"""After a stall of this length, peers may have given this NIC up."""


class WatchedNic(Protocol):
    """A NIC as the watchdog sees it."""

    queues: Queues
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

    def check_own_stall(self, queue: NicQueue) -> None:
        """Detects that this NIC itself was stopped or got no CPU time, in the thread of a queue."""
        now = self._nic.now()
        if self._has_stalled(now):
            queue.streams.offloaded.on_local_stall(now - self._checked - INTERVAL_S, now)

    def _has_stalled(self, now: float) -> bool:
        return now - self._checked - INTERVAL_S > STALL_S

    def _check(self) -> None:
        if self._has_stalled(self._nic.now()):
            for queue in self._nic.queues:
                with queue.held():
                    self.check_own_stall(queue)
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
        pruned = sum(queue.host.out_of_order_pruned for queue in self._nic.queues)
        if pruned - self._trimmed >= TRIM_SEGMENTS:
            self._trimmed = pruned
            with contextlib.suppress(OSError, AttributeError):  # not glibc
                ctypes.CDLL(None).malloc_trim(0)

    def _end_stopped(self, monitor: ProcessMonitor) -> None:
        """Ends the connections of applications that have been stopped for too long."""
        now, queues = self._nic.now(), self._nic.queues
        pids = [stream.pid for queue in queues for stream in list(queue.streams.table.streams.values())]
        lost = monitor.poll(pids, now)
        self._reported &= {pid for pid, _ in lost}
        for pid, stopped_s in lost:
            ended = sum(self._end_all(queue, pid, stopped_s, now) for queue in queues)
            if pid not in self._reported:
                self._reported.add(pid)
                self._nic.event_log.counters.applications_lost += 1
                text = f"process {pid} has been stopped for {stopped_s:.1f} s: {ended} connections ended"
                self._nic.event_log.record_limited("processes stopped", text)
        if lost:
            self._nic.wake()

    def _end_all(self, queue: NicQueue, pid: int, stopped_s: float, now: float) -> int:
        """Ends the connections of an application in a queue. Returns their number."""
        with queue.held():
            waiting = [listener for stream, listener in queue.streams.table.listeners.items() if stream.pid == pid]
            own = [each for each in queue.streams.table.streams.values() if each.pid == pid and not each.listens]
            return sum(_end_waiting(each, now) for each in waiting) + sum(
                _end(queue.streams, each, stopped_s, now) for each in own
            )


def _end_waiting(listener: Listener, now: float) -> int:
    """Ends the connections that wait to be accepted; the listener stays, since the application may continue. Returns
    their number."""
    waiting = 0
    while (connection := listener.accept()) is not None:
        connection.abort(now)
        waiting += 1
    return waiting


def _end(streams: StreamPump, stream: Stream, stopped_s: float, now: float) -> int:
    """Ends the connection of a stream. Returns whether there was one."""
    if stream.connection is None:
        return 0
    if stream.offloaded:
        streams.offloaded.fail_stopped(stream, stopped_s, now)
    else:
        why = f"this process was stopped for {stopped_s:.1f} s, so its NIC ended the connection"
        streams.abort(stream, errno.ECONNABORTED, why, now)
    return 1
