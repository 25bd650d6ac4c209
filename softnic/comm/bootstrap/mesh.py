"""Connects pairs of ranks: some at the start, others when they are first needed.

Few ranks all connect at the start, of many the pairs of a tree, by which barriers and short sums go (first_pairs.py).
Each rank listens, connects to lower ranks and accepts higher ones: one connection for each channel
(softnic/comm/messages.py). A rank that needs a higher one calls it by a connection of its own, and is connected to.
Connections of further lanes are made as well, as many as every rank's NIC has queues; in a tree, ranks gather their
number, and so each knows that all have started. Both ends of a connection first send Hello, so that connections of
other jobs and services are detected, and those without the secret of this job. Ranks may start in any order: a refused
connection is retried while the rank may still join (presence.py).

A rank that fails sends the reason to the ranks that are connected already, and notices when one of these exits. While
ranks are missing, a warning says why this rank's NIC drops datagrams, such as those sealed by another key.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Container, Generator, Iterable
from contextlib import suppress
from typing import NamedTuple

from softnic.collectives import pairs
from softnic.comm import messages
from softnic.comm.bootstrap.first_pairs import all_connect_at_start, connected_at_start
from softnic.comm.bootstrap.greeting import FirstFrame, Greeting, receive_first
from softnic.comm.bootstrap.launch import SECRET_VARIABLE, Launch
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.errors import CommError
from softnic.comm.peer import Connections, Mesh
from softnic.comm.transport import Transport
from softnic.terminal import printable

_MIN_RETRY_S = 0.05
_MAX_RETRY_S = 0.5
_NOT_LISTENING = {errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNABORTED}
"""Errors of connecting to a rank that has not started yet."""
_ASK_NIC_S = 2.0
"""Between two looks at the NIC's counters while ranks are missing."""
_DROPS = {
    "link_dropped_wrong_key": "it drops the datagrams of a NIC that has another key",
    "link_dropped_plaintext": "it drops the datagrams of a NIC that has no key",
    "link_dropped_unknown_source": "it drops the datagrams of a NIC that is none of its peers",
}
"""What growing counters of a NIC mean; `softnic stat` names the NICs."""
_CHANNELS = range(messages.CHANNELS)
SPARE_CONNECTIONS = 64
"""Accepted connections without a Hello, beyond those of the ranks."""

log = logging.getLogger("softnic")


Handshake = Generator[int, None, None]
"""Exchanges Hello on a connection; yields the events of poll that it waits for. Its peer is verified when it ends."""


class PendingConnection(NamedTuple):
    """A connection whose peer is not verified yet."""

    connection: socket.socket
    handshake: Handshake
    accepted: bool
    called: int = -1
    """The higher rank that it calls, if it does."""


class MeshBuilder:
    """The connections of a launch's ranks in the making. `run` makes those of the start; if they are not all, further
    ones are made by `want`, `advance` and `take`, until `close`. The listener stays open for what survivors of a
    failure have to say to each other (softnic/comm/survival/regroup.py)."""

    def __init__(
        self,
        launch: Launch,
        transport: Transport,
        listener: socket.socket | None = None,
        presence: Presence | None = None,
    ) -> None:
        self._launch = launch
        self._greeting = Greeting(launch)
        self._presence = presence or Presence(launch.timeout_s)
        self._transport = transport
        self.listener = listener
        """Open until its owner closes it; None: not made yet."""
        self._closed = False
        self._survivors: deque[tuple[int, socket.socket]] = deque()
        """Connections of ranks that agree on who is left, each with its rank, which are not this object's to read."""
        try:
            self._first = connected_at_start(launch.rank, launch.size)
        except ValueError as error:
            raise CommError(str(error), rank=launch.rank) from None
        self._channels = messages.CHANNELS
        """Connections to each rank."""
        self._poll = select.epoll()
        self._pending: dict[int, PendingConnection] = {}
        self._retries: list[tuple[float, int, int]] = []
        """Times of the next attempts to connect, each with a rank and a channel."""
        self._connections: dict[tuple[int, int], socket.socket] = {}
        """Verified connections by rank and channel."""
        self._queues = {launch.rank: 1}
        """By rank, of its NIC."""
        self._control_ranks: dict[int, int] = {}
        """Ranks by file descriptor of their CONTROL connections."""
        self._gathering: dict[int, FirstFrame] = {}
        """By rank, what reads its Gathered."""
        self._gathered: dict[int, int] = {}
        """By rank, what it has sent."""
        self._wanted: set[int] = set()
        """Ranks that connections are being made with, after the start."""
        self._called: set[int] = set()
        """Lower ranks that have asked for them, perhaps before the end of this rank's start."""
        self._taken: set[int] = set()
        """Ranks whose connections are no longer this object's."""
        self._ended: set[int] = set()
        """Ranks that have closed their CONTROL connection before the others to them were complete."""
        self.lost: dict[int, str] = {}
        """Ranks that took no connection after the start, and why."""
        self._last_error = ""
        self._counters: dict[str, int] = {}
        """Of the NIC, when it was asked last."""
        self._drops: list[str] = []
        """Those of `_DROPS` that were noticed."""
        self._began = self._check_at = time.monotonic()
        self._ask_nic_at = self._began + _ASK_NIC_S
        _builders.add(self)

    def run(self) -> Mesh:
        """Return when the ranks of the start are connected. Raises CommError, which names those that are missing."""
        launch, listened = self._launch, self.listener is not None
        self._presence.begin()
        try:
            self._queues[launch.rank] = self._greeting.queues = self._transport.queues()
            self._listen()
            self._connect_all(messages.CHANNELS)
            self._channels += messages.LANE_CHANNELS * (self._agree_on_queues() - 1)
            lower, further = self._lower(self._first), range(messages.CHANNELS, self._channels)
            self._retries = [(0.0, rank, channel) for rank in lower for channel in further]
            self._connect_all(self._channels)
        except BaseException as error:
            failure = error
            if isinstance(error, OSError):
                failure = CommError(f"rank {launch.rank} cannot meet the others: {error}", rank=launch.rank)
            self._send_abort(failure)
            if self.listener is not None and not listened:
                self.listener.close()
            self.close()
            raise failure from (None if failure is error else error)
        mesh = {rank: self._take(rank) for rank in sorted(self._first)}
        if self.is_complete:
            self.close()
        return mesh

    def _connect_all(self, channels: int) -> None:
        """Return when there are connections for the first channels to the ranks of the start."""
        wanted = {(rank, channel) for rank in self._first for channel in range(channels)}
        while not wanted <= self._connections.keys():
            self._step()

    def _agree_on_queues(self) -> int:
        """Return the fewest queues that a NIC has. In a tree, all ranks have started when this returns."""
        launch = self._launch
        if all_connect_at_start(launch.size):
            return min(self._queues.values())
        upper, below = self._lower(self._first), [rank for rank in self._first if rank > launch.rank]
        least = min([self._queues[launch.rank], *(self._gather(rank) for rank in below)])
        for rank in upper:
            self._tell_gathered(rank, least)
            least = self._gather(rank)
        for rank in below:
            self._tell_gathered(rank, least)
        return least

    def _tell_gathered(self, rank: int, queues: int) -> None:
        self._connections[rank, messages.CONTROL].send(messages.pack(messages.Gathered(queues)))  # it fits

    def _gather(self, rank: int) -> int:
        """Return what a rank has gathered."""
        connection = self._connections[rank, messages.CONTROL]
        self._gathering[rank] = receive_first(connection)
        self._poll.modify(connection, next(self._gathering[rank]))
        while rank not in self._gathered:
            self._step()
        return self._gathered[rank]

    def _look_at_control(self, rank: int) -> None:
        """Read what a rank has gathered. Raises CommError if it has exited before all had joined."""
        if rank not in self._gathering:
            if not self._has_started:
                raise self._exited(rank)
            self._ended.add(rank)  # what it has sent before may still be read
            self._poll.modify(self._connections[rank, messages.CONTROL], 0)
            return
        connection = self._connections[rank, messages.CONTROL]
        try:
            next(self._gathering[rank])
        except StopIteration as end:
            frame = end.value
            if isinstance(frame, messages.Abort):
                raise self._reported(rank, frame) from None
            if not isinstance(frame, messages.Gathered):
                raise CommError(f"rank {rank} sent nonsense", rank=rank) from None
            del self._gathering[rank]
            self._gathered[rank] = max(1, frame.queues)
            self._poll.modify(connection, select.EPOLLRDHUP)
        except OSError:
            raise self._exited(rank) from None

    def _lose(self, rank: int, why: str) -> None:
        """Give up to connect with a rank, after the start."""
        self.lost[rank] = why
        self._wanted.discard(rank)
        self._retries = [retry for retry in self._retries if retry[1] != rank]
        self._control_ranks = {fd: other for fd, other in self._control_ranks.items() if other != rank}
        for key in [key for key in self._connections if key[0] == rank]:
            self._connections.pop(key).close()

    def _lower(self, ranks: Iterable[int]) -> list[int]:
        return pairs.lower(self._launch.rank, ranks)

    # -- after the start -------------------------------------------------------------------------------------------

    @property
    def _has_started(self) -> bool:
        """Whether the ranks of the start are connected."""
        return bool(self._taken)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks are connected, or it is closed."""
        return len(self._taken) == self._launch.size - 1 or self._closed

    @property
    def is_busy(self) -> bool:
        """Whether connections are being made."""
        return bool(self._wanted)

    @property
    def fd(self) -> int:
        """Readable when `advance` has something to do."""
        return self._poll.fileno()

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        if self._called:
            return 0.0
        return min((at for at, _, _ in self._retries), default=None)

    def want(self, rank: int) -> None:
        """Begin to connect with a rank, unless that has begun."""
        if rank in self._wanted or rank in self._taken:
            return
        self._wanted.add(rank)
        higher = rank > self._launch.rank
        channels = (messages.CALL,) if higher else range(self._channels)
        self._began = time.monotonic()
        self._retries += [(0.0, rank, channel) for channel in channels]

    def advance(self) -> None:
        """Do what can be done without waiting. Raises CommError and OSError."""
        if self.is_complete:
            return
        self._step(wait=False)
        if self._called:
            for rank in self._called:
                self.want(rank)
            self._called.clear()
            self._step(wait=False)

    def take(self) -> tuple[int, Connections] | None:
        """Return a rank that is connected now, and the connections to it, then the caller's; None: there is none."""
        whole = [rank for rank in self._control_ranks.values() if self._is_whole(rank)]
        return (whole[0], self._take(whole[0])) if whole else None

    def _is_whole(self, rank: int) -> bool:
        """Return whether all connections to a rank are made."""
        return all((rank, each) in self._connections for each in range(self._channels))

    def _take(self, rank: int) -> Connections:
        """Return the connections to a rank, which are the caller's from now on."""
        control = self._connections[rank, messages.CONTROL]
        self._poll.unregister(control)
        del self._control_ranks[control.fileno()]
        self._taken.add(rank)
        self._wanted.discard(rank)
        for call in [each.connection for each in self._pending.values() if each.called == rank]:
            self._drop(call)
        found = tuple(self._connections.pop((rank, each)) for each in range(self._channels))
        for key in [key for key in self._connections if key[0] == rank]:  # of lanes that not all ranks have
            self._connections.pop(key).close()
        return found

    def take_survivors(self) -> list[tuple[int, socket.socket]]:
        """Return connections of survivors, each with its rank, which are the caller's from now on."""
        taken = list(self._survivors)
        self._survivors.clear()
        return taken

    def close(self) -> None:
        """Connect no more ranks. The listener stays open."""
        _builders.discard(self)
        self._close_connections()
        self._closed = True
        self._poll.close()
        self._pending.clear()
        self._connections.clear()
        self._retries.clear()
        self._wanted.clear()

    def close_in_fork(self) -> None:
        """Close the copies that a forked process has of the connections."""
        self._close_connections()
        for _, connection in self._survivors:
            connection.close()
        if self.listener is not None:
            self.listener.close()

    def _close_connections(self) -> None:
        for connection in (*self._connections.values(), *(pending.connection for pending in self._pending.values())):
            connection.close()

    def _send_abort(self, error: BaseException) -> None:
        rank = getattr(error, "rank", None)
        text = getattr(error, "told", "") or str(error) or type(error).__name__
        for (_, channel), connection in self._connections.items():
            if channel == messages.CONTROL:
                with suppress(OSError):  # nothing else was sent, so it fits unless the peer has exited
                    connection.send(messages.pack(messages.Abort(self._launch.rank if rank is None else rank, text)))

    def _listen(self) -> None:
        launch = self._launch
        if self.listener is None:
            self.listener = self._transport.listen(launch.addresses[launch.rank], messages.MOST_CHANNELS * launch.size)
        self.listener.setblocking(False)
        self._poll.register(self.listener, select.POLLIN)
        self._retries = [(0.0, rank, channel) for rank in self._lower(self._first) for channel in _CHANNELS]

    def _step(self, *, wait: bool = True) -> None:
        assert self.listener is not None
        now = time.monotonic()
        if wait and now >= self._check_at:
            self._check_missing()
            self._check_at = min(now + self._presence.wait_s(), self._ask_nic_at)
        due = [retry for retry in self._retries if retry[0] <= now]
        self._retries = [retry for retry in self._retries if retry[0] > now]
        for _, rank, channel in due:
            self._connect(rank, channel)
        wake_at = min([self._check_at, *(at for at, _, _ in self._retries)])
        for fd, _ in self._poll.poll(max(0.0, wake_at - now) + 1e-3 if wait else 0):
            if fd == self.listener.fileno():
                self._accept()
            elif (pending := self._pending.get(fd)) is not None:
                with suppress(StopIteration):
                    self._poll.modify(fd, next(pending.handshake))
            elif fd in self._control_ranks:
                self._look_at_control(self._control_ranks[fd])
        if self._ended:
            self._look_at_ended()

    def _look_at_ended(self) -> None:
        """Give up ranks that have ended, and to which no further connection comes."""
        for rank in list(self._ended):
            if self._is_whole(rank):
                self._ended.discard(rank)
            elif rank > self._launch.rank and not any(pending.accepted for pending in self._pending.values()):
                self._ended.discard(rank)
                self._lose(rank, "it ended while it connected to this rank")

    def _check_missing(self) -> None:
        """Raise CommError if a rank will not join."""
        launch = self._launch
        missing = sorted(
            rank for rank in self._first if not all((rank, each) in self._connections for each in _CHANNELS)
        )
        if time.monotonic() >= self._ask_nic_at:
            self._ask_nic(missing)
        for rank, reason in self._presence.exited(missing).items():
            raise CommError(reason, rank=rank)
        if overdue := self._presence.overdue(missing):
            host, port = launch.addresses[launch.rank]
            reasons = [f"last error: {self._last_error}"] if self._last_error else []
            reasons += [f"its NIC: {text}, see softnic stat" for text in self._drops]
            reason = f" ({'; '.join(reasons)})" if reasons else ""
            names = _names(overdue)
            raise CommError(
                f"rank {launch.rank} at {host}:{port} did not meet {names} within {launch.timeout_s:g} s{reason}",
                rank=overdue[0],
            )

    def _ask_nic(self, missing: list[int]) -> None:
        """Warn of datagrams that the NIC has dropped since it was asked last, once for each reason."""
        self._ask_nic_at = time.monotonic() + _ASK_NIC_S
        counters: dict[str, int] = {}
        with suppress(OSError):  # calls report that it is gone
            counters = self._transport.nic_counters()
        for name, text in _DROPS.items():
            if counters.get(name, 0) > self._counters.get(name, math.inf) and text not in self._drops:
                self._drops.append(text)
                waits = f"rank {self._launch.rank} waits for {_names(missing)}"
                log.warning("%s; its NIC: %s, see softnic stat", waits, text)
        self._counters = counters

    def _exited(self, rank: int) -> CommError:
        """Return the error for a connected rank that has closed its connection, with the reason that it sent."""
        control, reader, data = self._connections[rank, messages.CONTROL], messages.Reader(), b"-"
        with suppress(OSError, ValueError):
            while data:
                data = control.recv(1 << 16)
                for frame in reader.feed(data):
                    if isinstance(frame, messages.Abort):
                        return self._reported(rank, frame)
        return CommError(f"rank {rank} exited before all ranks had joined", rank=rank)

    @staticmethod
    def _reported(rank: int, frame: messages.Abort) -> CommError:
        at_fault = frame.rank if frame.rank >= 0 else None
        text = printable(frame.text, "\n")
        return CommError(f"rank {rank} says: {text}", rank=at_fault, told=text)

    # -- pending connections ---------------------------------------------------------------------------------------

    def _connect(self, rank: int, channel: int) -> None:
        lane = 0 if channel == messages.CALL else messages.lane_of(channel)
        try:
            connection = self._transport.connect(self._launch.addresses[rank], lane)
        except OSError as error:
            self._retry(rank, channel, error)
        else:
            called = rank if channel == messages.CALL else -1
            self._add(PendingConnection(connection, self._call(connection, rank, channel), False, called))

    def _retry(self, rank: int, channel: int, error: OSError) -> None:
        if error.errno not in _NOT_LISTENING:
            raise error
        if self._has_started and error.errno == errno.ECONNREFUSED:  # all ranks have listened since then
            self._lose(rank, "it has left, or ended, before this rank was connected to it")
            return
        self._last_error = f"rank {rank}: {error.strerror or error}"
        now = time.monotonic()
        pause_s = min(max(_MIN_RETRY_S, (now - self._began) / 10), _MAX_RETRY_S)
        self._retries.append((now + pause_s, rank, channel))

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            connection, _ = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._transport.prepare(connection)
        accepted = [pending.connection for pending in self._pending.values() if pending.accepted]
        if len(accepted) >= SPARE_CONNECTIONS + messages.MOST_CHANNELS * self._launch.size:
            self._drop(accepted[0])
        self._add(PendingConnection(connection, self._answer(connection), accepted=True))

    def _add(self, pending: PendingConnection) -> None:
        self._pending[pending.connection.fileno()] = pending
        self._poll.register(pending.connection, next(pending.handshake))

    def _drop(self, connection: socket.socket) -> None:
        self._poll.unregister(connection)
        del self._pending[connection.fileno()]
        connection.close()

    def _call(self, connection: socket.socket, rank: int, channel: int) -> Handshake:
        """Introduce this rank to a lower one. Raises CommError if another service listens there."""
        try:
            yield select.POLLOUT
            if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
            unsent = self._greeting.hello(rank, channel)
            while unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[connection.send(unsent) :]
                if unsent:
                    yield select.POLLOUT
            hello = yield from receive_first(connection)
        except OSError as error:
            self._drop(connection)
            self._retry(rank, channel, error)
            return
        host, port = self._launch.addresses[rank]
        if not isinstance(hello, messages.Hello) or hello.version != messages.VERSION:
            text = (
                f"the service at {host}:{port} is not a communicator of this version, but rank {rank} should be there"
            )
            raise CommError(text, rank=rank)
        if hello.epoch != self._launch.epoch:
            raise CommError(f"the process at {host}:{port} is a rank of another start than rank {rank}", rank=rank)
        if not self._greeting.is_proven(hello):
            raise CommError(f"{SECRET_VARIABLE} of rank {rank} at {host}:{port} is not that of this rank", rank=rank)
        if channel == messages.CALL:
            self._drop(connection)
        else:
            self._verify(connection, hello, (rank,))

    def _answer(self, connection: socket.socket) -> Handshake:
        """Learn which rank has connected, and disconnect others."""
        try:
            hello = yield from receive_first(connection)
            if not isinstance(hello, messages.Hello):
                hello = None
            else:
                wrong = self._greeting.wrong(hello)
                if hello.channel != messages.SURVIVE:  # its sender reads nothing
                    # So that the other side can say what is wrong. It fits: nothing else was sent.
                    connection.send(self._greeting.hello(hello.rank, hello.channel, is_proof=not wrong))
                if wrong:
                    self._last_error = f"a connection of rank {hello.rank} was refused: {wrong}"
                    hello = None
        except OSError:
            hello = None
        if hello is not None:
            try:
                self._take_in(connection, hello)
            except CommError as error:
                if not self._has_started:
                    raise
                log.warning("a connection was refused: %s", error)  # which the ranks that are joined can do without
                hello = None
        if hello is None and connection.fileno() in self._pending:
            self._drop(connection)

    def _take_in(self, connection: socket.socket, hello: messages.Hello) -> None:
        """Take a connection, or a call, for that of another rank. Raises CommError if it is none."""
        if hello.channel == messages.SURVIVE:
            self._greeting.check(hello, range(self._launch.size))
            self._poll.unregister(connection)
            del self._pending[connection.fileno()]
            self._survivors.append((hello.rank, connection))
            if len(self._survivors) > 2 * self._launch.size:
                self._survivors.popleft()[1].close()
        elif hello.channel == messages.CALL:
            self._greeting.check(hello, range(self._launch.rank))
            self._drop(connection)
            self._called.add(hello.rank)
        else:
            self._verify(connection, hello, range(self._launch.rank + 1, self._launch.size))

    def _verify(self, connection: socket.socket, hello: messages.Hello, expected: Container[int]) -> None:
        self._greeting.check(hello, expected)
        key = (hello.rank, hello.channel)
        if key in self._connections or hello.rank in self._taken or not 0 <= hello.channel < messages.MOST_CHANNELS:
            raise CommError(f"two processes claim to be rank {hello.rank}", rank=hello.rank)
        self._queues[hello.rank] = max(1, hello.queues)
        self._connections[key] = connection
        fd = connection.fileno()
        del self._pending[fd]
        self._poll.unregister(connection)
        if hello.channel == messages.CONTROL:
            self._control_ranks[fd] = hello.rank
            self._poll.register(connection, select.POLLRDHUP)
            self._transport.keep_alive(connection)


def _names(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


_builders: weakref.WeakSet[MeshBuilder] = weakref.WeakSet()


def _close_in_fork() -> None:
    for builder in list(_builders):
        builder.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
