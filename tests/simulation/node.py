"""A node of a world: it has a clock of its own, and may crash, stand still and start again.

Applications outlive the NIC, as processes outlive a daemon; their connections do not.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal, Protocol

from softnic.link.base import Link
from softnic.link.memory import MemoryLink
from softnic.nic.adaptive_codec import FixedSpeed
from softnic.nic.node import Node
from softnic.nic.turn import Turn
from softnic.sim.node import FIRST_IP, TOS, Application, SimNode
from softnic.tcp.connection import Connection
from softnic.tcp.host import Host
from softnic.tcp.state import State
from tests.nic.asked import count_calls
from tests.simulation.invariants import check_node
from tests.simulation.links import LocalLink, SimLink
from tests.simulation.local_clock import LocalClock
from tests.simulation.queued_node import MakeTurn, QueuedNode
from tests.simulation.recording import HostRecorder
from tests.simulation.scenario import NodeSpec
from tests.simulation.trace import Trace

_CODEC_BYTES_S = 1e9
"""Assumed speed of codecs, for NICs that choose a codec by it."""


FastPathMode = Literal["off", "on", "mixed"]
"""Whether connections use TCP's fast path; mixed: a seeded coin decides for each of them in each turn."""


class WorldApplication(Application, Protocol):
    """An application that notices when its node's NIC dies."""

    def on_crash(self) -> None:
        """Handle the loss of all connections."""


class WorldNode(SimNode[WorldApplication]):
    """Node `index` of a world. `time` returns the world's time, `log` takes lines for people, `trace` what happens.

    `fast_path` replaces what the configuration says, unless it is None. `queues` is the number of its NIC's queues.
    """

    def __init__(
        self,
        index: int,
        spec: NodeSpec,
        port: MemoryLink,
        link: SimLink,
        *,
        time: Callable[[], float],
        log: Callable[[str], None],
        trace: Trace,
        capture: HostRecorder | None = None,
        fast_path: FastPathMode | None = None,
        queues: int | None = None,
    ) -> None:
        super().__init__(port)
        self.index = index
        self.name = f"node{index}"
        self.ip = FIRST_IP + index
        self.spec = spec
        self.queues = queues
        self.link = link
        self.clock = LocalClock(spec.clock_start, spec.clock_rate)
        self.frozen_until = 0.0
        self.disturbed_at = 0.0
        """When it last continued after standing still, or its clock jumped."""
        self.time = time
        self._log = log
        self._trace = trace
        self._capture = capture
        self._rng = random.Random(spec.seed)
        self._config = spec.config if fast_path is None else replace(spec.config, fast_path=fast_path != "off")
        self.asked: Counter[str] = Counter()
        """How often C has left a run of frames to Python, and what a flow sends."""
        self._coin = random.Random(spec.seed + 1) if fast_path == "mixed" else None

    def log(self, text: str) -> None:
        self._log(f"{self.name}: {text}")

    @property
    def host(self) -> Host:
        """Its TCP."""
        return self.node.host

    @property
    def local(self) -> float:
        """What its clock shows now."""
        return self.clock.local_time(self.time())

    def local_time(self, now: float) -> float:
        return self.clock.local_time(now)

    def global_time(self, local: float) -> float:
        return self.clock.global_time(local)

    def connect(self, ip: int, port: int, local_port: int = 0, lane: int = -1) -> Connection:
        """Start a connection: from any port if `local_port` is 0; `lane` is of use to a NIC with queues (-1: any one).
        Raises OSError."""
        if isinstance(self.node, QueuedNode):
            return self.node.connect(ip, port, self.local, local_port, lane)
        return self.host.connect(ip, port, self.local, local_port)

    def run(self, application: WorldApplication, *connections: Connection) -> None:
        """Start an application that owns these connections."""
        self.start(self.time(), application, *connections)

    # Faults

    def boot_nic(self) -> None:
        """Start a NIC."""
        self.link.discard_waiting(self.time())
        link = LocalLink(self.link, self.time)
        if self.queues is None:
            self.boot(self._make_node(link))
        else:
            coin = random.Random(self._rng.getrandbits(64))
            self.boot(QueuedNode(self.queues, link, self._make_node, coin))
        self.touch(self.time())

    def _make_node(self, link: Link, make_turn: MakeTurn = Turn, queues: int = 1) -> Node:
        """Return the node of one of `queues` queues."""
        spec, config = self.spec, self._config
        node = Node(
            self.ip,
            link,
            rng=random.Random(self._rng.getrandbits(64)),
            offloads={TOS: spec.codec},
            mode=spec.mode,
            equal_sizes=spec.equal_sizes,
            name=self.name,
            capture=self._capture,
            config=replace(config, buffer_memory=config.buffer_memory // queues),
            make_turn=make_turn,
            codec_timer=FixedSpeed(_CODEC_BYTES_S),
        )
        if spec.plain:
            node.nic.codecs = None
        count_calls(node.turn, self.asked, "on_run", "on_output")
        return node

    def shut_down(self) -> None:
        self.close()
        super().shut_down()

    def close(self) -> None:
        """Close the NIC's file descriptors, if it has any: it is not advanced any more."""
        if isinstance(self._node, QueuedNode):
            self._node.close()

    def crash(self) -> None:
        """Kill the NIC."""
        for connection in in_order(self.host.tcp.connections):
            self._trace.on_end(self.time(), self.index, connection, self.local)
        self.shut_down()
        for application in self.applications:
            application.on_crash()
        self.remove_ended()

    def freeze(self, until: float) -> None:
        """Stand still until a time."""
        self.frozen_until = self.disturbed_at = max(self.frozen_until, until)
        self.touch(self.frozen_until)

    def jump(self, seconds: float) -> None:
        """Set the clock ahead."""
        self.clock.jump(seconds, self.time())
        self.disturbed_at = max(self.disturbed_at, self.time())
        self.touch(self.time())

    # An actor

    def next_time(self) -> float:
        return max(super().next_time(), self.frozen_until) if self.alive else math.inf

    def wake_time(self, node: Node, now: float) -> float:
        wake, link = super().wake_time(node, now), self.link.next_time()
        return wake if link is None or link > wake else link

    def advance(self, now: float) -> None:
        """Take a turn, and check what must hold. Raises Violation."""
        if self.alive:
            connections = self.host.tcp.connections
            if self._coin is not None:
                for connection in in_order(connections):
                    connection.fast_path = self._coin.random() < 0.5
            with nullcontext() if self._capture is None else self._capture.turn(self.local):
                super().advance(now)
            for connection in in_order([each for each in connections if each.state is State.CLOSED]):
                self._trace.on_end(now, self.index, connection, self.local)
            check_node(self.node, self.clock.local_time(now), self.clock.local_time(min(now, self.disturbed_at)))
            if isinstance(self.node, QueuedNode):
                self.node.check_placement()


def in_order(connections: list[Connection]) -> list[Connection]:
    """Return connections in an order that does not depend on TCP's tables."""
    return sorted(connections, key=lambda each: (each.local, each.peer))
