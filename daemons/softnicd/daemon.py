"""The NIC of applications: a node whose streams applications open at the control socket.

Its turns are in turn.py; stream_pump.py serves what they leave of applications' streams.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from msgspec import to_builtins

from softnic.ipc.collectives_info import QueryCollectives
from softnic.ipc.control import NicInfo, StreamInfo
from softnic.ipc.snapshot import CollectiveTotals, StreamTotals
from softnic.nic.node import Node
from softnic.tcp.config import TcpConfig
from softnic.tcp.host import Host
from softnicd.collectives_report import CollectivesReport
from softnicd.config import Config
from softnicd.handlers import ControlHandlers
from softnicd.link_setup import drain, nic_info
from softnicd.pump import Pump
from softnicd.regions import Regions
from softnicd.selector import Selector
from softnicd.snapshots import collective_totals, connection_totals
from softnicd.stream_handlers import StreamHandlers
from softnicd.stream_pump import StreamPump
from softnicd.turn import NicTurn
from softnicd.watchdog import Watchdog


class Daemon(Pump):
    """A running NIC that serves applications, on `loop` from the start until `close`.

    Raises OSError if the wire or the control socket cannot be opened.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, selector: Selector) -> None:
        super().__init__(config, selector)
        self.node = Node(
            config.address,
            self._link,
            rng=self._random,
            name=config.label,
            capture=self.capture,
            config=TcpConfig(congestion=config.congestion, peer_timeout_s=config.peer_timeout_s),
            make_turn=partial(
                NicTurn, wire=self._wire, emulated=self._emulated, epoll=selector.fileno(), poll_s=config.poll_s
            ),
            **self._nic_options(),
        )
        # Numbers start anywhere, so that those of an earlier NIC name nothing here.
        first_stream, first_region = (random.SystemRandom().getrandbits(48) for _ in range(2))
        self.regions = Regions(first_region)
        self.streams = StreamPump(self.node, selector.epoll, self.regions, self.event_log, self.now, first_stream)
        self.offloaded = self.streams.offloaded
        assert isinstance(self.node.turn, NicTurn)
        self.turn_in_c = self.node.turn
        handlers = StreamHandlers(self.streams, self.regions, lambda client: self.server.pid_of(client))
        report = CollectivesReport(config, self.offloaded, self._emulated)
        by_request = {**handlers.by_request, QueryCollectives: report.answer}
        answers = ControlHandlers(self, by_request, identity_of=self.streams.table.identity)
        self._serve(answers, self.regions.leave, loop)
        self._watchdog = Watchdog(self, config.peer_timeout_s, loop)
        self.turn_in_c.serve(self.streams, self.event_log, self._watchdog.check_own_stall)
        selector.turn_in_c = self.turn_in_c
        if config.peers:
            self.host.begin(self.now())
        self.wake()

    @property
    def host(self) -> Host:
        return self.node.host

    def info(self, unacknowledged: int) -> NicInfo:
        return nic_info(self.config, self.node.nic, self._wire, unacknowledged, self.metrics_address)

    def totals(self) -> tuple[StreamTotals, int]:
        return connection_totals(self.host.tcp.connections, len(self.streams.table.by_listener))

    def collective_totals(self) -> CollectiveTotals:
        return collective_totals(self.offloaded, self.now())

    def counters(self) -> dict[str, int]:
        self.turn_in_c.count()
        own = (self.regions.counters, self.offloaded.counters)
        return {**self.node.counters(), **super().counters(), **to_builtins(own[0]), **to_builtins(own[1])}

    def stream_infos(self, after: int, limit: int) -> list[StreamInfo]:
        return self.streams.table.page(after, limit, self.now())

    def catch_up(self) -> None:
        """Processes what applications did before a request: the port of a socket that was just closed is free."""
        now = self.now()
        self._on_events(self._selector.epoll.poll(0))
        self.streams.pull(now)
        self.streams.deliver(now)
        self.wake()

    def _move(self, events: list[tuple[int, int]], now: float) -> float | None:
        self._on_events(events)
        self.turn_in_c.step(now)
        return None  # the turn itself knows when it goes on

    def _on_events(self, events: list[tuple[int, int]]) -> None:
        """Dispatches epoll's events; those of asyncio's own file descriptors are ignored."""
        by_fd = self.streams.table.by_fd
        for fd, mask in events:
            stream = by_fd.get(fd)
            if stream is not None:
                self.streams.on_event(stream, mask)
            elif fd == self._wire_fd:
                self.turn_in_c.c.wire_readable = True
            else:
                self.offloaded.handle(fd, mask)

    def _stop(self, now: float) -> None:
        """Resets all connections."""
        self._watchdog.close()
        self.offloaded.stop(now)
        self.node.send(now)
        self.streams.abort_all(now)
        self.node.advance(now)
        self.streams.drop_all(now)
        drain(self.node.link)
