"""Connects a rank of a virtual-time cluster to those that it needs, as softnic/comm/bootstrap/mesh.py does.

Two ranks are joined by five connections, which the higher one opens. Behind the handshake of TCP each direction of each
connection begins with a Hello, that of the caller first. At the start these are the pairs of a tree. When all of a
rank's are joined, and all ranks below it have said so, it sends Gathered to the rank above, and from the first rank
Gathered comes back: all have started. Later pairs are joined when an operation needs them; a rank that needs a higher
one calls it by a further connection, which is closed after the Hellos.

What is simulated: TCP's handshakes, the bytes of these frames and the round trips in which they go, all through the
nodes' NICs and links. What stands for something else: a port for a channel, where all real ones are on one port and
Hello names the channel; zeros for the contents of frames; events of the node for what processes read and write on
sockets of their NIC, in no time. Ranks start at the same instant. Not simulated: stores and addresses, further lanes,
proofs of a secret, ranks that are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from softnic.collectives.pairs import lower
from softnic.sim.node import FIRST_IP
from softnic.tcp.connection import Connection
from softnic.tcp.host import Host
from softnic.tcp.state import State

MESSAGE_PORT, CONTROL_PORT, DATA_PORT, PLAIN_PORT, TAGGED_PORT = PORTS = (7000, 7001, 7002, 7003, 7004)
"""Programs' messages, which are the processes' connection; the collective engine's control messages; its data; its
single messages, as they are and compressed."""
CALL_PORT = 7005
HELLO_BYTES, GATHERED_BYTES = 18, 7
"""About as softnic.comm.messages packs them, for a thousand ranks without a secret."""


@dataclass(slots=True)
class _Pending:
    """A connection whose Hellos have not both come."""

    rank: int
    port: int
    is_caller: bool
    has_sent: bool = False


class SimMesh:
    """The connections of rank `index` in the making. Its owner calls `advance` when something has arrived.

    Parameters
    ----------
    index, size : int
        This rank, and the number of ranks.
    first : iterable of int
        The ranks to be joined with at the start.
    host : Host
        TCP of its node.
    """

    def __init__(self, index: int, size: int, first: Iterable[int], host: Host) -> None:
        self._index = index
        self._size = size
        self._host = host
        self._first = frozenset(first)
        self._above = lower(index, self._first)
        self._below = sorted(self._first.difference(self._above))
        self._listeners = [host.listen(0, port, len(PORTS) * size, 0.0) for port in (*PORTS, CALL_PORT)]
        self._pending: dict[Connection, _Pending] = {}
        self._joined: dict[int, dict[int, Connection]] = {}
        """By rank and port, those with both Hellos."""
        self._waits_for = set(self._below)
        """Ranks below that have not gathered theirs."""
        self._has_told = False
        """Whether the rank above has been sent Gathered."""
        self._wanted: set[int] = set()
        self._taken: set[int] = set()
        self.has_started = False
        """Whether all ranks have started, as this one knows."""

    def begin(self, now: float) -> list[Connection]:
        """Connect to the lower ranks of the start. Returns the connections, as `want` does."""
        return [connection for rank in self._above for connection in self.want(rank, now)]

    def want(self, rank: int, now: float) -> list[Connection]:
        """Begin to connect with a rank, unless that has begun. Returns the new connections, a call left out."""
        if rank in self._wanted or rank in self._taken:
            return []
        self._wanted.add(rank)
        if rank > self._index:
            self._dial(rank, CALL_PORT, now)
            return []
        return [self._dial(rank, port, now) for port in PORTS]

    def advance(self, now: float) -> tuple[list[Connection], list[tuple[int, dict[int, Connection]]]]:
        """Do all that can be done.

        Returns
        -------
        new : list of Connection
            Connections that have been opened or accepted since the last call, calls left out.
        joined : list of tuple
            Ranks that are connected from now on, with the connections by port; none before `has_started`.
        """
        new = self._accept()
        for connection, pending in list(self._pending.items()):
            new += self._greet(connection, pending, now)
        if not self.has_started:
            self._pass_wave()
        return new, self._take(now) if self.has_started else []

    def _dial(self, rank: int, port: int, now: float) -> Connection:
        connection = self._host.connect(FIRST_IP + rank, port, now)
        self._add(connection, _Pending(rank, port, is_caller=True))
        return connection

    def _add(self, connection: Connection, pending: _Pending) -> None:
        connection.set_nodelay(True)
        self._pending[connection] = pending

    def _accept(self) -> list[Connection]:
        new = []
        for listener in self._listeners:
            while (connection := listener.accept()) is not None:
                self._add(connection, _Pending(connection.peer[0] - FIRST_IP, listener.port, is_caller=False))
                if listener.port != CALL_PORT:
                    new.append(connection)
        return new

    def _greet(self, connection: Connection, pending: _Pending, now: float) -> list[Connection]:
        """Exchange Hello. Returns connections that have been opened for it."""
        if pending.is_caller and not pending.has_sent and connection.state is State.ESTABLISHED:
            self._send_hello(connection, pending)
        if connection.rcv.unread < HELLO_BYTES:
            return []
        connection.recv(HELLO_BYTES)
        if not pending.has_sent:
            self._send_hello(connection, pending)
        del self._pending[connection]
        if pending.port != CALL_PORT:
            self._joined.setdefault(pending.rank, {})[pending.port] = connection
            return []
        connection.close(now)
        return [] if pending.is_caller else self.want(pending.rank, now)

    @staticmethod
    def _send_hello(connection: Connection, pending: _Pending) -> None:
        connection.send(bytes(HELLO_BYTES))
        pending.has_sent = True

    def _pass_wave(self) -> None:
        if not all(len(self._joined.get(rank, ())) == len(PORTS) for rank in self._first):
            return
        self._waits_for.difference_update([rank for rank in self._waits_for if self._has_gathered(rank)])
        if self._waits_for:
            return
        if not self._has_told:
            self._has_told = True
            self._tell(self._above)
        if all(map(self._has_gathered, self._above)):
            self._tell(self._below)
            self.has_started = True

    def _has_gathered(self, rank: int) -> bool:
        """Read Gathered of a rank; return whether it had come."""
        connection = self._joined[rank][MESSAGE_PORT]
        if connection.rcv.unread < GATHERED_BYTES:
            return False
        connection.recv(GATHERED_BYTES)
        return True

    def _tell(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._joined[rank][MESSAGE_PORT].send(bytes(GATHERED_BYTES))

    def _take(self, now: float) -> list[tuple[int, dict[int, Connection]]]:
        """Return the ranks that are connected with all channels, whose connections are the caller's."""
        whole = sorted(rank for rank, connections in self._joined.items() if len(connections) == len(PORTS))
        self._taken.update(whole)
        self._wanted.difference_update(whole)
        for call, pending in list(self._pending.items()):
            if pending.port == CALL_PORT and pending.is_caller and pending.rank in self._taken:
                del self._pending[call]
                call.close(now)
        return [(rank, self._joined.pop(rank)) for rank in whole]
