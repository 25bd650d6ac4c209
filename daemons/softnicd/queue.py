"""A queue of a NIC: its wire, its node, the streams that it serves, and the turns that move their data.

Queue 0 runs on asyncio's loop, whose selector takes its turns. Every other queue runs in a thread of its own, which
has Python's lock only while a turn asks for a decision. Queues share no state: a function that is to work on another
queue's is `post`ed to it, and asyncio's thread works on it while it is `held` between two turns.
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import to_builtins

from softnic import underlay
from softnic._native import lib
from softnic.ipc.snapshot import QueueTotals
from softnic.nic.nic import NicOptions
from softnic.nic.node import Node
from softnic.packet.ethernet import mac_of
from softnic.tcp.config import TcpConfig
from softnic.tcp.host import Host
from softnicd.config import Config
from softnicd.event_log import EventLog
from softnicd.link_setup import QueueLink
from softnicd.regions import Regions
from softnicd.selector import AT_ONCE, NEVER
from softnicd.stream_pump import StreamPump
from softnicd.turn import NicTurn
from softnicd.wire_turn import RETRY_S, Events

MAX_POSTED = 4096
"""Limit of the functions that wait for a queue; further ones that may be lost are dropped, and counted."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all queues of a NIC use. Everything in it may be called by any of their threads."""

    config: Config
    queues: int
    options: Callable[[], NicOptions]
    """Returns those of a queue's node."""
    regions: Regions
    event_log: EventLog
    numbers: Iterator[int]
    """Of streams."""
    now: Callable[[], float]


class NicQueue:
    """The queue with this number. `epoll` reports the events of its file descriptors; `link` is its wire side."""

    def __init__(self, number: int, shared: Shared, link: QueueLink, epoll: select.epoll, rng: random.Random) -> None:
        config = shared.config
        self.number = number
        self.link = link
        self.epoll = epoll
        self._event_log = shared.event_log
        self._now = shared.now
        memory = TcpConfig().buffer_memory // shared.queues
        self.node = Node(
            config.address,
            link.whole,
            rng=rng,
            name=config.label,
            capture=link.capture,
            config=TcpConfig(congestion=config.congestion, peer_timeout_s=config.peer_timeout_s, buffer_memory=memory),
            make_turn=partial(
                NicTurn, wire=link.wire, emulated=link.emulated, epoll=epoll.fileno(), poll_s=config.poll_s
            ),
            relay_of=self._relay_of,
            **shared.options(),
        )
        assert isinstance(self.node.turn, NicTurn)
        self.turn = self.node.turn
        self.streams = StreamPump(
            self.node, epoll, shared.regions, shared.event_log, shared.now, shared.numbers, self.post
        )
        self.streams.table.queue = number
        self._wire_fd = link.wire.fileno()
        link.wire.readable = False
        epoll.register(self._wire_fd, select.EPOLLIN)
        self._posted: deque[Callable[[], object]] = deque()
        self.posts_dropped = 0
        self._mail = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        epoll.register(self._mail, select.EPOLLIN)
        self._thread: threading.Thread | None = None
        self._gate, self._lock = threading.RLock(), threading.RLock()
        """Who has the lock takes turns, or works on the queue; who waits for it to be `held` has the gate."""
        self._turns = -1
        """That it had taken when `has_gone_on` was called."""
        self._ending = False
        self._retry_at = 0.0

    @property
    def host(self) -> Host:
        return self.node.host

    def steer(self, queues: int, inboxes: Any, event: int) -> None:
        """Take the flows of this queue of `queues`, as Turn.share."""
        self.turn.share(self.number, queues, inboxes, event)
        self.epoll.register(event, select.EPOLLIN)

    def share_sessions(self, queues: Sequence[NicQueue], inboxes: Any) -> None:
        """Where there is a key, use the sessions that the first queue agrees on. `inboxes` is an array with one for the
        sealed datagrams of each queue."""
        first, *others = queues
        if self is first:
            self.link.wire.lead([(queue.link.wire, queue.post) for queue in others], inboxes)
        else:
            self.link.wire.follow(first.link.wire, first.post, inboxes)

    def _relay_of(self, ip: int) -> str:
        """Return HOST:PORT of the relay by which a node is reached; empty: it is reached directly."""
        way = self.link.wire.reached.get(mac_of(ip))
        return "" if way is None or not way.relayed else underlay.text(way.address)

    def counters(self) -> dict[str, int]:
        """Return all counters of node, link and collectives, by name."""
        self.turn.count()
        own = {"queue_dropped_posts": self.posts_dropped}
        return {**self.node.counters(), **to_builtins(self.streams.offloaded.counters), **own}

    def totals(self) -> QueueTotals:
        """What it does, in sums."""
        counters = self.node.nic.counters
        ident = threading.main_thread().ident if self._thread is None else self._thread.ident
        cpu = 0.0 if ident is None else time.clock_gettime(time.pthread_getcpuclockid(ident))
        wire = counters.tx_wire_bytes, counters.rx_wire_bytes, counters.rx_steered_frames
        return QueueTotals(self.number, len(self.streams.table.streams), *wire, cpu)

    # Events

    def take(self, events: Events) -> None:
        """Take a turn, given epoll's events. Raises what a part of it raised."""
        self.on_events(events)
        self.turn.step(self._now())

    def on_events(self, events: Events) -> None:
        """Dispatch epoll's events; those of asyncio's own file descriptors are ignored."""
        by_fd = self.streams.table.by_fd
        for fd, mask in events:
            stream = by_fd.get(fd)
            if stream is not None:
                self.streams.on_event(stream, mask)
            elif fd == self._wire_fd:
                self.turn.c.wire_readable = True
            elif fd == self._mail:
                self._call_posted()
            else:
                self.streams.offloaded.handle(fd, mask)

    def catch_up(self) -> None:
        """Process what applications did until now: the port of a socket that was just closed is free."""
        now = self._now()
        self.on_events(self.epoll.poll(0))
        self.streams.pull(now)
        self.streams.deliver(now)

    # Work of others

    def post(self, call: Callable[[], object]) -> None:
        """Have this function called between two turns."""
        self._posted.append(call)
        self._interrupt()

    def post_if_space(self, call: Callable[[], object]) -> None:
        """Post a function that may be lost."""
        if len(self._posted) < MAX_POSTED:
            self.post(call)
        else:
            self.posts_dropped += 1

    def overhear(self, frame: bytes) -> None:
        """Note what a frame tells of peers and connections, which the first queue has received."""
        self.host.overhear(frame, self._now())

    def _interrupt(self) -> None:
        with suppress(BlockingIOError):  # it is due already
            os.eventfd_write(self._mail, 1)

    def _call_posted(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._mail)
        for _ in range(len(self._posted)):
            call = self._posted.popleft()
            try:
                call()
            except Exception:
                self._event_log.internal_error(f"internal error in what was posted to queue {self.number}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """The queue stands still between two turns, and has caught up, for asyncio's thread to work on it."""
        if self._thread is None:
            self.catch_up()
            yield
            return
        with self._gate:
            self._interrupt()
            with self._lock:
                self.catch_up()
                try:
                    yield
                finally:
                    self.turn.c.attention = True

    # The thread

    def start(self) -> None:
        """Take turns from now on, in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name=f"queue {self.number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no further turn."""
        if self._thread is not None:
            self._ending = True
            self._interrupt()
            self._thread.join()
            self._thread = None

    def has_gone_on(self) -> bool:
        """Whether the thread has taken a turn since the last call, or waits for events, or does not run."""
        before, self._turns = self._turns, int(self.turn.c.turns)
        return self._thread is None or self._turns != before or bool(self.turn.c.is_waiting)

    def _run(self) -> None:
        lib.sn_set_timer_slack()
        while not self._ending:
            with self._gate:
                pass  # who waits for this queue comes first
            with self._lock:
                try:
                    self._round()
                except MemoryError:
                    self._fail("out of memory: the turn is retried")
                except Exception:
                    self._fail("")

    def _round(self) -> None:
        """Wait and take turns in C, until there is something to do here."""
        if not self.turn.can_run or self._retry_at:
            events = self.epoll.poll(RETRY_S)
            self._retry_at = 0.0
            self.take(events)
            return
        events, due = self.turn.wait(NEVER)
        if events or due == AT_ONCE:
            self.take(events)

    def _fail(self, exhausted: str) -> None:
        if exhausted:
            self._event_log.exhausted(exhausted)
        else:
            self._event_log.internal_error(f"internal error in a turn of queue {self.number}")
        self._retry_at = self._now() + RETRY_S

    # The end

    def end(self, now: float) -> None:
        """Reset all connections."""
        self.streams.offloaded.stop(now)
        self.node.send(now)
        self.streams.abort_all(now)
        self.node.advance(now)
        self.streams.drop_all(now)

    def close(self) -> None:
        os.close(self._mail)
        if self.number:
            self.epoll.close()
