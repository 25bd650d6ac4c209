"""The NIC of applications: queues of streams that applications open at the control socket.

queue.py has what moves their data; here is what all of them have in common.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import select
import sys
from collections import Counter
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter

from msgspec import to_builtins

from softnic.ipc.collectives_info import QueryCollectives
from softnic.ipc.control import NicInfo, StreamInfo
from softnic.ipc.snapshot import CollectiveTotals, QueueTotals, StreamTotals
from softnicd.collectives_report import CollectivesReport
from softnicd.config import Config
from softnicd.handlers import ControlHandlers
from softnicd.link_setup import drain, nic_info, random_source
from softnicd.pump import Pump
from softnicd.queue import NicQueue, Shared
from softnicd.queues import Queues
from softnicd.regions import Regions
from softnicd.selector import Selector
from softnicd.snapshots import collective_totals, connection_totals
from softnicd.stream_handlers import StreamHandlers
from softnicd.watchdog import Watchdog

SWITCH_S = 0.0005
"""With several queues: how long a thread waits for another one that holds Python's lock, where it is 5 ms else."""


class Daemon(Pump):
    """A running NIC that serves applications, on `loop` from the start until `close`.

    Raises OSError if the wire or the control socket cannot be opened.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, selector: Selector) -> None:
        super().__init__(config, selector)
        # Numbers start anywhere, so that those of an earlier NIC name nothing here.
        first_stream, first_region = (random.SystemRandom().getrandbits(48) for _ in range(2))
        self.regions = Regions(first_region)
        numbers = itertools.count(first_stream + 1)
        count = len(self._links)
        shared = Shared(config, count, self._nic_options, self.regions, self.event_log, numbers, self.now)
        self.queues = Queues([self._queue(number, shared) for number in range(count)])
        self.first = self.queues.first
        handlers = StreamHandlers(self.queues, self.regions, lambda client: self.server.pid_of(client))
        report = CollectivesReport(config, self.queues)
        own = {**self.memberships.by_request, QueryCollectives: report.answer}
        by_request = {**handlers.by_request, **self.keys.by_request, **own}
        answers = ControlHandlers(self, by_request, identity_of=self.queues.identity)
        self._serve(answers, self._disconnected, loop)
        self._watchdog = Watchdog(self, config.peer_timeout_s, loop)
        for queue in self.queues:
            queue.turn.serve(queue.streams, self.event_log, partial(self._watchdog.check_own_stall, queue))
        selector.turn_in_c = self.first.turn
        if config.peers:
            self.first.host.begin(self.now())
        if len(self.queues) > 1:
            sys.setswitchinterval(SWITCH_S)
        self.queues.start()
        self.wake()

    def _queue(self, number: int, shared: Shared) -> NicQueue:
        epoll = select.epoll() if number else self._selector.epoll
        rng = random_source(self.config.seed, number) if number else self._random
        return NicQueue(number, shared, self._links[number], epoll, rng)

    # What the control plane asks for

    def _disconnected(self, client: object) -> None:
        self.regions.leave(client)
        self.memberships.leave(client)

    def _end_connections(self, queue: int, ip: int, text: str) -> None:
        self.queues[queue].host.end_connections(ip, text, self.now())
        self.wake()

    def _held(self, queue: int) -> AbstractContextManager[None]:
        return self.queues[queue].held()

    def info(self, unacknowledged: int) -> NicInfo:
        nic = self.first.node.nic
        return nic_info(self.config, nic, self._wire, unacknowledged, self.metrics_address, len(self.queues))

    def totals(self) -> tuple[StreamTotals, int]:
        with self.queues.held():
            connections = [each for queue in self.queues for each in queue.host.tcp.connections]
            return connection_totals(connections, len(self.first.streams.table.listeners))

    def collective_totals(self) -> CollectiveTotals:
        with self.queues.held():
            return collective_totals([queue.streams.offloaded for queue in self.queues], self.now())

    def queue_totals(self) -> list[QueueTotals]:
        found = []
        for queue in self.queues:
            with queue.held():
                found.append(queue.totals())
        return found

    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for queue in self.queues:
            with queue.held():
                total.update(queue.counters())
        return {**total, **super().counters(), **to_builtins(self.regions.counters)}

    def stream_infos(self, after: int, limit: int) -> list[StreamInfo]:
        found: list[StreamInfo] = []
        for queue in self.queues:
            with queue.held():
                found += queue.streams.table.page(after, limit, self.now())
        return sorted(found, key=attrgetter("stream"))[:limit]

    def catch_up(self) -> None:
        """Processes what applications did before a request: the port of a socket that was just closed is free."""
        self.first.catch_up()
        self.wake()

    def has_gone_on(self) -> bool:
        return self.queues.have_gone_on()

    # Turns

    def _move(self, events: list[tuple[int, int]], now: float) -> float | None:
        del now
        self.first.take(events)
        return None  # the turn itself knows when it goes on

    def _stop(self, now: float) -> None:
        """Resets all connections."""
        self._watchdog.close()
        self.queues.stop()
        for queue in self.queues:
            queue.end(now)
        for queue in self.queues:
            drain(queue.node.link)
        self.queues.close()
