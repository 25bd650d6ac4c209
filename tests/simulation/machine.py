"""A machine: a NIC's node on its way to the network, and the programs beside it. It may crash, freeze and start again.

Programs outlive the NIC, as processes outlive a daemon; their connections do not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Protocol

from tests.facades.nic import FixedSpeed, Flows, Node, SegmentObserver
from tests.facades.packet import Options, Segment
from tests.facades.tcp import AcceptReady, Connection, EchoReply, Event, Host, PeerFound, PeerLost
from tests.simulation import scenario
from tests.simulation.actions import TOS
from tests.simulation.invariants import check_node
from tests.simulation.links import LocalLink, SimLink
from tests.simulation.local_clock import Clock

FIRST_IP = (10 << 24) + (77 << 16) + 1
_CODEC_BYTES_S = 1e9
"""What codecs are taken to do, where the NIC decides by it."""


class Program(Protocol):
    """What runs on a machine. It acts whenever the machine's NIC does, and when its time has come."""

    @property
    def over(self) -> bool:
        """It has ended."""

    def take(self, event: Event) -> None:
        """TCP says something of a connection that it runs on."""

    def crashed(self) -> None:
        """The NIC died, and its connections with it."""

    def advance(self, now: float) -> None:
        """Does what it can. `now` is the world's time, here and below."""

    def next_time(self, now: float) -> float:
        """When it wants to act after this, if nothing happens before; infinity: not at all."""


class PlainFlows(Flows):
    """Of a host without a NIC of ours: its SYNs offer no codecs."""

    def sending_syn(self, segment: Segment, options: Options) -> Options:
        super().sending_syn(segment, options)
        return Options(options.mss, options.window_scale, options.sack_permitted, None)

    def received_syn(self, segment: Segment, options: Options) -> None:
        super().received_syn(segment, Options(options.mss, options.window_scale, options.sack_permitted, None))


class Machine:
    """Machine `index` of a world. `world_now` tells the time, `log` takes what is worth telling."""

    def __init__(
        self,
        index: int,
        spec: scenario.Machine,
        way: SimLink,
        *,
        world_now: Callable[[], float],
        log: Callable[[str], None],
        capture: SegmentObserver | None = None,
    ) -> None:
        self.index = index
        self.name = f"node{index}"
        self.ip = FIRST_IP + index
        self.spec = spec
        self.way = way
        self.clock = Clock(spec.clock_start, spec.clock_rate)
        self.programs: list[Program] = []
        self.node: Node | None = None
        """None: its NIC is dead."""
        self.frozen_until = 0.0
        self.boots = 0
        self.disturbed_at = 0.0
        """When it last went on after standing still, or its clock jumped."""
        self.world_now = world_now
        self._log = log
        self._capture = capture
        self._owners: dict[Connection, Program] = {}
        self._rng = random.Random(spec.seed)
        self._wake = 0.0

    def log(self, text: str) -> None:
        self._log(f"{self.name}: {text}")

    @property
    def host(self) -> Host:
        assert self.node is not None
        return self.node.host

    @property
    def local(self) -> float:
        """What its clock shows."""
        return self.clock.local(self.world_now())

    def run(self, program: Program, *connections: Connection) -> None:
        """Starts a program, and has it told of these connections."""
        self.programs.append(program)
        self.own(program, *connections)

    def own(self, program: Program, *connections: Connection) -> None:
        self._owners.update(dict.fromkeys(connections, program))
        self.touch()

    # Faults

    def boot(self) -> None:
        self.boots += 1
        spec = self.spec
        self.way.forget(self.world_now())
        self.node = Node(
            self.ip,
            LocalLink(self.way, self.clock, self.world_now),
            rng=random.Random(self._rng.getrandbits(64)),
            offloads={TOS: spec.codec},
            mode=spec.mode,
            equal_sizes=spec.equal_sizes,
            name=self.name,
            capture=self._capture,
            config=spec.config,
            codec_timer=FixedSpeed(_CODEC_BYTES_S),
        )
        if spec.plain:
            self.node.nic.flows = PlainFlows(self.node.nic.flows.codecs)
        self.touch()

    def crash(self) -> None:
        """The NIC dies without a word."""
        self.node = None
        for program in self.programs:
            program.crashed()
        self._forget_programs()

    def freeze(self, until: float) -> None:
        """Nothing happens on it before that."""
        self.frozen_until = self.disturbed_at = max(self.frozen_until, until)
        self._wake = self.frozen_until

    def jump(self, seconds: float) -> None:
        """Its clock goes ahead."""
        self.clock.jump(seconds, self.world_now())
        self.disturbed_at = max(self.disturbed_at, self.world_now())
        self.touch()

    def touch(self) -> None:
        """Something has changed outside a turn: it takes one."""
        self._wake = self.world_now()

    # Turns

    def next_time(self) -> float:
        """When it has something to do, if nothing happens before."""
        if self.node is None:
            return math.inf
        comes = self.way.next_time()
        wake = self._wake if comes is None or comes > self._wake else comes
        return max(wake, self.frozen_until)

    def advance(self, now: float) -> None:
        """A turn: what came in, programs, what goes out. Raises Violation."""
        node = self.node
        if node is None:
            return
        local = self.clock.local(now)
        node.receive(local)
        self._tell(node)
        for program in list(self.programs):
            program.advance(now)
        if any(program.over for program in self.programs):
            self._forget_programs()
        node.send(local)
        check_node(node, local, self.clock.local(min(now, self.disturbed_at)))
        self._wake = self._next_time(node, now)

    def _forget_programs(self) -> None:
        self.programs = [program for program in self.programs if not program.over]
        self._owners = {each: owner for each, owner in self._owners.items() if not owner.over}

    def _tell(self, node: Node) -> None:
        events = node.host.events
        while events:
            event = events.popleft()
            if not isinstance(event, AcceptReady | EchoReply | PeerLost | PeerFound):
                owner = self._owners.get(event.connection)
                if owner is not None:
                    owner.take(event)

    def _next_time(self, node: Node, now: float) -> float:
        due = node.next_time()
        wake = math.inf if due is None else max(now, self.clock.world(due))
        for program in self.programs:
            wake = min(wake, program.next_time(now))
        return now if node.host.events else wake
