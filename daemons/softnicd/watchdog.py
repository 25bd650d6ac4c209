"""What a NIC looks after twice a second, beside moving bytes: whether its programs stand still, or it did itself."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
from typing import TYPE_CHECKING

from softnicd.process_monitor import INTERVAL_S, ProcessMonitor

if TYPE_CHECKING:
    from softnicd.pump import Daemon
    from softnicd.streams import Stream

MANY_PIECES = 10_000
"""That connections have dropped since the C library last gave memory back."""
STOOD_S = 2.0
"""If a NIC has stood still for so long, its peers may have given it up."""


class Watch:
    """Of a daemon, from now on until `close`."""

    def __init__(self, daemon: Daemon, loop: asyncio.AbstractEventLoop) -> None:
        self._daemon = daemon
        self._loop = loop
        peer_timeout_s = daemon.config.peer_timeout_s
        self._programs = None if peer_timeout_s is None else ProcessMonitor(peer_timeout_s)
        self._lost: set[int] = set()
        """ProcessMonitor, each told of once."""
        self._pruned = 0
        """Of `out_of_order_pruned`: what has gone back to the system."""
        self._looked = daemon.now()
        self._timer = loop.call_later(INTERVAL_S, self._look)

    def own_stop(self) -> None:
        """Notices that this NIC itself has stood still: stopped, or without a processor."""
        now = self._daemon.now()
        if (stood_s := now - self._looked - INTERVAL_S) > STOOD_S:
            self._daemon.groups.stood_still(stood_s, now)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self.own_stop()
        daemon = self._daemon
        self._looked = daemon.now()
        self._timer = self._loop.call_later(INTERVAL_S, self._look)
        daemon.event_log.flush_topics()
        self._return_memory()
        try:
            if self._programs is not None:
                self._look_at_programs(self._programs)
        except Exception:
            daemon.event_log.internal_error("internal error in the process monitor")

    def _return_memory(self) -> None:
        """Many small pieces of memory that are dropped at once stay with the C library; this gives them back."""
        pruned = self._daemon.host.counters.out_of_order_pruned
        if pruned - self._pruned >= MANY_PIECES:
            self._pruned = pruned
            with contextlib.suppress(OSError, AttributeError):  # another C library
                ctypes.CDLL(None).malloc_trim(0)

    def _look_at_programs(self, programs: ProcessMonitor) -> None:
        daemon, now = self._daemon, self._daemon.now()
        lost = programs.poll((stream.program for stream in daemon.table.streams.values()), now)
        self._lost &= {pid for pid, _ in lost}
        for pid, stood_s in lost:
            streams = [stream for stream in daemon.table.streams.values() if stream.program == pid]
            ended = sum(self._end(stream, stood_s, now) for stream in streams)
            if pid not in self._lost:
                self._lost.add(pid)
                daemon.event_log.counters.applications_lost += 1
                text = f"process {pid} has been stopped for {stood_s:.1f} s: {ended} connections ended"
                daemon.event_log.record_limited("processes stopped", text)
        if lost:
            daemon.wake()

    def _end(self, stream: Stream, stood_s: float, now: float) -> int:
        """Ends what others may wait for. Returns how many connections that were."""
        why = f"this program was stopped for {stood_s:.1f} s, so its NIC ended the connection"
        if stream.listener is not None:  # it stays: the program may go on
            waiting = 0
            while (connection := stream.listener.accept()) is not None:
                connection.abort(now)
                waiting += 1
            return waiting
        if stream.connection is None:
            return 0
        if stream.group is not None:
            self._daemon.groups.lose(stream.group, stood_s, now)
        else:
            self._daemon.refuse(stream, why, now, errno.ECONNABORTED)
        return 1
