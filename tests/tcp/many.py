"""`python -m tests.tcp.many`: hundreds of thousands of connections in virtual time.

    python -m tests.tcp.many --connections 100000 --seed 1

Worlds of four nodes (real TCP and NICs, an emulated link each), one for each rate of loss from 0 to 20 %. Programs on
them open connections to each other, ask and answer, some with tagged floats (under a codec that is exact), and close in
every order. Received data is compared byte for byte; afterwards nothing may be left: no connection, timer, half-open
entry, waiting frame, buffer or budget. The seed determines a world, so failures can be reproduced.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet import ipv4
from softnic.packet.segment import Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Closed, Connection, Established, Readable, Writable
from softnic.tcp.listener import AcceptReady, Listener
from softnic.tcp.stack import TcpStack

LOSSES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.2)
NODES = 4
PORT = 80
AT_ONCE = 100
"""Simultaneous connections of a world."""
PATIENCE_S = 3600.0
"""User timeout of all connections; longer than the worst of these links delays a connection."""
QUIET_S = 400.0
"""Longer than any timer runs after the last connection has closed."""
EXACT = "truncate:32"
CONFIG = TcpConfig(
    syn_retries=1000, max_rto_s=8.0, user_timeout_s=PATIENCE_S, orphan_timeout_s=PATIENCE_S, time_wait_s=120.0
)  # TIME-WAIT outlives the longest interval between two retransmissions of a FIN many times over
ENDINGS = ("asker", "answerer", "both", "question", "close")
"""Which end closes its direction first: the client after the reply, the server after sending it, both without waiting,
or the client after its request; or the client closes the connection."""


def remaining(stack: TcpStack) -> dict[str, int]:
    """Return the number of each kind of object that a stack still holds: zero once all connections are closed."""
    return {
        "connections": len(stack.connections),
        "time-waits": len(stack._time_waits),
        "ports": len(+stack._local_ports),
        "timers": stack.scheduler.c.timer_count,
        "ready": lib.sn_ready_count(ffi.addressof(stack.scheduler.c, "ready")),
        "flows": stack.scheduler.c.flows,
    }


class Failed(AssertionError):
    """Something was lost, altered or left behind; the text says what."""


@dataclass
class Talk:
    """One connection: its requests and replies, and how it ends."""

    question: bytes
    answer: bytes
    tag: Tag
    ending: str
    asked: int = 0
    answered: int = 0
    heard: bytearray = field(default_factory=bytearray)
    """Bytes of the request received so far."""
    learned: bytearray = field(default_factory=bytearray)
    """Bytes of the reply received so far."""


def talk_of(rng: Random) -> Talk:
    sizes = [rng.choice((0, rng.randrange(1, 100), rng.randrange(1, 6000), rng.randrange(1, 60_000))) for _ in range(2)]
    tag = Tag(0x28, EXACT) if rng.random() < 0.2 else Tag()
    return Talk(rng.randbytes(sizes[0]), rng.randbytes(sizes[1]), tag, rng.choice(ENDINGS))


class World:
    """Nodes whose programs react to events; an actor of a VirtualClock that acts after the nodes."""

    def __init__(self, connections: int, loss: float, seed: int) -> None:
        self.rng = Random(seed)
        self.left = connections
        self.done: Counter[str] = Counter()
        """Completed connections by ending."""
        self.bytes = 0
        network = MemoryNetwork()
        spec = EmulationSpec(delay_s=0.005, loss=loss, duplicate=loss / 4, reorder=loss / 2, limit_bytes=1 << 30)
        self.nodes = [self._node(network, spec, number) for number in range(NODES)]
        for node in self.nodes:
            for other in self.nodes:
                node.host._neighbours.learn(other.nic.ip, other.nic.mac, 1e12, unasked=True)
        self._listeners: dict[Listener, Node] = {
            node.host.listen(0, PORT, 2 * AT_ONCE, 0.0): node for node in self.nodes
        }
        self._talks: dict[tuple[tuple[int, int], tuple[int, int]], Talk] = {}
        """Connections by the addresses of client and server."""
        self._askers: dict[Connection, Talk] = {}
        self._answerers: dict[Connection, Talk] = {}
        self._open: Counter[int] = Counter()
        """Number of open ends of each connection."""

    def _node(self, network: MemoryNetwork, spec: EmulationSpec, number: int) -> Node:
        link = EmulatedLink(network.port(), spec, seed=self.rng.getrandbits(32))
        rng = Random(self.rng.getrandbits(32))
        return Node(ipv4.address(f"10.77.0.{1 + number}"), link, rng=rng, offloads={0x28: EXACT}, config=CONFIG)

    # An actor

    def advance(self, now: float) -> None:
        for node in self.nodes:
            events = node.host.events
            while events:
                event = events.popleft()
                if isinstance(event, AcceptReady):
                    self._accept(event.listener)
                elif isinstance(event, Established):
                    self._work(event.connection, now)
                elif isinstance(event, Closed):
                    self._work(event.connection, now)
                    self._closed(event)
                elif isinstance(event, Readable | Writable):
                    self._work(event.connection, now)
        while self.left and len(self._open) < AT_ONCE:
            self._start(now)

    def next_time(self) -> float | None:
        return None

    # Programs

    def _start(self, now: float) -> None:
        self.left -= 1
        asker, answerer = self.rng.sample(self.nodes, 2)
        talk = talk_of(self.rng)
        connection = asker.host.connect(answerer.nic.ip, PORT, now)
        connection.set_nodelay(self.rng.random() < 0.5)
        self._askers[connection] = self._talks[connection.local, connection.peer] = talk
        self._open[id(talk)] = 2

    def _accept(self, listener: Listener) -> None:
        connection = listener.accept()
        if connection is None:
            raise Failed("an event told of a connection that was not there")
        talk = self._talks.pop((connection.peer, connection.local))
        self._answerers[connection] = talk
        self._work(connection, 0.0)
        if connection.error:
            raise Failed(f"{connection.error_message} before it was accepted")

    def _work(self, connection: Connection, now: float) -> None:
        if connection in self._askers:
            self._ask(connection, self._askers[connection], now)
        elif connection in self._answerers:
            self._reply(connection, self._answerers[connection])

    def _ask(self, connection: Connection, talk: Talk, now: float) -> None:
        if talk.asked < len(talk.question):
            connection.tag(talk.tag)
            talk.asked += connection.send(memoryview(talk.question)[talk.asked :])
        sent = talk.asked == len(talk.question)
        if sent:
            connection.tag(Tag())  # a partly written float is sent without its remaining bytes
        talk.learned += connection.recv(1 << 30)
        learned = len(talk.learned) == len(talk.answer)
        if sent and talk.ending in ("question", "both"):
            connection.shutdown_write()
        if sent and learned and talk.ending == "close":
            connection.close(now)
        elif sent and learned and (talk.ending == "asker" or connection.eof):
            connection.shutdown_write()

    def _reply(self, connection: Connection, talk: Talk) -> None:
        talk.heard += connection.recv(1 << 30)
        if len(talk.heard) < len(talk.question) and talk.ending != "both":
            return
        if talk.answered < len(talk.answer):
            connection.tag(talk.tag)
            talk.answered += connection.send(memoryview(talk.answer)[talk.answered :])
        if talk.answered == len(talk.answer):
            connection.tag(Tag())
            if talk.ending in ("answerer", "both") or connection.eof:
                connection.shutdown_write()

    def _closed(self, event: Closed) -> None:
        connection = event.connection
        talk = self._askers.pop(connection, None) or self._answerers.pop(connection)
        if event.errno:
            raise Failed(f"a connection ended with {connection.error_message!r}")
        self._open[id(talk)] -= 1
        if self._open[id(talk)]:
            return
        del self._open[id(talk)]
        if talk.heard != talk.question or talk.learned != talk.answer:
            got = (len(talk.heard), len(talk.learned))
            raise Failed(f"{got} bytes arrived, or others than the {(len(talk.question), len(talk.answer))} sent")
        self.done[talk.ending] += 1
        self.bytes += len(talk.question) + len(talk.answer)

    @property
    def finished(self) -> bool:
        return not self.left and not self._open

    # Checks after the run

    def check_empty(self, clock: VirtualClock) -> None:
        """Raises Failed if a node still holds state of closed connections."""
        clock.run_for([*self.nodes, self], QUIET_S)
        for node in self.nodes:
            tcp = node.host.tcp
            left = {
                **remaining(tcp),
                "budget": CONFIG.buffer_memory - tcp.budget.free,
                "half open": sum(len(listener.half_open) + len(listener.queue) for listener in self._listeners),
                "events": len(node.host.events),
                "next time": 0 if node.next_time() is None else 1,
            }
            found = {what: count for what, count in left.items() if count}
            if found or self._talks or self._askers or self._answerers:
                raise Failed(f"left behind: {found}, {len(self._talks)} talks")


def run_world(connections: int, loss: float, seed: int) -> tuple[World, float]:
    """Runs and checks one world; returns it with the virtual seconds it took. Raises Failed, Stalled."""
    world, clock = World(connections, loss, seed), VirtualClock()
    clock.run([*world.nodes, world], lambda: world.finished, limit_s=1e9)
    took = clock.now
    world.check_empty(clock)
    return world, took


def worlds(connections: int, seed: int, most: int = 2000) -> Iterator[tuple[int, float, int]]:
    """Yields the size, loss and seed of each world: sizes of `most`, at each loss in turn."""
    left, queue = connections, deque(LOSSES)
    number = 0
    while left:
        size = min(most, left, -(-connections // len(LOSSES)))
        yield size, queue[0], 1000 * seed + number
        left, number = left - size, number + 1
        queue.rotate(-1)


def counted(world: tuple[int, float, int]) -> tuple[tuple[int, float, int], Counter[str], int, float, str]:
    """Runs one of `worlds`; returns counts by way of closing, bytes compared, virtual seconds, and any error."""
    try:
        done, took = run_world(*world)
    except Exception as error:
        return world, Counter(), 0, 0.0, f"{type(error).__name__}: {error}"
    return world, done.done, done.bytes, took, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tcp.many", description=str(__doc__).splitlines()[0])
    parser.add_argument("--connections", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    total: Counter[float] = Counter()
    endings: Counter[str] = Counter()
    carried, virtual_s, began = 0, 0.0, time.monotonic()
    with multiprocessing.Pool(given.processes) as pool:
        for world, done, size, took, wrong in pool.imap_unordered(counted, worlds(given.connections, given.seed)):
            if wrong:
                print(f"run_world{world}: {wrong}")
                return 1
            total[world[1]] += world[0]
            endings += done
            carried, virtual_s = carried + size, virtual_s + took
            print(f"{sum(total.values()):7} of {given.connections}  ({time.monotonic() - began:.0f} s)", flush=True)
    by_loss = ", ".join(f"{count} at {loss:.1%}" for loss, count in sorted(total.items()))
    print(f"{sum(total.values())} connections opened, used and closed ({by_loss} loss); first to end: {dict(endings)}")
    print(f"{carried / 1e6:.0f} MB compared, {virtual_s:.0f} virtual seconds; nothing lost, altered or left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
