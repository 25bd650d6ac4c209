"""A rank of a virtual-time cluster: one process on one node, its byte streams and its NIC's collective engine."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from softnic.collectives import CollectiveEngine
from softnic.collectives.schedule import blocks
from softnic.ipc.work_queue import WorkFailed, WorkRequest
from softnic.link.emulation import EmulatedLink
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.node import FIRST_IP, TOS, ConnectionEvent, SimNode
from softnic.sim.processes import ByteStream, Floats, Program, Received, SimProcess, Until, as_bytes
from softnic.sim.spec import ClusterSpec
from softnic.sim.switch import SwitchedLink
from softnic.tcp.connection import Closed, Connection, Readable
from softnic.tcp.peer_stream import peer_streams

MESSAGE_PORT, CONTROL_PORT, DATA_PORT = PORTS = (7000, 7001, 7002)
"""Programs' messages; the collective engine's control messages; its data."""


@dataclass(slots=True)
class CollectiveDone:
    """Condition: the NIC has completed a work request."""

    number: int
    completed: set[int] = field(repr=False)

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return self.number in self.completed

    def next_time(self) -> float | None:
        return None


class SimRank:
    """What a program of rank `index` is given: time, messages to other ranks, and collectives executed by the NICs."""

    over = False

    def __init__(self, index: int, network: MemoryNetwork, spec: ClusterSpec) -> None:
        self.index = index
        self.size = spec.nodes
        self.now = 0.0
        self.process = SimProcess()
        self.streams: dict[int, ByteStream] = {}
        """By the rank at the other end."""
        link = SwitchedLink(network.port(mtu=spec.mtu), spec.rate_bps)
        self.host: SimNode[SimRank] = SimNode(link)
        seed = spec.seed * spec.nodes + index
        self.node = self.host.boot(
            Node(
                FIRST_IP + index,
                EmulatedLink(link, spec.emulation(), seed=seed),
                rng=random.Random(seed),
                name=f"node{index}",
                offloads={TOS: "raw"},
                mode=spec.mode,
            )
        )
        self.host.start(0.0, self)
        self._by_connection: dict[Connection, ByteStream] = {}
        self._engine_connections: dict[int, dict[int, Connection]] = {CONTROL_PORT: {}, DATA_PORT: {}}
        """By port and rank."""
        self._engine: CollectiveEngine | None = None
        self._rx_frames = 0
        self._posted = 0
        self._completed: set[int] = set()

    # For programs

    def compute(self, seconds: float) -> Until:
        """Return a condition that holds after this time."""
        return Until(self.now + seconds)

    def send(self, peer: int, data: memoryview, codec: str = "") -> None:
        """Queue bytes for a rank. With a codec they are floats, in whole coding blocks of 64 bytes."""
        self.streams[peer].send(Tag(TOS, codec) if codec else PLAIN, data)

    def receive(self, peer: int, memory: memoryview) -> Received:
        """Return a condition that holds when `memory` is full of the next bytes from a rank, floats as decoded."""
        return self.streams[peer].receive(memory)

    def post(self, vector: Floats, codec: str = "", algorithm: str = "ring") -> CollectiveDone:
        """Let the NICs sum the ranks' vectors in place, as MPI's Iallreduce. The NIC owns `vector` until it is done."""
        assert self._engine is not None
        self._posted += 1
        counts = tuple(part.stop - part.start for part in blocks("allreduce", algorithm, vector.size, self.size))
        call = "Iallreduce_comp" if codec else "Iallreduce"
        request = (self._posted, call, "allreduce", algorithm, "float32", counts, (0, 0), (0, 0))
        self._engine.post(WorkRequest(*request, op="SUM", codec=codec), as_bytes(vector), as_bytes(vector))
        return CollectiveDone(self._posted, self._completed)

    # For the cluster

    def add_connection(self, port: int, peer: int, connection: Connection) -> None:
        """Take a connection to a rank."""
        self.host.own(self.now, self, connection)
        if port == MESSAGE_PORT:
            self.streams[peer] = self._by_connection[connection] = ByteStream(connection)
        else:
            self._engine_connections[port][peer] = connection

    def join(self) -> None:
        """Start the collective engine: all ranks are connected."""
        control, data = self._engine_connections[CONTROL_PORT], self._engine_connections[DATA_PORT]
        self._engine = CollectiveEngine(self.index, self.size, peer_streams(control), peer_streams(data))

    def start(self, program: Program) -> None:
        """Start a program. Raises RuntimeError while another one runs."""
        self.process.start(program)
        self.host.touch(self.now)

    # An application of its node

    def on_event(self, event: ConnectionEvent) -> None:
        """Move bytes. Raises ConnectionError for a connection that has failed."""
        connection = event.connection
        if isinstance(event, Closed):
            raise ConnectionError(connection.error, f"{self.node.name}: {connection.error_message}")
        if (stream := self._by_connection.get(connection)) is None:
            return
        if isinstance(event, Readable):
            stream.read()
        else:
            stream.write()

    def advance(self, now: float) -> None:
        """Run the engine and the program. Raises ConnectionError for a collective that has failed."""
        self.now = now
        frames = self.node.nic.frames_received
        if frames != self._rx_frames or self._engine_due() <= now:
            self._run_engine(now)
        self._rx_frames = frames
        posted = self._posted
        self.process.advance(now)
        if self._posted != posted:
            self._run_engine(now)

    def next_time(self, now: float) -> float:  # noqa: ARG002
        return min(self.process.next_time(), self._engine_due())

    def _engine_due(self) -> float:
        due = None if self._engine is None else self._engine.next_time()
        return math.inf if due is None else due

    def _run_engine(self, now: float) -> None:
        if self._engine is None:
            return
        self._engine.advance(now)
        replies = self._engine.replies
        while replies:
            reply = replies.popleft()
            if isinstance(reply, WorkFailed):
                raise ConnectionError(f"{self.node.name}: {reply.text}")
            self._completed.add(reply.number)
