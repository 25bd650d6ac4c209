"""A cluster in virtual time: nodes with TCP and NIC on emulated links, one process on each, in one thread.

Every byte passes through the whole stack; only time is simulated. Links take the time of their rate, delay and
interrupt moderation, programs the time that they ask for; everything else takes none. So a cluster shows what a
network and its protocols make of an exchange on infinitely fast hosts. The same spec and programs give the same times,
to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

from softnic.link.memory import MemoryNetwork
from softnic.sim.clock import VirtualClock
from softnic.sim.node import FIRST_IP
from softnic.sim.processes import Program
from softnic.sim.rank import PORTS, SimRank
from softnic.sim.spec import ClusterSpec
from softnic.tcp.state import State

CONNECT_LIMIT_S = 60.0


class SimCluster:
    """Ranks on one switch, each connected to every other.

    Raises
    ------
    Stalled
        The links lose so much that not all ranks are connected after 60 virtual seconds.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._clock = VirtualClock()
        network = MemoryNetwork()
        self.ranks = [SimRank(index, network, spec) for index in range(spec.nodes)]
        self._hosts = [rank.host for rank in self.ranks]
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
            for port in PORTS
        ]
        opened = []
        for low in self.ranks:
            for high in self.ranks[low.index + 1 :]:
                for port in PORTS:
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
            rank.join()

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
        for rank in self.ranks:
            rank.start(program(rank))
        self._clock.run(self._hosts, lambda: not any(rank.process.running for rank in self.ranks), limit_s)
        return self.now - began
