"""A cluster in virtual time: nodes with TCP and NIC on emulated links, a process on each, in one thread.

Every byte goes through the whole stack; only time is made up. Links take what their rate, delay and moderation say,
processes what their programs say; all else takes none. So a cluster shows what a network and its protocols make of an
exchange, with a machine that is infinitely fast but for what programs say. The same spec and programs give the same
times, to the bit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from softnic.collectives import Executor
from softnic.collectives.schedule import blocks
from softnic.ipc.work_queue import Failed, Post
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import COALESCE_S, EmulationSpec
from softnic.link.memory import Network
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.clock import VirtualClock
from softnic.sim.processes import Channel, Floats, Process, Program, Received, Until, raw
from softnic.sim.switch import SwitchedLink
from softnic.tcp.connection import Connection
from softnic.tcp.events import Closed, Event, Readable, Writable
from softnic.tcp.state import State

TOS = 0x28
"""What the nodes' tables have codecs for."""
FIRST_IP = (10 << 24) + (77 << 16) + 1
CONNECT_LIMIT_S = 60.0
_CHANNEL, _WORDS, _DATA = _PORTS = (7000, 7001, 7002)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a cluster is like. Every link is as every other, both ways."""

    nodes: int
    rate_bps: float = 1e9
    delay_s: float = 50e-6
    coalesce_s: float = COALESCE_S
    """Frames leave a link in batches at most this often (EmulationSpec)."""
    mtu: int = 1500
    loss: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a cluster has 1 node or more, not {self.nodes}")
        self.emulation()

    def emulation(self) -> EmulationSpec:
        """Raises ValueError for what no link is like."""
        return EmulationSpec(rate_bps=self.rate_bps, delay_s=self.delay_s, coalesce_s=self.coalesce_s, loss=self.loss)


@dataclass(slots=True)
class Done:
    """That the NIC has completed a request."""

    number: int
    completed: set[int] = field(repr=False)

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return self.number in self.completed

    def next_time(self) -> float | None:
        return None


class Rank:
    """A node, what it is connected to, and its process: what programs are given."""

    def __init__(self, index: int, network: Network, spec: Spec) -> None:
        self.index = index
        self.size = spec.nodes
        self.now = 0.0
        self.link = SwitchedLink(network.port(mtu=spec.mtu), spec.rate_bps)
        seed = spec.seed * spec.nodes + index
        self.node = Node(
            FIRST_IP + index,
            EmulatedLink(self.link, spec.emulation(), seed=seed),
            rng=random.Random(seed),
            name=f"node{index}",
            offloads={TOS: "raw"},
        )
        self.process = Process()
        self.channels: dict[int, Channel] = {}
        """To other ranks, for programs."""
        self._by_connection: dict[Connection, Channel] = {}
        self._group: dict[int, dict[int, Connection]] = {_WORDS: {}, _DATA: {}}
        """The executor's, by port and rank."""
        self._executor: Executor | None = None
        self._posted = 0
        self._completed: set[int] = set()
        self._wake = 0.0

    # For programs

    def compute(self, seconds: float) -> Until:
        """Holds when so much time has passed from now on."""
        return Until(self.now + seconds)

    def send(self, peer: int, data: memoryview, codec: str = "") -> None:
        """Queues bytes for a rank. With a codec they are floats, in whole stretches of 64 bytes."""
        self.channels[peer].send(Tag(TOS, codec) if codec else PLAIN, data)

    def receive(self, peer: int, memory: memoryview) -> Received:
        """Fills memory with what comes next from a rank. Floats arrive as their codec leaves them."""
        return self.channels[peer].receive(memory)

    def post(self, vector: Floats, codec: str = "", algorithm: str = "ring") -> Done:
        """Has the NICs sum the ranks' vectors, in place: MPI's Iallreduce. `vector` is the NIC's until that is done."""
        assert self._executor is not None
        self._posted += 1
        call = "Iallreduce_comp" if codec else "Iallreduce"
        counts = tuple(part.stop - part.start for part in blocks("allreduce", algorithm, vector.size, self.size))
        memory = (0, 0)
        post = Post(
            *(self._posted, call, "allreduce", algorithm, "float32", counts, memory, memory), op="SUM", codec=codec
        )
        self._executor.post(post, raw(vector), raw(vector))
        return Done(self._posted, self._completed)

    # For the cluster

    def connected(self, port: int, peer: int, connection: Connection) -> None:
        if port == _CHANNEL:
            self.channels[peer] = self._by_connection[connection] = Channel(connection)
        else:
            self._group[port][peer] = connection

    def join(self) -> None:
        """All are connected: the executor takes over what is its."""
        words, data = self._group[_WORDS], self._group[_DATA]
        self._executor = Executor(self.index, self.size, words, data, self.node.nic.places)

    def start(self, program: Program) -> None:
        self.process.start(program)
        self._wake = self.now

    def next_time(self) -> float:
        """When it has something to do, if nothing happens before."""
        comes = self.link.next_time()
        return self._wake if comes is None or comes > self._wake else comes

    def advance(self, now: float) -> None:
        """Does all there is to do at `now`. Raises ConnectionError where a connection has failed."""
        self.now = now
        frames = self.node.nic.counters.rx_frames
        self.node.receive(now)
        events = self.node.host.events
        while events:
            self._take(events.popleft())
        if self.node.nic.counters.rx_frames != frames or self._executor_due() <= now:
            self._execute(now)
        posted = self._posted
        self.process.advance(now)
        if self._posted != posted:
            self._execute(now)
        self.node.send(now)
        self._wake = min(_or_never(self.node.next_time()), _or_never(self.process.next_time()))
        if (due := self._executor_due()) < self._wake:
            self._wake = due

    def _executor_due(self) -> float:
        return math.inf if self._executor is None else _or_never(self._executor.next_time())

    def _execute(self, now: float) -> None:
        if self._executor is None:
            return
        self._executor.advance(now)
        replies = self._executor.replies
        while replies:
            reply = replies.popleft()
            if isinstance(reply, Failed):
                raise ConnectionError(f"{self.node.name}: {reply.text}")
            self._completed.add(reply.number)

    def _take(self, event: Event) -> None:
        if isinstance(event, Closed):
            connection = event.connection
            raise ConnectionError(connection.error, f"{self.node.name}: {connection.error_message}")
        if isinstance(event, Readable | Writable) and event.connection in self._by_connection:
            channel = self._by_connection[event.connection]
            if isinstance(event, Readable):
                channel.read()
            else:
                channel.write()


def _or_never(time: float | None) -> float:
    return math.inf if time is None else time


class Cluster:
    """`ranks` on one switch, every two connected."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._clock = VirtualClock()
        network = Network()
        self.ranks = [Rank(index, network, spec) for index in range(spec.nodes)]
        self._connect()

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self._clock.now

    def _connect(self) -> None:
        """The higher rank of two connects to the lower one, once for each port."""
        listeners = [
            (rank, port, rank.node.host.listen(0, port, self.spec.nodes, self.now))
            for rank in self.ranks
            for port in _PORTS
        ]
        opened = []
        for low in self.ranks:
            for high in self.ranks[low.index + 1 :]:
                for port in _PORTS:
                    opened.append(high.node.host.connect(low.node.nic.ip, port, self.now))
                    high.connected(port, low.index, opened[-1])
        accepted = 0

        def all_connected() -> bool:
            nonlocal accepted
            for rank, port, listener in listeners:
                while (connection := listener.accept()) is not None:
                    rank.connected(port, connection.peer[0] - FIRST_IP, connection)
                    accepted += 1
            return accepted == len(opened) and all(each.state is State.ESTABLISHED for each in opened)

        self._clock.run(self.ranks, all_connected, CONNECT_LIMIT_S)
        for rank in self.ranks:
            rank.join()

    def run(self, program: Callable[[Rank], Program], limit_s: float = 3600.0) -> float:
        """Runs a program on every rank until all have ended. Returns the virtual seconds that took.

        Raises Stalled where that is more than `limit_s` or a program waits for what cannot come, ConnectionError.
        """
        began = self.now
        for rank in self.ranks:
            rank.start(program(rank))
        self._clock.run(self.ranks, lambda: not any(rank.process.running for rank in self.ranks), limit_s)
        return self.now - began
