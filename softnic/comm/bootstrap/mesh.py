"""Connects each pair of ranks.

Each rank listens, connects to the lower ranks and accepts the higher ones: one connection for each channel
(softnic/comm/messages.py). When all have met, those of further lanes follow, as many as every rank's NIC has queues.
Both ends of a connection first send Hello, so that connections of other jobs and services are detected, and those
without the secret of this job. Ranks may start in any order: a refused connection is retried while the rank may still
join (presence.py).

A rank that fails sends the reason to the ranks that are connected already, and notices when one of these exits. While
ranks are missing, a warning says why this rank's NIC drops datagrams, such as those sealed by another key.
"""

from __future__ import annotations

import errno
import hmac
import logging
import math
import os
import select
import socket
import time
import weakref
from collections.abc import Container, Generator, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import structs

from softnic.comm import messages
from softnic.comm.bootstrap.launch import SECRET_VARIABLE, Launch
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.errors import CommError
from softnic.comm.peer import Mesh
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
_MAX_HELLO_BYTES = 96
_REFUSED = b"-"
"""In place of a proof, to a rank that has none."""
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


class MeshBuilder:
    """One attempt to connect to all ranks of a launch, made by `run`, which closes the listener."""

    def __init__(
        self,
        launch: Launch,
        transport: Transport,
        listener: socket.socket | None = None,
        presence: Presence | None = None,
    ) -> None:
        self._launch = launch
        self._presence = presence or Presence(launch.timeout_s)
        self._transport = transport
        self._listener = listener
        self._poll = select.poll()
        self._pending: dict[int, PendingConnection] = {}
        self._retries: list[tuple[float, int, int]] = []
        """Times of the next attempts to connect, each with a rank and a channel."""
        self._connections: dict[tuple[int, int], socket.socket] = {}
        """Verified connections by rank and channel."""
        self._queues = {launch.rank: 1}
        """By rank, of its NIC."""
        self._control_ranks: dict[int, int] = {}
        """Ranks by file descriptor of their CONTROL connections."""
        self._last_error = ""
        self._counters: dict[str, int] = {}
        """Of the NIC, when it was asked last."""
        self._drops: list[str] = []
        """Those of `_DROPS` that were noticed."""
        self._began = self._check_at = time.monotonic()
        self._ask_nic_at = self._began + _ASK_NIC_S
        _builders.add(self)

    def run(self) -> Mesh:
        """Return when all ranks are connected. Raises CommError, which names the ranks that are missing."""
        launch = self._launch
        others = [rank for rank in range(launch.size) if rank != launch.rank]
        self._presence.begin()
        try:
            self._queues[launch.rank] = self._transport.queues()
            self._listen()
            self._connect_all(others, messages.CHANNELS)
            channels = messages.CHANNELS + messages.LANE_CHANNELS * (min(self._queues.values()) - 1)
            lower, further = range(launch.rank), range(messages.CHANNELS, channels)
            self._retries = [(0.0, rank, channel) for rank in lower for channel in further]
            self._connect_all(others, channels)
        except BaseException as error:
            failure = error
            if isinstance(error, OSError):
                failure = CommError(f"rank {launch.rank} cannot meet the others: {error}", rank=launch.rank)
            self._send_abort(failure)
            for connection in self._connections.values():
                connection.close()
            raise failure from (None if failure is error else error)
        finally:
            _builders.discard(self)
            if self._listener is not None:
                self._listener.close()
            for pending in self._pending.values():
                pending.connection.close()
        mesh = {rank: tuple(self._connections.pop((rank, each)) for each in range(channels)) for rank in others}
        for connection in self._connections.values():  # of lanes that not all ranks have
            connection.close()
        return mesh

    def _connect_all(self, others: Sequence[int], channels: int) -> None:
        """Return when there are connections for the first channels."""
        wanted = {(rank, channel) for rank in others for channel in range(channels)}
        while not wanted <= self._connections.keys():
            self._step()

    def close_in_fork(self) -> None:
        """Close the copies that a forked process has of the connections."""
        for connection in (*self._connections.values(), *(pending.connection for pending in self._pending.values())):
            connection.close()
        if self._listener is not None:
            self._listener.close()

    def _send_abort(self, error: BaseException) -> None:
        rank = getattr(error, "rank", None)
        text = getattr(error, "told", "") or str(error) or type(error).__name__
        for (_, channel), connection in self._connections.items():
            if channel == messages.CONTROL:
                with suppress(OSError):  # nothing else was sent, so it fits unless the peer has exited
                    connection.send(messages.pack(messages.Abort(self._launch.rank if rank is None else rank, text)))

    def _listen(self) -> None:
        launch = self._launch
        if self._listener is None:
            self._listener = self._transport.listen(launch.addresses[launch.rank], messages.MOST_CHANNELS * launch.size)
        self._listener.setblocking(False)
        self._poll.register(self._listener, select.POLLIN)
        self._retries = [(0.0, rank, channel) for rank in range(launch.rank) for channel in _CHANNELS]

    def _step(self) -> None:
        assert self._listener is not None
        now = time.monotonic()
        if now >= self._check_at:
            self._check_missing()
            self._check_at = min(now + self._presence.wait_s(), self._ask_nic_at)
        due = [retry for retry in self._retries if retry[0] <= now]
        self._retries = [retry for retry in self._retries if retry[0] > now]
        for _, rank, channel in due:
            self._connect(rank, channel)
        wake_at = min([self._check_at, *(at for at, _, _ in self._retries)])
        for fd, _ in self._poll.poll(max(0.0, wake_at - now) * 1000 + 1):
            if fd == self._listener.fileno():
                self._accept()
            elif (pending := self._pending.get(fd)) is not None:
                with suppress(StopIteration):
                    self._poll.modify(fd, next(pending.handshake))
            elif fd in self._control_ranks:
                raise self._exited(self._control_ranks[fd])

    def _check_missing(self) -> None:
        """Raise CommError if a rank will not join."""
        launch = self._launch
        joined = {rank for rank in range(launch.size) if all((rank, each) in self._connections for each in _CHANNELS)}
        missing = sorted(set(range(launch.size)) - joined - {launch.rank})
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
                        at_fault = frame.rank if frame.rank >= 0 else None
                        text = printable(frame.text, "\n")
                        return CommError(f"rank {rank} says: {text}", rank=at_fault, told=text)
        return CommError(f"rank {rank} exited before all ranks had joined", rank=rank)

    # -- pending connections ---------------------------------------------------------------------------------------

    def _connect(self, rank: int, channel: int) -> None:
        try:
            connection = self._transport.connect(self._launch.addresses[rank], messages.lane_of(channel))
        except OSError as error:
            self._retry(rank, channel, error)
        else:
            self._add(connection, self._call(connection, rank, channel), accepted=False)

    def _retry(self, rank: int, channel: int, error: OSError) -> None:
        if error.errno not in _NOT_LISTENING:
            raise error
        self._last_error = f"rank {rank}: {error.strerror or error}"
        now = time.monotonic()
        pause_s = min(max(_MIN_RETRY_S, (now - self._began) / 10), _MAX_RETRY_S)
        self._retries.append((now + pause_s, rank, channel))

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._transport.prepare(connection)
        accepted = [pending.connection for pending in self._pending.values() if pending.accepted]
        if len(accepted) >= SPARE_CONNECTIONS + messages.MOST_CHANNELS * self._launch.size:
            self._drop(accepted[0])
        self._add(connection, self._answer(connection), accepted=True)

    def _add(self, connection: socket.socket, handshake: Handshake, *, accepted: bool) -> None:
        self._pending[connection.fileno()] = PendingConnection(connection, handshake, accepted)
        self._poll.register(connection, next(handshake))

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
            unsent = self._hello(rank, channel)
            while unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[connection.send(unsent) :]
                if unsent:
                    yield select.POLLOUT
            hello = yield from _receive_hello(connection)
        except OSError as error:
            self._drop(connection)
            self._retry(rank, channel, error)
            return
        host, port = self._launch.addresses[rank]
        if hello is None or hello.version != messages.VERSION:
            text = (
                f"the service at {host}:{port} is not a communicator of this version, but rank {rank} should be there"
            )
            raise CommError(text, rank=rank)
        if not self._is_proven(hello):
            raise CommError(f"{SECRET_VARIABLE} of rank {rank} at {host}:{port} is not that of this rank", rank=rank)
        self._verify(connection, hello, (rank,))

    def _answer(self, connection: socket.socket) -> Handshake:
        """Learn which rank has connected, and disconnect others."""
        try:
            hello = yield from _receive_hello(connection)
            if hello is not None:
                wrong = self._wrong(hello)
                # So that the other side can say what is wrong. It fits: nothing else was sent.
                connection.send(self._hello(hello.rank, hello.channel, is_proof=not wrong))
                if wrong:
                    self._last_error = f"a connection of rank {hello.rank} was refused: {wrong}"
                    hello = None
        except OSError:
            hello = None
        if hello is None:
            self._drop(connection)
        else:
            self._verify(connection, hello, range(self._launch.rank + 1, self._launch.size))

    def _wrong(self, hello: messages.Hello) -> str:
        """Return why a connection is none of this job and version; empty: it is one."""
        if hello.version != messages.VERSION:
            return f"it speaks version {hello.version} of the protocol, this rank {messages.VERSION}"
        return "" if self._is_proven(hello) else f"it has not this rank's {SECRET_VARIABLE}"

    def _is_proven(self, hello: messages.Hello) -> bool:
        return hmac.compare_digest(hello.proof, self._proof(hello))

    def _proof(self, hello: messages.Hello) -> bytes:
        """Return what only ranks of this job can say in a Hello; empty without a secret."""
        if not self._launch.secret:
            return b""
        text = f"softnic rank {hello.rank} of {hello.size} to {hello.to}, channel {hello.channel}"
        return hmac.digest(self._launch.secret, text.encode(), "sha256")

    def _hello(self, to: int, channel: int, is_proof: bool = True) -> bytes:
        hello = messages.Hello(messages.VERSION, self._launch.size, self._launch.rank, to, channel)
        proof, queues = self._proof(hello) if is_proof else _REFUSED, self._queues[self._launch.rank]
        return messages.pack(structs.replace(hello, proof=proof, queues=queues))

    def _verify(self, connection: socket.socket, hello: messages.Hello, expected: Container[int]) -> None:
        launch = self._launch
        if hello.size != launch.size or hello.to != launch.rank or hello.rank not in expected:
            raise CommError(
                f"rank {launch.rank} of {launch.size} is connected to rank {hello.rank} of {hello.size}, which "
                f"expects rank {hello.to}: the ranks were started with different settings",
                rank=hello.rank,
            )
        key = (hello.rank, hello.channel)
        if key in self._connections or not 0 <= hello.channel < messages.MOST_CHANNELS:
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


def _receive_hello(connection: socket.socket) -> Generator[int, None, messages.Hello | None]:
    """Read the peer's Hello and no further byte: the rest belongs to the communicator. Returns None if it is none."""
    received, size = b"", 4
    while len(received) < size <= _MAX_HELLO_BYTES:
        yield select.POLLIN
        with suppress(BlockingIOError):
            data = connection.recv(size - len(received))
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed before its Hello")
            received += data
            if len(received) == 4:
                size += int.from_bytes(received, "little")
    try:
        (hello,) = messages.Reader().feed(received)
    except ValueError:
        return None
    return hello if isinstance(hello, messages.Hello) else None


_builders: weakref.WeakSet[MeshBuilder] = weakref.WeakSet()


def _close_in_fork() -> None:
    for builder in list(_builders):
        builder.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
