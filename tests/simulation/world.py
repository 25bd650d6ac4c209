"""A world, run from its plan: machines on one network, faults as they come, and what must hold at every step.

Nothing in it reads a real clock or makes a random number that does not come from the plan, so that a plan is a history,
to the byte: `digest` is one number for all that crossed the network.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from struct import pack

from tests.facades.packet import Frames, mac_of
from tests.facades.sim import MemoryNetwork, Stalled, VirtualClock
from tests.simulation import scenario
from tests.simulation.actions import Conversation
from tests.simulation.applications import Caller, Service, Talks
from tests.simulation.collective_workload import Rank, Team
from tests.simulation.faults import apply
from tests.simulation.invariants import Violation, check_idle
from tests.simulation.links import SimLink
from tests.simulation.machine import FIRST_IP, Machine
from tests.simulation.recording import Recording
from tests.simulation.tcp_workload import Talk

PATIENCE_S = 600.0
"""After the last fault: by then every program has ended, whatever timeouts it had to wait for."""
REST_S = 300.0
"""After the last program: by then TCP has forgotten all connections."""
LOGGED = 400

Log = Callable[[str], None]


class World:
    """`tell` is given every line of the log as it comes; the last ones are kept in `log`."""

    def __init__(self, made: scenario.Plan, *, tell: Log | None = None, recording: Recording | None = None) -> None:
        self.plan = made
        self.clock = VirtualClock()
        self.log: deque[str] = deque(maxlen=LOGGED)
        self.severed: Counter[tuple[int, int]] = Counter()
        """(from, to), as often as something severs them."""
        self._tell = tell
        self._recording = recording
        self._digest = hashlib.blake2b(digest_size=16)
        self._by_mac = {mac_of(FIRST_IP + index): index for index in range(len(made.machines))}
        network = MemoryNetwork()
        self.machines = [self._machine(network, index) for index in range(len(made.machines))]
        self.talks = Talks()
        self.teams: list[Team] = []
        self._services: list[Service] = []
        for machine in self.machines:
            machine.boot()
        self._populate()
        apply(self, made.faults)

    def _machine(self, network: MemoryNetwork, index: int) -> Machine:
        spec = self.plan.machines[index]
        port = network.port(mtu=spec.mtu, limit_bytes=spec.port_bytes)
        way = SimLink(port, spec.link, spec.seed, partial(self._hears, index), partial(self._seen, index), spec.ghosts)
        tap = None if self._recording is None else self._recording.host_tap(index, self._time)
        return Machine(index, spec, way, world_now=self._time, log=self.tell, capture=tap)

    def _populate(self) -> None:
        """Starts the programs."""
        for machine in self.machines:
            service = Service(machine, self.talks, machine.spec.backlog, machine.spec.accept_pause_s)
            self._services.append(service)
            machine.run(service)
        for conversation in self.plan.conversations:
            self.start_talk(conversation)
        for team in self.plan.teams:
            self.start_team(team)

    def start_talk(self, conversation: Conversation) -> None:
        """Has a conversation take place when its time has come."""
        ends = [self.plan.machines[index] for index in (conversation.client, conversation.server)]
        plain = any(end.plain for end in ends)
        talk = Talk(conversation, (None, None) if plain else (ends[0].codec, ends[1].codec))
        self.talks.all.append(talk)
        client = self.machines[conversation.client]
        client.run(Caller(client, talk, FIRST_IP + conversation.server, self.talks))

    def start_team(self, spec: scenario.Team) -> None:
        """The same for a team."""
        team = Team(spec)
        self.teams.append(team)
        ips = [FIRST_IP + index for index in spec.machines]
        for rank, index in enumerate(spec.machines):
            self.machines[index].run(Rank(self.machines[index], team, rank, ips))

    # What machines are given

    @property
    def now(self) -> float:
        return self.clock.now

    def _time(self) -> float:
        return self.clock.now

    def tell(self, text: str) -> None:
        line = f"{self.now:12.6f} {text}"
        self.log.append(line)
        if self._tell is not None:
            self._tell(line)

    def _hears(self, index: int, mac: bytes) -> bool:
        sender = self._by_mac.get(mac)
        return sender is None or not self.severed[sender, index]

    def _seen(self, index: int, frames: Frames, outgoing: bool) -> None:
        if outgoing:
            self._digest.update(pack("=dII", self.now, index, len(frames)))
            for frame in frames:
                self._digest.update(frame)
        if self._recording is not None:
            self._recording.wire(index, frames, self.now, outgoing)

    @property
    def digest(self) -> str:
        """Of all frames that left a NIC, when, and which."""
        return self._digest.hexdigest()

    # Time

    def run(self) -> None:
        """To the end. Raises Violation."""
        try:
            self.finish(self.plan.horizon_s + PATIENCE_S)
            self._check_outcome()
            for service in self._services:
                service.stop()
            self.rest()
        except (Violation, Stalled) as violation:
            raise Violation(f"at {self.now:.6f} s: {violation}") from None

    def finish(self, end: float) -> None:
        """Runs until all programs have ended, which they have to by then. Raises Violation."""
        if not self.clock.run_until(self.machines, self._over, end):
            raise Violation(f"programs wait for ever: {'; '.join(self._waiting())}")

    def rest(self) -> None:
        """Runs until nothing is left of any connection but who listens. Raises Violation."""
        if not self.clock.run_until(self.machines, self._idle, self.now + REST_S):
            raise Violation("TCP keeps connections that nobody uses")
        for machine in self.machines:
            if machine.node is not None:
                check_idle(machine.node)

    def _over(self) -> bool:
        talks, teams = self.talks.all, self.teams
        return (
            not self.clock.events_pending and all(map(self._is_over, talks)) and all(all(team.ends) for team in teams)
        )

    @staticmethod
    def _is_over(talk: Talk) -> bool:
        """Both ends are, or the client's before the server knew of it."""
        return all(talk.ends) if talk.accepted else bool(talk.ends[0])

    def _idle(self) -> bool:
        return not any(machine.node is not None and machine.host.tcp.keys for machine in self.machines)

    def _waiting(self) -> list[str]:
        talks = [
            f"{talk} of node{talk.conversation.client} and node{talk.conversation.server} ({talk.ends})"
            for talk in self.talks.all
            if not self._is_over(talk)
        ]
        teams = [f"{team} ({team.ends})" for team in self.teams if not all(team.ends)]
        return talks + teams

    # In the end

    def _check_outcome(self) -> None:
        """Where nothing bad happened nothing has failed."""
        if not self.plan.calm:
            return
        for talk in self.talks.all:
            if not talk.quits and not talk.void and talk.ends != ["whole", "whole"]:
                raise Violation(f"{talk} ended {talk.ends} though nothing bad has happened")
        for team in self.teams:
            if set(team.ends) != {"complete"}:
                raise Violation(f"{team} ended {team.ends} though nothing bad has happened")
