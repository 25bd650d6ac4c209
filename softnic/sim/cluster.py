"""A cluster in virtual time: nodes with TCP and NIC on emulated links, one process on each, in one thread.

Every byte passes through the whole stack; only time is simulated. Links take the time of their rate, delay and
interrupt moderation, programs the time that they ask for; everything else takes none. So a cluster shows what a
network and its protocols make of an exchange on infinitely fast hosts. The same spec and programs give the same times,
to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

from softnic.collectives import pairs
from softnic.link.memory import MemoryNetwork
from softnic.sim.agenda import Agenda
from softnic.sim.clock import VirtualClock
from softnic.sim.node import FIRST_IP
from softnic.sim.processes import Program
from softnic.sim.rank import FULL_PORTS, SimRank
from softnic.sim.spec import ClusterSpec
from softnic.tcp.state import State

CONNECT_LIMIT_S = 60.0


class SimCluster:
    """Ranks on one switch, connected as the spec says: each to every other one, or those of a tree, and further pairs
    when a program needs them.

    Parameters
    ----------
    spec : ClusterSpec
        The nodes and their links.
    first : callable, optional
        A program that each rank runs as soon as it has joined, which may be before the others have.

    Raises
    ------
    Stalled
        The links lose so much that not all ranks have joined after 60 virtual seconds.
    """

    def __init__(self, spec: ClusterSpec, first: Callable[[SimRank], Program] | None = None) -> None:
        self.spec = spec
        self._clock = VirtualClock()
        network = MemoryNetwork()
        agenda = Agenda()
        self.ranks = [SimRank(index, network, spec, agenda.reporter(index)) for index in range(spec.nodes)]
        for rank in self.ranks:
            agenda.add(rank.host)
        self._hosts = [agenda]
        if spec.is_full:
            self._connect()
            if first is not None:
                self.run(first)
        else:
            self._start(first or _nothing)

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self._clock.now

    def _start(self, first: Callable[[SimRank], Program]) -> None:
        for rank in self.ranks:
            rank.begin(pairs.at_start(rank.index, self.spec.nodes, self.spec.connect))
        self._run(first, CONNECT_LIMIT_S)

    def _connect(self) -> None:
        """The higher rank of two connects to the lower one, once for each port."""
        listeners = [
            (rank, port, rank.node.host.listen(0, port, self.spec.nodes, self.now))
            for rank in self.ranks
            for port in FULL_PORTS
        ]
        opened = []
        for low in self.ranks:
            for high in self.ranks[low.index + 1 :]:
                for port in FULL_PORTS:
                    opened.append(high.node.host.connect(low.node.nic.ip, port, self.now))
                    high.add_connection(port, low.index, opened[-1])
        accepted = 0

        def all_connected() -> bool:
            nonlocal accepted
            for rank, port, listener in listeners:
                while (connection := listener.accept()) is not None:
                    rank.add_connection(port, connection.peer[0] - FIRST_IP, connection)
                    accepted += 1
            return accepted == len(opened) and all(each.state is State.ESTABLISHED for each in opened)

        self._clock.run(self._hosts, all_connected, CONNECT_LIMIT_S)
        for rank in self.ranks:
            rank.join(self.now)

    def run(self, program: Callable[[SimRank], Program], limit_s: float = 3600.0) -> float:
        """Run a program on every rank until all have ended.

        Returns
        -------
        float
            The virtual seconds that it took.

        Raises
        ------
        Stalled
            It takes more than `limit_s`, or a program waits for what cannot happen.
        ConnectionError
            A connection or a collective has failed.
        """
        began = self.now
        self._run(program, limit_s)
        return self.now - began

    def _run(self, program: Callable[[SimRank], Program], limit_s: float) -> None:
        for rank in self.ranks:
            rank.start(program(rank))
        running = self.ranks[::-1]

        def all_ended() -> bool:
            while running and not running[-1].process.running:
                running.pop()
            return not running

        self._clock.run(self._hosts, all_ended, limit_s)


def _nothing(rank: SimRank) -> Program:  # noqa: ARG001
    """A program that ends at once."""
    yield from ()
