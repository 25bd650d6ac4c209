"""What `softnic stat`, `softnic top` and the metrics show of a NIC beside counters and streams."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from softnic.ipc.snapshot import CollectiveTotals, PeerTotals, ProcessInfo, StreamTotals
from softnic.packet import ipv4
from softnic.tcp.connection import Connection
from softnic.tcp.state import State
from softnic.tcp.totals import FlowTotals, totals_of
from softnicd.collectives import OffloadedCollectives


class ProcessStatistics:
    """The NIC's own process, which started when this was made, at `now` on the clock of `info`."""

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._started = time.time()

    def info(self, now: float) -> ProcessInfo:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        return ProcessInfo(self._started, now - self._started_at, cpu, _resident_bytes() or used.ru_maxrss << 10)


def _resident_bytes() -> int:
    """Memory of this process (proc(5)); 0 if no file descriptor is free to read it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def connection_totals(connections: Sequence[Connection], listeners: int) -> tuple[StreamTotals, int]:
    """The sums over all connections, and how many of them have unacknowledged bytes or a FIN that was sent first."""
    states = Counter(connection.state for connection in connections)
    named = {state.value: count for state, count in states.items()}
    totals = totals_of(connections)
    unacknowledged = totals.unacknowledged
    if states[State.FIN_WAIT_1]:
        closing = [each for each in connections if each.state is State.FIN_WAIT_1]
        unacknowledged += len(closing) - totals_of(closing).unacknowledged
    return StreamTotals({**named, **({"LISTEN": listeners} if listeners else {})}, _peers(totals)), unacknowledged


def _peers(totals: FlowTotals) -> list[PeerTotals]:
    return [
        PeerTotals(
            "" if each.peer is None else ipv4.text(each.peer),
            each.flows,
            each.send_queue,
            each.receive_queue,
            each.retransmits,
            each.srtt,
            each.srtt_max,
        )
        for each in totals.peers
    ]


def collective_totals(of_queues: Sequence[OffloadedCollectives], now: float) -> CollectiveTotals:
    """The sums over the collectives of all communicators."""
    communicators = [communicator for each in of_queues for communicator in each.communicators]
    began = [posted.time for communicator in communicators for posted in communicator.in_progress.values()]
    return CollectiveTotals(len(began), now - min(began) if began else 0.0)
