"""A node whose NIC has several queues, as a daemon's (daemons/softnicd/queue.py): a `Node` a queue, on one link.

All of them run in one thread. What the threads of a daemon do side by side, they do one after the other, in an order
that a seeded coin decides. The coin also decides at which queue a batch arrives, as if the kernel had joined its frames
with those of other flows: steering in C (native/nic/steering.h) then brings each frame to its queue.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

from softnic._native import lib
from softnic.link.base import Link
from softnic.nic.counters import NicCounters
from softnic.nic.nic import Nic
from softnic.nic.node import Node
from softnic.nic.observer import NodeObserver
from softnic.nic.turn import Turn
from softnic.tcp.connection import Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.events import Event
from softnic.tcp.host import Host
from softnic.tcp.listener import Listener
from softnic.tcp.stack import Key
from softnicd.queue import NicQueue
from softnicd.queues import Queues
from tests.simulation.invariants import Violation
from tests.simulation.links import QueueLink

ROUND_BYTES: int = lib.SN_INBOX_BYTES // 2
"""Limit of what arrives before the queues take turns, but for one batch: no inbox runs over."""

MakeTurn = Callable[[Nic, Host, Link, NodeObserver | None], Turn]
Counters = TypeVar("Counters", NicCounters, StackCounters)


class MakeNode(Protocol):
    """Makes the node of one of `queues` queues, on its side of the link."""

    def __call__(self, link: Link, make_turn: MakeTurn, queues: int) -> Node: ...


class QueueTurn(Turn):
    """The turn of a queue, which passes on what is not TCP's to `others`, as a daemon's (softnicd/turn.py)."""

    def __init__(self, nic: Nic, host: Host, link: Link, capture: NodeObserver | None) -> None:
        self.others: Sequence[SimQueue] = ()
        super().__init__(nic, host, link, capture)

    def _pass_on(self, frame: bytes) -> None:
        for queue in self.others:
            queue.overheard.append(frame)


class SimQueue:
    """A queue, with what `Queues` uses of a daemon's."""

    def __init__(self, number: int, node: Node, link: QueueLink) -> None:
        self.number = number
        self.node = node
        self.link = link
        self.turn = node.turn
        self.streams = SimpleNamespace()
        """`Queues` sets `candidates`: the local ports that a connection may have in this queue."""
        self.overheard: deque[bytes] = deque()
        """Frames that the first queue has received, and passed on."""
        self._event = -1

    @property
    def host(self) -> Host:
        return self.node.host

    def steer(self, queues: int, inboxes: Any, event: int) -> None:
        """Take the flows of this queue of `queues`, as Turn.share."""
        self._event = event
        self.turn.share(self.number, queues, inboxes, event)

    def share_sessions(self, queues: object, inboxes: object) -> None:
        """Do nothing: there is no key."""

    @property
    def has_arrivals(self) -> bool:
        """Whether there is anything to receive, from the link or from other queues."""
        turn = self.turn.c
        if not turn.has_inbox and self._event >= 0:
            with suppress(BlockingIOError):
                turn.has_inbox = os.eventfd_read(self._event) > 0
        return bool(self.link.arrived or self.overheard or turn.has_inbox)

    def receive(self, now: float) -> None:
        """Receive, and run timers."""
        while self.overheard:
            self.host.overhear(self.overheard.popleft(), now)
        self.node.receive(now)

    def close(self) -> None:
        """Do nothing: it has no file descriptors."""


class QueuedListener:
    """A listener in every queue, which accepts from any of them."""

    def __init__(self, queues: Sequence[SimQueue], ip: int, port: int, backlog: int, now: float, coin: Random) -> None:
        self._coin = coin
        self._all: list[Listener] = []
        for index, queue in enumerate(queues):
            unaccepted = partial(self._unaccepted_beside, index)
            self._all.append(queue.host.listen(ip, port, backlog, now, unaccepted))

    def _unaccepted_beside(self, index: int) -> int:
        return sum(len(each.queue) for each in self._all[:index] + self._all[index + 1 :])

    @property
    def queue(self) -> list[Connection]:
        """Connections to be accepted."""
        return [connection for each in self._all for connection in each.queue]

    def accept(self) -> Connection | None:
        ready = [each for each in self._all if each.queue]
        return self._coin.choice(ready).accept() if ready else None

    def close(self, now: float) -> None:
        for each in self._all:
            each.close(now)


class QueuedEvents:
    """The events of all queues."""

    def __init__(self, queues: Sequence[SimQueue]) -> None:
        self._all = [queue.host.events for queue in queues]

    def __bool__(self) -> bool:
        return any(self._all)

    def popleft(self) -> Event:
        return next(filter(None, self._all)).popleft()


class QueuedStack:
    """The connections of all queues."""

    def __init__(self, queues: Sequence[SimQueue]) -> None:
        self._stacks = [queue.host.tcp for queue in queues]

    @property
    def keys(self) -> list[Key]:
        return [key for stack in self._stacks for key in stack.keys]

    @property
    def connections(self) -> list[Connection]:
        return [connection for stack in self._stacks for connection in stack.connections]


class QueuedHost:
    """The hosts of all queues."""

    def __init__(self, queues: Sequence[SimQueue], coin: Random) -> None:
        self._queues = queues
        self._coin = coin
        self.events = QueuedEvents(queues)
        self.tcp = QueuedStack(queues)

    @property
    def counters(self) -> StackCounters:
        return _sum(StackCounters(), [queue.host.counters for queue in self._queues])

    def listen(self, ip: int, port: int, backlog: int, now: float) -> QueuedListener:
        """Listen in all queues. Raises OSError."""
        return QueuedListener(self._queues, ip, port, backlog, now, self._coin)


class QueuedNic:
    """The NICs of all queues."""

    def __init__(self, queues: Sequence[SimQueue]) -> None:
        self._queues = queues

    @property
    def counters(self) -> NicCounters:
        return _sum(NicCounters(), [queue.node.nic.counters for queue in self._queues])


class QueuedNode(Node):
    """The nodes of all queues of a NIC as one: what worlds use of a `Node`, and connections by their lanes.

    `make` makes the node of a queue; `coin` decides where batches arrive, and whose turn it is. It has file descriptors
    until `close`.
    """

    def __init__(self, queues: int, link: Link, make: MakeNode, coin: Random) -> None:
        self.link = link
        self._coin = coin
        links = [QueueLink(link) for _ in range(queues)]
        nodes = [make(each, QueueTurn, queues) for each in links]
        self.name = nodes[0].name
        self.queues = [SimQueue(number, *pair) for number, pair in enumerate(zip(nodes, links, strict=True))]
        self._placement = Queues(cast(Sequence[NicQueue], self.queues))
        self._closed = False
        self.host = cast(Host, QueuedHost(self.queues, coin))
        self.nic = cast(Nic, QueuedNic(self.queues))
        self._arrived_frames = 0

    def close(self) -> None:
        """Close its file descriptors. It is not used any more."""
        if not self._closed:
            self._closed = True
            self._placement.close()

    def connect(self, ip: int, port: int, now: float, local_port: int, lane: int) -> Connection:
        """Start a connection, as a daemon does: `local_port` 0 and `lane` -1 are any. Raises OSError."""
        queue = cast(SimQueue, self._placement.for_connection(local_port, (ip, port), lane))
        candidates = partial(queue.streams.candidates, (ip, port), lane)
        return queue.host.connect(ip, port, now, local_port, candidates)

    # Turns

    def receive(self, now: float) -> None:
        idle = dict.fromkeys(self.queues)
        while self._distribute(now) or any([queue.has_arrivals for queue in self.queues]):
            for queue in self._in_any_order():
                if queue.has_arrivals:
                    queue.receive(now)
                    idle.pop(queue, None)
        for queue in idle:
            queue.receive(now)

    def _distribute(self, now: float) -> bool:
        """Have some of what the link has arrive at any queues. Return whether there was anything."""
        taken = 0
        while taken < ROUND_BYTES and (frames := self.link.receive(now)) is not None:
            self._coin.choice(self.queues).link.arrived.append(frames)
            self._arrived_frames += len(frames)
            taken += frames.nbytes
        return taken > 0

    def _in_any_order(self) -> list[SimQueue]:
        return self._coin.sample(self.queues, len(self.queues))

    def send(self, now: float) -> None:
        for queue in self._in_any_order():
            queue.node.send(now)

    def next_time(self) -> float | None:
        times = [queue.node.next_time() for queue in self.queues]
        return min((time for time in times if time is not None), default=None)

    # What must hold

    def check_placement(self) -> None:
        """Check that each connection is in the queue of its hash, and no frame was lost on its way there. Raises
        Violation."""
        for queue in self.queues:
            for ip, port, local_port in queue.host.tcp.keys:
                hashed = lib.sn_queue_of(queue.host.ip, ip, local_port, port, len(self.queues))
                if hashed != queue.number:
                    raise Violation(f"port {local_port} is in queue {queue.number}, but hashes to {hashed}")
            if queue.turn.c.counts.nic_rx_drop_steered:
                raise Violation(f"queue {queue.number} has dropped frames of other queues")

    def check_frames(self) -> None:
        """Check, when nothing is on its way, that all frames were counted once, at one queue. Raises Violation."""
        counters = self.nic.counters
        counted, arrived = counters.rx_frames, self._arrived_frames + counters.loopback_frames
        if counted != arrived:
            raise Violation(f"the queues have counted {counted} frames, and {arrived} have arrived")
        if counters.rx_drop_steered:
            raise Violation(f"{counters.rx_drop_steered} frames were dropped on their way to another queue")


def _sum(total: Counters, counters: Sequence[Counters]) -> Counters:
    """Add counters to a total, which is returned."""
    for field in fields(total):
        setattr(total, field.name, sum(getattr(each, field.name) for each in counters))
    return total
