"""Teams of ranks whose NICs execute collectives (softnic/collectives), with what makes them find each other.

A rank connects to every lower one, twice, as a process does for its NIC; then it posts the team's calls, one after the
other. It may leave before its time, cancel, or call something else: then all must learn of it, in bounded time.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from tests.facades.collectives import CollectiveEngine
from tests.facades.ipc import WorkCompletion, WorkFailed
from tests.facades.tcp import Connection, Event, Listener, State, peer_streams
from tests.simulation import scenario
from tests.simulation.collective_calls import Array, Call
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

FIRST_PORT = 7000
MEETING_S = 30.0
"""For ranks to find each other."""
RETRY_S = 0.3
USER_TIMEOUT_S = 3.0
KEEPALIVE = (1.0, 1.0, 2)
"""Both as softnic/comm/transport.py has them."""
BOUND_S = 5.0
"""In which what has happened to one rank is known to all."""
OVER_S = 0.2
"""Timers come a little late."""


class Team:
    """What is known of a team, from outside."""

    def __init__(self, spec: scenario.Team) -> None:
        rng = random.Random(spec.seed)
        self.spec = spec
        self.size = len(spec.machines)
        self.calls = [Call(number + 1, self.size, rng) for number in range(spec.calls)]
        self.odd_rank = rng.randrange(self.size)
        """Who leaves, cancels or differs, where the team is to end so."""
        self.odd_call = rng.randrange(spec.calls) + 1
        self.seeds = [rng.getrandbits(64) for _ in range(self.size)]
        self.ends: list[str] = [""] * self.size
        """How each rank ended: complete, left, lost, or the reason of its failure."""
        self.joined = 0
        """How many have found all others."""
        self.broken_at = math.inf
        """Since when it cannot go on. Who has not joined yet, because its links lose too much, cannot differ."""
        self._differs = False

    def __str__(self) -> str:
        return f"team {self.spec.number}"

    def joins(self, now: float) -> None:
        """One more rank has found all others."""
        self.joined += 1
        if self._differs and self.joined == self.size:
            self.breaks(now)

    def differs(self, now: float) -> None:
        """One rank calls something else than the others, which is seen where all have called."""
        self._differs = True
        if self.joined == self.size:
            self.breaks(now)

    def breaks(self, now: float) -> None:
        """It cannot go on."""
        self.broken_at = min(self.broken_at, now)


class Rank:
    """One rank of a team, on a machine."""

    def __init__(self, machine: Machine, team: Team, rank: int, ips: list[int]) -> None:
        self._machine = machine
        self._team = team
        self._rank = rank
        self._ips = ips
        """Of all ranks."""
        self._rng = random.Random(team.seeds[rank])
        self._ports = FIRST_PORT + 2 * team.spec.number, FIRST_PORT + 2 * team.spec.number + 1
        self._listeners: list[Listener] = []
        self._connections: tuple[dict[int, Connection], dict[int, Connection]] = ({}, {})
        """Words and data, by rank."""
        self._executor: CollectiveEngine | None = None
        self._posted: dict[int, Array] = {}
        """Results of what is not complete."""
        self._number = 0
        self._acts_at = team.spec.at
        self._posted_at = 0.0

    @property
    def over(self) -> bool:
        return bool(self._team.ends[self._rank])

    def take(self, event: Event) -> None:
        """It looks at its connections anyway."""

    def crashed(self) -> None:
        self._break("lost")

    def next_time(self, now: float) -> float:
        executor = self._executor
        due = None if executor is None else executor.next_time()
        at = self._acts_at if self._acts_at > now else math.inf
        return at if due is None else min(at, max(now, self._machine.clock.world(due)))

    def advance(self, now: float) -> None:
        if self.over or now < self._team.spec.at:
            return
        if self._executor is None:
            self._meet(now)
        if self._executor is not None:
            self._execute(self._executor, now)

    # Finding each other

    def _meet(self, now: float) -> None:
        machine = self._machine
        if not self._listeners:
            self._listeners = [machine.host.listen(0, port, 16, machine.local) for port in self._ports]
        for listener, connections in zip(self._listeners, self._connections, strict=True):
            while (connection := listener.accept()) is not None:
                self._add(connections, self._ips.index(connection.peer[0]), connection)
        if now >= self._acts_at:
            self._acts_at = now + RETRY_S
            self._connect()
        if all(self._complete(connections) for connections in self._connections):
            self._join(now)
        elif now > self._team.spec.at + MEETING_S:
            machine.log(f"{self._team}: rank {self._rank} does not find all others")
            self._drop()
            self._break("no team")

    def _complete(self, connections: dict[int, Connection]) -> bool:
        return len(connections) == self._team.size - 1 and all(
            connection.state in (State.ESTABLISHED, State.CLOSE_WAIT) for connection in connections.values()
        )

    def _connect(self) -> None:
        """To each lower rank to which there is no connection, or none that lives."""
        for port, connections in zip(self._ports, self._connections, strict=True):
            for rank in range(self._rank):
                if rank not in connections or connections[rank].state is State.CLOSED:
                    machine = self._machine
                    self._add(connections, rank, machine.host.connect(self._ips[rank], port, machine.local))

    def _add(self, connections: dict[int, Connection], rank: int, connection: Connection) -> None:
        old = connections.get(rank)
        if old is not None:
            old.abort(self._machine.local)
        connections[rank] = connection
        connection.set_user_timeout(USER_TIMEOUT_S)
        connection.set_keepalive(KEEPALIVE, self._machine.local)

    def _join(self, now: float) -> None:
        self._stop_listening()
        node = self._machine.node
        assert node is not None
        control, data = (peer_streams(connections, node.nic.rx_placements) for connections in self._connections)
        self._executor = CollectiveEngine(self._rank, self._team.size, control, data)
        self._acts_at = now
        self._team.joins(now)
        self._machine.log(f"{self._team}: rank {self._rank} has joined")

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close(self._machine.local)
        self._listeners.clear()

    def _drop(self) -> None:
        self._stop_listening()
        for connections in self._connections:
            for connection in connections.values():
                connection.abort(self._machine.local)

    # Calling

    def _execute(self, executor: CollectiveEngine, now: float) -> None:
        local = self._machine.local
        executor.advance(local)
        self._take_replies(executor)
        if self.over:
            return
        self._check_bounds(now)
        while now >= self._acts_at and self._number < len(self._team.calls) and executor.space:
            self._acts_at = now + self._team.spec.gap_s * self._rng.random()
            if not self._post(executor, now):
                return
        if self._number == len(self._team.calls) and not self._posted:
            executor.leave(local)
            self._end("complete")
        elif self._acts_at <= now:
            executor.advance(local)

    def _post(self, executor: CollectiveEngine, now: float) -> bool:
        """Whether it goes on."""
        self._number += 1
        team = self._team
        odd = team.spec.ends if (self._rank, self._number) == (team.odd_rank, team.odd_call) else "together"
        if odd == "leaves":
            executor.leave(self._machine.local)
            self._break("left")
            return False
        call = team.calls[self._number - 1]
        post, source, result = call.post(self._rank, wrong=odd == "differs")
        self._posted[self._number] = result
        self._posted_at = now
        executor.post(post, source.view("u1").data, result.view("u1").data)
        if odd == "cancels":
            executor.cancel(self._number, self._machine.local)
            team.breaks(now)
        elif odd == "differs":
            team.differs(now)
        return True

    def _take_replies(self, executor: CollectiveEngine) -> None:
        while executor.replies:
            reply = executor.replies.popleft()
            if isinstance(reply, WorkCompletion):
                self._team.calls[reply.number - 1].check(self._rank, self._posted.pop(reply.number))
            elif isinstance(reply, WorkFailed):
                executor.leave(self._machine.local)
                self._break(reply.text)
                return

    def _check_bounds(self, now: float) -> None:
        """What has become of the others is known in time."""
        bound = BOUND_S / self._machine.spec.clock_rate + OVER_S
        since = max(self._team.broken_at, self._posted_at, self._machine.disturbed_at)
        if self._posted and now > since + bound:
            raise Violation(f"{self._team}: rank {self._rank} waits {now - since:.2f} s after the others have ended")
        for connections in self._connections:
            for rank, connection in connections.items():
                since = max(self._machine.clock.world(connection.last_heard), self._machine.disturbed_at)
                if connection.state is State.ESTABLISHED and now > since + bound:
                    raise Violation(
                        f"{self._team}: rank {self._rank} has not heard rank {rank} for {now - since:.2f} s"
                    )

    def _break(self, how: str) -> None:
        """The team cannot go on without it."""
        self._team.breaks(self._machine.world_now())
        self._end(how)

    def _end(self, how: str) -> None:
        if not self.over:
            self._team.ends[self._rank] = how
            self._machine.log(f"{self._team}: rank {self._rank} ends: {how}")
