"""The answer to QueryCollectives: what a NIC's collectives wait for (softnic/ipc/collectives_info.py)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from softnic.collectives.progress import operations_of, paths_of
from softnic.ipc.collectives_info import (
    MAX_COMMUNICATORS,
    MAX_LINKS,
    CollectivesInfo,
    CommunicatorInfo,
    QueryCollectives,
    RankLinkInfo,
)
from softnicd.communicators import OffloadedCommunicator, OffloadedLane
from softnicd.config import Config
from softnicd.process_monitor import process_of
from softnicd.queues import Queues


class CollectivesReport:
    """Answers for a NIC."""

    def __init__(self, config: Config, queues: Queues) -> None:
        self._config = config
        self._queues = queues

    def answer(self, _request: QueryCollectives, _fd: int | None, _client: object) -> CollectivesInfo:
        """Return what is known now."""
        with self._queues.held():
            return self._info(time.monotonic())

    def _info(self, now: float) -> CollectivesInfo:
        links = [queue.link.emulated for queue in self._queues]
        emulation = self._config.emulation_spec
        return CollectivesInfo(
            now,
            self._config.label,
            self._config.ip,
            os.getpid(),
            time.process_time(),
            _waited_s(),
            None if emulation is None else emulation.rate_bps,
            sum(link.queued_bytes for link in links if link is not None),
            self._communicators(now),
            [failure for queue in self._queues for failure in queue.streams.offloaded.failures(now)],
        )

    def _communicators(self, now: float) -> list[CommunicatorInfo]:
        of_queues = [queue.streams.offloaded for queue in self._queues]
        joined: list[OffloadedCommunicator | OffloadedLane] = []
        for offloaded in of_queues:
            joined += [*offloaded.communicators, *offloaded.lanes]
        busy_first = sorted(joined, key=lambda each: not each.is_busy)
        left, found = MAX_LINKS, []
        for communicator in busy_first[:MAX_COMMUNICATORS]:
            links = _chosen(communicator.links(now), left)
            left -= len(links)
            found.append(_communicator(communicator, links, now))
        return found


def _communicator(
    communicator: OffloadedCommunicator | OffloadedLane, links: list[RankLinkInfo], now: float
) -> CommunicatorInfo:
    engine = communicator.engine
    pid = communicator.streams[0].pid if communicator.streams else 0
    process = process_of(pid)
    return CommunicatorInfo(
        engine.rank,
        engine.size,
        pid,
        process.state,
        process.cpu_s,
        engine.posted,
        now - communicator.posted_at,
        operations_of(engine, communicator.times, now),
        links,
        communicator.lane,
        paths_of(engine),
    )


def _chosen(links: list[RankLinkInfo], most: int) -> list[RankLinkInfo]:
    """Return at most so many links: those that something waits for first, and no unused ones."""
    used = [each for each in links if each.bytes_sent or each.bytes_received or each.expected or each.sending]
    return sorted(used, key=lambda each: not (each.expected or each.receiving or each.unacknowledged))[: max(0, most)]


def _waited_s() -> float:
    """Return for how long this thread has waited for a CPU (proc(5), schedstat); 0 where that is not known."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
