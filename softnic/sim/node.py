"""A node in virtual time: TCP and NIC on a link, and the applications that run beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from softnic.nic.node import Node
from softnic.tcp.connection import Closed, Connection, Readable, Writable

FIRST_IP = (10 << 24) + (77 << 16) + 1
"""Address of the first node: 10.77.0.1. The others follow."""
TOS = 0x28
"""The ToS for which the nodes' offload tables have a codec."""

ConnectionEvent = Closed | Readable | Writable


class Application(Protocol):
    """What runs on a node. It acts whenever the node's NIC does, and at the times that it asks for."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""

    def on_event(self, event: ConnectionEvent) -> None:
        """Handle an event of a connection that it owns."""

    def advance(self, now: float) -> None:
        """Do what can be done at `now`."""

    def next_time(self, now: float) -> float:
        """Return when it is due after `now` if nothing happens before; infinity: not at all."""


class ArrivalPort(Protocol):
    """Where frames to a node arrive."""

    on_arrival: Callable[[float], object]


AnyApplication = TypeVar("AnyApplication", bound=Application)


class SimNode(Generic[AnyApplication]):
    """A node and its applications, as an actor of a virtual clock.

    Parameters
    ----------
    port : ArrivalPort
        The innermost link of the node, whose arrivals make it due.
    on_due : callable
        Is given the time, in seconds, whenever something outside its turn makes the node due.
    """

    def __init__(self, port: ArrivalPort, on_due: Callable[[float], object] = lambda _now: None) -> None:
        self._on_due = on_due
        port.on_arrival = self.touch
        self.applications: list[AnyApplication] = []
        self._node: Node | None = None
        self._owners: dict[Connection, AnyApplication] = {}
        self._wake = 0.0

    @property
    def node(self) -> Node:
        """TCP and NIC, which run."""
        assert self._node is not None
        return self._node

    def boot(self, node: Node) -> Node:
        """Start with this node, which is returned."""
        self._node = node
        return node

    @property
    def alive(self) -> bool:
        """Whether its NIC runs."""
        return self._node is not None

    def shut_down(self) -> None:
        """Stop the NIC. Its peers are not notified."""
        self._node = None

    def local_time(self, now: float) -> float:
        """Return what the node's own clock shows at `now`."""
        return now

    def global_time(self, local: float) -> float:
        """Return when the node's own clock shows `local`."""
        return local

    def start(self, now: float, application: AnyApplication, *connections: Connection) -> None:
        """Start an application that owns these connections."""
        self.applications.append(application)
        self.own(now, application, *connections)

    def own(self, now: float, application: AnyApplication, *connections: Connection) -> None:
        """Deliver events of these connections to the application from now on."""
        self._owners.update(dict.fromkeys(connections, application))
        self.touch(now)

    def touch(self, now: float) -> None:
        """Make the node due: something changed outside its turn."""
        self._wake = now
        self._on_due(now)

    def next_time(self) -> float:
        """Return when the node is due if nothing happens before."""
        return self._wake

    def advance(self, now: float) -> None:
        """Take a turn: what has arrived, applications, what leaves."""
        node, local = self.node, self.local_time(now)
        node.receive(local)
        self._deliver(node)
        for application in tuple(self.applications):
            application.advance(now)
        for application in self.applications:
            if application.over:
                self.remove_ended()
                break
        node.send(local)
        self._wake = self.wake_time(node, now)

    def remove_ended(self) -> None:
        """Forget applications that have ended, with their connections."""
        self.applications = [each for each in self.applications if not each.over]
        self._owners = {each: owner for each, owner in self._owners.items() if not owner.over}

    def _deliver(self, node: Node) -> None:
        events = node.host.events
        while events:
            event = events.popleft()
            if isinstance(event, ConnectionEvent) and (owner := self._owners.get(event.connection)) is not None:
                owner.on_event(event)

    def wake_time(self, node: Node, now: float) -> float:
        """Return when it is due after its turn at `now`."""
        if node.host.events:
            return now
        due = node.next_time()
        wake = math.inf if due is None else max(now, self.global_time(due))
        for application in self.applications:
            wake = min(wake, application.next_time(now))
        return wake
