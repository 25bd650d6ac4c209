"""Programs that open connections, and those that take them in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.facades.tcp import Connection, Event, Listener
from tests.simulation.invariants import Violation
from tests.simulation.tcp_workload import Talk, Talker

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

PORT = 5000
Identity = tuple[tuple[int, int], tuple[int, int], int]
"""A connection as it was opened: client's and server's address, the client's initial sequence number."""


class Talks:
    """All conversations of a world, by what tells an accepted connection whose it is."""

    def __init__(self) -> None:
        self.all: list[Talk] = []
        self._opened: dict[Identity, Talk] = {}

    def clear(self) -> None:
        """Forgets them all: they are over."""
        self.all.clear()
        self._opened.clear()

    def opened(self, connection: Connection, talk: Talk) -> None:
        self._opened[connection.local, connection.peer, connection.snd.iss] = talk

    def accepted(self, connection: Connection) -> Talk:
        """Raises Violation for a connection that nobody opened, or that came in before."""
        talk = self._opened.get((connection.peer, connection.local, connection.rcv.irs))
        if talk is None:
            raise Violation(f"a connection from {connection.peer_name} came in that nobody opened")
        if talk.accepted:
            raise Violation(f"{talk} came in twice")
        talk.accepted = True
        return talk


class Caller:
    """Opens a connection when its time has come and the machine is up."""

    def __init__(self, machine: Machine, talk: Talk, server_ip: int, talks: Talks) -> None:
        self._machine = machine
        self._talk = talk
        self._server_ip = server_ip
        self._talks = talks
        self.over = False

    def take(self, event: Event) -> None:
        """It has no connection of its own."""

    def crashed(self) -> None:
        """It calls when the machine is up again."""

    def next_time(self, now: float) -> float:
        at = self._talk.conversation.at
        return at if at > now else math.inf

    def advance(self, now: float) -> None:
        if now < self._talk.conversation.at:
            return
        self.over = True
        machine = self._machine
        try:
            connection = machine.host.connect(self._server_ip, PORT, machine.local, self._talk.conversation.port)
        except OSError as error:
            if not self._talk.conversation.port:
                raise
            self._talk.void = True
            self._talk.ends[0] = str(error.strerror)
            return
        self._talks.opened(connection, self._talk)
        machine.log(f"{self._talk} is opened from port {connection.local[1]} to {connection.peer_name}")
        machine.run(Talker(machine, self._talk, 0, connection), connection)


class Service:
    """Listens as soon as the machine is up, and takes in who comes, now and then after a while."""

    def __init__(self, machine: Machine, talks: Talks, backlog: int, pause_s: float) -> None:
        self._machine = machine
        self._talks = talks
        self._backlog = backlog
        self._pause_s = pause_s
        self._accepts_at = 0.0
        self._listener: Listener | None = None
        self.over = False

    def take(self, event: Event) -> None:
        """It looks anyway."""

    def crashed(self) -> None:
        self._listener = None

    def next_time(self, now: float) -> float:
        return self._accepts_at if self._accepts_at > now else math.inf

    def advance(self, now: float) -> None:
        machine = self._machine
        if self._listener is None:
            self._listener = machine.host.listen(0, PORT, self._backlog, machine.local)
        while self._listener.queue and now >= self._accepts_at:
            connection = self._listener.accept()
            assert connection is not None
            self._accepts_at = now + self._pause_s
            talker = Talker(machine, self._talks.accepted(connection), 1, connection)
            machine.run(talker, connection)
            talker.accepted(now)

    def stop(self) -> None:
        """Listens no more."""
        self.over = True
        if self._listener is not None:
            self._listener.close(self._machine.local)
            self._listener = None
            self._machine.touch()
