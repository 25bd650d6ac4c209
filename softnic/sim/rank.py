"""A rank of a virtual-time cluster: one process on one node, its byte streams and its NIC's collective engine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from softnic.collectives import CollectiveEngine
from softnic.collectives.schedule import EVEN, PathPlan, blocks, peers
from softnic.ipc.work_queue import WorkFailed, WorkRequest
from softnic.link.emulation import EmulatedLink
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.mesh import CALL_PORT, CONTROL_PORT, DATA_PORT, MESSAGE_PORT, PLAIN_PORT, TAGGED_PORT, SimMesh
from softnic.sim.node import FIRST_IP, TOS, ConnectionEvent, SimNode
from softnic.sim.processes import ByteStream, Floats, Program, Received, SimProcess, Until, as_bytes
from softnic.sim.spec import ClusterSpec
from softnic.sim.switch import SwitchedLink
from softnic.tcp.connection import Closed, Connection, Readable
from softnic.tcp.peer_stream import TcpPeerStream, peer_streams

FULL_PORTS = (MESSAGE_PORT, CONTROL_PORT, DATA_PORT)
"""Connections between two ranks where all pairs connect at the start: those that are used."""


@dataclass(slots=True)
class CollectiveDone:
    """Condition: the NIC has completed a work request."""

    number: int
    completed: set[int] = field(repr=False)

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return self.number in self.completed

    def next_time(self) -> float | None:
        return None


@dataclass(slots=True)
class Connected:
    """Condition: a rank is connected with others, as far as it knows itself."""

    ranks: Collection[int]
    streams: Mapping[int, ByteStream] = field(repr=False)

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return all(rank in self.streams and self.streams[rank].connection is not None for rank in self.ranks)

    def next_time(self) -> float | None:
        return None


class SimRank:
    """What a program of rank `index` is given: time, messages to other ranks, and collectives executed by the NICs."""

    over = False

    def __init__(
        self, index: int, network: MemoryNetwork, spec: ClusterSpec, on_due: Callable[[float], object]
    ) -> None:
        self.index = index
        self.size = spec.nodes
        self.now = 0.0
        self.joined_at = math.inf
        """When it has joined: its program may run."""
        self.process = SimProcess()
        self.streams: dict[int, ByteStream] = {}
        """By the rank at the other end."""
        self.link_rate = 0.0
        """Of its link, as its NIC has measured it, in wire bytes per second; 0: not yet."""
        port, ip = network.port(mtu=spec.mtu), FIRST_IP + index
        link = SwitchedLink(port, spec.rate_of(index), ip, lambda peer: self.node.host.has_neighbour(peer))
        self.host: SimNode[SimRank] = SimNode(link, on_due)
        seed = spec.seed * spec.nodes + index
        self.node = self.host.boot(
            Node(
                ip,
                EmulatedLink(link, spec.emulation(index), seed=seed),
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
        self._mesh: SimMesh | None = None
        """Connects it where not all pairs connect at the start."""
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
        self._stream(peer).send(Tag(TOS, codec) if codec else PLAIN, data)

    def receive(self, peer: int, memory: memoryview) -> Received:
        """Return a condition that holds when `memory` is full of the next bytes from a rank, floats as decoded."""
        return self._stream(peer).receive(memory)

    def post(self, vector: Floats, codec: str = "", algorithm: str = "ring", paths: PathPlan = EVEN) -> CollectiveDone:
        """Let the NICs sum the ranks' vectors in place, as MPI's Iallreduce. The NIC owns `vector` until it is done."""
        counts = tuple(part.stop - part.start for part in blocks("allreduce", algorithm, vector.size, self.size, paths))
        call = "Iallreduce_comp" if codec else "Iallreduce"
        form = (call, "allreduce", algorithm, "float32", counts, (0, 0), (0, 0))
        return self._post(WorkRequest(self._posted + 1, *form, op="SUM", codec=codec), as_bytes(vector))

    def barrier(self) -> CollectiveDone:
        """Let the NICs wait for all ranks, as MPI's Ibarrier: a byte of each, by a tree."""
        form = ("Ibarrier", "allreduce", "tree", "uint8", (self.size,), (0, 0), (0, 0))
        return self._post(WorkRequest(self._posted + 1, *form, op="MAX"), memoryview(bytearray(self.size)))

    def connect(self, algorithm: str) -> Connected:
        """Connect to the ranks that an all-reduce by this algorithm exchanges blocks with, as its first call does."""
        needed = peers("allreduce", algorithm, self.index, self.size, -1)
        self._need(needed)
        return Connected(needed, self.streams)

    def _post(self, request: WorkRequest, memory: memoryview) -> CollectiveDone:
        assert self._engine is not None
        self._posted = request.number
        self._need(peers(request.collective, request.algorithm, self.index, self.size, -1))
        self._engine.post(request, memory, memory)
        return CollectiveDone(request.number, self._completed)

    def _stream(self, peer: int) -> ByteStream:
        """Return the stream to a rank, whose connection is made if there is none."""
        if peer not in self.streams and self._mesh is not None:
            self.streams[peer] = ByteStream()
            self._need({peer})
        return self.streams[peer]

    def _need(self, ranks: Collection[int]) -> None:
        """Begin to connect with ranks that this one is not connected with."""
        if self._mesh is not None:
            for rank in sorted(ranks):
                self._own(self._mesh.want(rank, self.now))

    # For the cluster

    def begin(self, first: frozenset[int]) -> None:
        """Connect to the ranks of the start, and to others when they are needed."""
        self._mesh = SimMesh(self.index, self.size, first, self.node.host)
        self._own(self._mesh.begin(self.now))
        self._connect_ranks(self._mesh)  # a single rank has started
        self.host.touch(self.now)

    def add_connection(self, port: int, peer: int, connection: Connection) -> None:
        """Take a connection to a rank, where all pairs connect at the start."""
        self._own([connection])
        if port == MESSAGE_PORT:
            self._use_stream(peer, connection)
        else:
            self._engine_connections[port][peer] = connection

    def join(self, now: float) -> None:
        """Start the collective engine: all ranks have started."""
        control, data = self._engine_connections[CONTROL_PORT], self._engine_connections[DATA_PORT]
        self._engine = CollectiveEngine(self.index, self.size, peer_streams(control), peer_streams(data))
        self.joined_at = now

    @property
    def connections(self) -> int:
        """The number of its NIC's open connections to other ranks; calls, which are about to close, left out."""
        found = self.node.host.tcp.connections
        return sum(each.established and CALL_PORT not in (each.local[1], each.peer[1]) for each in found)

    def start(self, program: Program) -> None:
        """Start a program. Raises RuntimeError while another one runs."""
        self.process.start(program)
        self.host.touch(self.now)

    def _own(self, connections: list[Connection]) -> None:
        self.host.own(self.now, self, *connections)

    def _use_stream(self, peer: int, connection: Connection) -> None:
        stream = self._by_connection[connection] = self.streams.setdefault(peer, ByteStream())
        stream.attach(connection)

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
        if frames != self._rx_frames and self._mesh is not None:
            self._connect_ranks(self._mesh)
        if frames != self._rx_frames or self._engine_due() <= now:
            self._run_engine(now)
        self._rx_frames = frames
        if self._engine is None:
            return
        posted = self._posted
        self.process.advance(now)
        while self._posted != posted:
            posted = self._posted
            self._run_engine(now)
            self.process.advance(now)  # a single rank is done at once

    def _connect_ranks(self, mesh: SimMesh) -> None:
        new, joined = mesh.advance(self.now)
        self._own(new)
        if mesh.has_started and self._engine is None:
            self.join(self.now)
        for peer, connections in joined:
            self._use_stream(peer, connections[MESSAGE_PORT])
            control, data, plain, tagged = map(TcpPeerStream, _of_engine(connections))
            assert self._engine is not None
            self._engine.connect(self.now, peer, control, data, (plain, tagged))

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
            self.link_rate = max(self.link_rate, reply.rate)


def _of_engine(connections: Mapping[int, Connection]) -> list[Connection]:
    return [connections[port] for port in (CONTROL_PORT, DATA_PORT, PLAIN_PORT, TAGGED_PORT)]
