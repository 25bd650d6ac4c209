"""The NIC of applications: a node whose streams applications open at the control socket.

On the way of the data: a turn (`Daemon._move`) has stream_pump.py pull, the node receive, stream_pump.py deliver, and
the node send (softnic/nic/node.py).
"""

from __future__ import annotations

import asyncio
import random

from msgspec import to_builtins

from softnic.ipc.collectives_info import QueryCollectives
from softnic.ipc.control import NicInfo, StreamInfo
from softnic.ipc.snapshot import CollectiveTotals, StreamTotals
from softnic.link.udp import VxlanLink
from softnic.nic.node import Node
from softnic.tcp.config import TcpConfig
from softnic.tcp.host import Host
from softnicd.collectives_report import CollectivesReport
from softnicd.config import Config
from softnicd.fast_turn import FastTurn
from softnicd.handlers import ControlHandlers
from softnicd.link_setup import drain, nic_info
from softnicd.pump import Pump
from softnicd.regions import Regions
from softnicd.selector import AT_ONCE, Selector
from softnicd.snapshots import collective_totals, connection_totals
from softnicd.stream_handlers import StreamHandlers
from softnicd.stream_pump import StreamPump
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
            config=TcpConfig(
                congestion=config.congestion, peer_timeout_s=config.peer_timeout_s, fast_path=config.fast_path
            ),
            **self._nic_options(),
        )
        # Numbers start anywhere, so that those of an earlier NIC name nothing here.
        first_stream, first_region = (random.SystemRandom().getrandbits(48) for _ in range(2))
        self.regions = Regions(first_region)
        self.streams = StreamPump(self.node, selector.epoll, self.regions, self.event_log, self.now, first_stream)
        self.offloaded = self.streams.offloaded
        self.fast_turn: FastTurn | None = None
        if isinstance(self._wire, VxlanLink) and self.host.tcp.config.fast_path:
            link = (self._wire, self._emulated)
            self.fast_turn = FastTurn(
                self.node, *link, self.streams, self.event_log, epoll=selector.fileno(), poll_s=config.poll_s
            )
            selector.fast_turn = self.fast_turn
        handlers = StreamHandlers(self.streams, self.regions, lambda client: self.server.pid_of(client))
        report = CollectivesReport(config, self.offloaded, self._emulated)
        self._serve(
            ControlHandlers(self, {**handlers.by_request, QueryCollectives: report.answer}), self.regions.leave, loop
        )
        self._watchdog = Watchdog(self, config.peer_timeout_s, loop)
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
        if self.fast_turn is not None:
            self.fast_turn.count()
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
        streams, offloaded, node = self.streams, self.offloaded, self.node
        fast = self.fast_turn
        if fast is not None:
            fast.give_back()
        self._on_events(events)
        if streams.has_input:
            streams.pull(now)
        node.receive(now)
        if streams.has_output:
            streams.deliver(now)
        if offloaded:
            self._watchdog.check_own_stall()
            offloaded.advance(now)
        if fast is not None:
            fast.output(now)
        node.send(now)
        if offloaded:
            offloaded.report(now)
        if fast is not None:
            fast.take_over()
        if streams.has_work or offloaded.has_work or (fast is not None and fast.has_work):
            return AT_ONCE
        timers = None if fast is None else fast.next_timer()
        times = (node.next_time(), streams.retry_at, offloaded.next_time() if offloaded else None, timers)
        return min((time for time in times if time is not None), default=None)

    def _on_events(self, events: list[tuple[int, int]]) -> None:
        """Dispatches epoll's events; those of asyncio's own file descriptors are ignored."""
        by_fd = self.streams.table.by_fd
        for fd, mask in events:
            stream = by_fd.get(fd)
            if stream is not None:
                self.streams.on_event(stream, mask)
            elif fd == self._wire_fd:
                self._wire.readable = True
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
